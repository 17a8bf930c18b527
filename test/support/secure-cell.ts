import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import type { ChannelCredentials } from "@grpc/grpc-js";
import { tlsFromFiles } from "@lockstep/client";
import type { TlsOptions } from "@lockstep/client";
import { AdminApi } from "./admin.ts";
import { TestCell } from "./cell.ts";
import { CELL_UID, SecretMount, issueFor } from "./certificates.ts";
import type { TestAuthority, TestCertificate } from "./certificates.ts";
import { until } from "./until.ts";

type Identity = Parameters<typeof issueFor>[1];

/** A cell of three with TLS on every port, and the mounted Secrets of everybody who has to do with it. */
export class SecureCell {
  /** Signs what is issued now. */
  authority: TestAuthority;
  /** Whom everybody trusts. */
  bundle: string;
  cell!: TestCell;
  readonly directory: string = mkdtempSync(join(tmpdir(), "lockstep-secrets-"));
  readonly application: SecretMount;
  readonly administrator: SecretMount;
  readonly #members = new Map<string, SecretMount>();
  readonly #leaves = new Map<Identity, TestCertificate>();

  private constructor(authority: TestAuthority) {
    this.authority = authority;
    this.bundle = authority.cert;
    this.application = new SecretMount(join(this.directory, "application"));
    this.administrator = new SecretMount(join(this.directory, "administrator"));
    this.mountAll();
  }

  static async start(authority: TestAuthority): Promise<SecureCell> {
    const secure = new SecureCell(authority);
    try {
      secure.cell = await TestCell.start(3, {
        flagsOf: (name) => secure.memberFlags(name),
        adminCredentials: () => secure.adminCredentials(),
      });
    } catch (error) {
      secure.#removeSecrets();
      throw error;
    }
    return secure;
  }

  memberFlags(name: string): string[] {
    let mount = this.#members.get(name);
    if (mount === undefined) {
      mount = new SecretMount(join(this.directory, name));
      this.#members.set(name, mount);
      mount.write(this.leaf(`member/${name}`), this.bundle);
    }
    return [
      ...["--tls-cert", mount.cert, "--tls-key", mount.key, "--tls-ca", mount.ca],
      ...["--tls-cell-uid", CELL_UID],
    ];
  }

  /** Where a member finds its certificates. */
  mountOf(name: string): SecretMount {
    const mount = this.#members.get(name);
    if (mount === undefined) throw new TypeError(`there is no member ${name}`);
    return mount;
  }

  /** The certificate of an identity, of the authority that signs now. */
  leaf(identity: Identity): TestCertificate {
    let leaf = this.#leaves.get(identity);
    if (leaf === undefined) {
      leaf = issueFor(this.authority, identity);
      this.#leaves.set(identity, leaf);
    }
    return leaf;
  }

  /** From now on another authority signs: everybody's next certificate is its. */
  replaceLeaves(authority: TestAuthority): void {
    this.authority = authority;
    this.#leaves.clear();
  }

  /** Writes everybody's certificate and bundle into their mounts. */
  mountAll(): void {
    this.application.write(this.leaf("client/application"), this.bundle);
    this.administrator.write(this.leaf("admin/administrator"), this.bundle);
    for (const [name, mount] of this.#members) mount.write(this.leaf(`member/${name}`), this.bundle);
  }

  /** Waits until every member serves with what is mounted, and asks them with the administrator's new certificate. */
  async settled(bundleHash: string, leafHash: (name: string) => string): Promise<void> {
    for (const member of this.cell.members) {
      await until(`${member.name} serves with the new certificates`, async () => {
        const { tls } = await member.adminApi.status();
        return tls?.bundleHash === bundleHash && tls.leafHash === leafHash(member.name) ? true : undefined;
      });
      member.adminApi.close();
      member.adminApi = new AdminApi(member.address(3), this.adminCredentials());
    }
  }

  /** For the client library: the application's files, read anew before every connection. */
  applicationTls(): () => TlsOptions {
    const { ca, cert, key } = this.application;
    return tlsFromFiles({ ca, cert, key });
  }

  adminCredentials(): ChannelCredentials {
    const { ca, cert, key } = this.administrator;
    const tls = tlsFromFiles({ ca, cert, key })();
    return credentials.createSsl(tls.ca ?? null, tls.key, tls.cert);
  }

  async stop(): Promise<void> {
    await this.cell.stop();
    this.#removeSecrets();
  }

  #removeSecrets(): void {
    if (process.env["LOCKSTEP_KEEP"] === undefined) rmSync(this.directory, { recursive: true, force: true });
  }
}
