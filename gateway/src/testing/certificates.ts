/** A throw-away certificate authority for the tests of TLS, made with the `openssl` command. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface TestCertificates {
  readonly ca: Buffer;
  readonly server: { readonly key: Buffer; readonly cert: Buffer };
  readonly client: { readonly key: Buffer; readonly cert: Buffer };
}

function openssl(directory: string, ...args: readonly string[]): void {
  const result = spawnSync("openssl", args, { cwd: directory, encoding: "utf8" });
  if (result.status !== 0) throw new Error(`openssl ${args.join(" ")}: ${result.stderr}`);
}

/** Whether the command is there at all; a test that needs it says so when it is skipped. */
export function hasOpenssl(): boolean {
  return spawnSync("openssl", ["version"]).status === 0;
}

function leaf(directory: string, name: string): { key: Buffer; cert: Buffer } {
  openssl(directory, ...`ecparam -name prime256v1 -genkey -noout -out ${name}.key`.split(" "));
  openssl(directory, ...`req -new -key ${name}.key -subj /CN=${name} -out ${name}.csr`.split(" "));
  writeFileSync(join(directory, "san.cnf"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  const sign = `x509 -req -in ${name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile san.cnf -out ${name}.crt`;
  openssl(directory, ...sign.split(" "));
  const read = (suffix: string): Buffer => readFileSync(join(directory, `${name}.${suffix}`));
  return { key: read("key"), cert: read("crt") };
}

/** Makes them in a temporary folder, which is gone when this returns. Valid for one day. */
export function makeCertificates(): TestCertificates {
  const directory = mkdtempSync(join(tmpdir(), "lockstep-certificates-"));
  try {
    openssl(directory, ...`ecparam -name prime256v1 -genkey -noout -out ca.key`.split(" "));
    openssl(directory, ...`req -x509 -new -key ca.key -subj /CN=test-ca -days 1 -out ca.crt`.split(" "));
    return {
      ca: readFileSync(join(directory, "ca.crt")),
      server: leaf(directory, "server"),
      client: leaf(directory, "client"),
    };
  } finally {
    rmSync(directory, { recursive: true });
  }
}
