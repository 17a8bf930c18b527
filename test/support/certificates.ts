import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { TestAuthority } from "@lockstep/gateway/testing/certificates";
import type { TestCertificate } from "@lockstep/gateway/testing/certificates";

export { TestAuthority };
export type { TestCertificate };

/** The name of the test's cell in certificates. */
export const CELL_UID = "0b0e6e8c-7c1f-4d52-9a57-3f1f6f0f5a11";

/** A certificate for loopback with an identity of the test's cell. */
export function issueFor(
  authority: TestAuthority,
  identity: `${"member" | "admin" | "client"}/${string}`,
  options: { readonly cellUid?: string; readonly dns?: readonly string[] } = {},
): TestCertificate {
  return authority.issue({
    commonName: identity,
    uris: [`lockstep://${options.cellUid ?? CELL_UID}/${identity}`],
    ...(options.dns === undefined ? {} : { dns: options.dns }),
  });
}

/**
 * A folder as Kubernetes mounts a Secret: `tls.crt` is a link to `..data/tls.crt`, and `..data` is a link that is
 * swapped at once to a folder with the new contents.
 */
export class SecretMount {
  readonly directory: string;
  #version = 0;

  constructor(directory: string) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true });
  }

  get cert(): string {
    return join(this.directory, "tls.crt");
  }

  get key(): string {
    return join(this.directory, "tls.key");
  }

  get ca(): string {
    return join(this.directory, "ca.crt");
  }

  write(certificate: TestCertificate, ca: string): void {
    const previous = `..v${String(this.#version)}`;
    this.#version += 1;
    const name = `..v${String(this.#version)}`;
    const contents = { "tls.crt": certificate.cert, "tls.key": certificate.key, "ca.crt": ca };
    mkdirSync(join(this.directory, name));
    for (const [file, text] of Object.entries(contents))
      writeFileSync(join(this.directory, name, file), text);
    symlinkSync(name, join(this.directory, "..data_tmp"));
    renameSync(join(this.directory, "..data_tmp"), join(this.directory, "..data"));
    if (this.#version === 1) {
      for (const file of Object.keys(contents)) symlinkSync(`..data/${file}`, join(this.directory, file));
    } else rmSync(join(this.directory, previous), { recursive: true });
  }
}
