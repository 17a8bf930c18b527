import { X509Certificate, createHash, createPrivateKey } from "node:crypto";
import { readIdentity, usableContextOptions } from "@lockstep/gateway";

/** What stands in the three files, byte for byte. */
export interface TlsFileContents {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca: Buffer;
}

/** Certificates that were checked: a member can serve and dial with them. */
export interface TlsMaterial {
  /** PEM. */
  readonly key: Buffer;
  readonly cert: Buffer;
  /** PEM of every certificate of the bundle. */
  readonly ca: Buffer;
  readonly authorities: readonly X509Certificate[];
  /**
   * SHA-256, in lower-case hex, over the 32-byte SHA-256 fingerprints of the bundle's certificates (each over its DER),
   * every one once, sorted bytewise, one after the other. Equal sets of authorities have equal hashes, in whatever order
   * and however often they stand in the file.
   */
  readonly bundleHash: string;
  /** SHA-256 of the leaf's DER, in lower-case hex. */
  readonly leafHash: string;
  /** Milliseconds since 1970. */
  readonly leafNotAfterMs: number;
}

export interface TlsExpectation {
  /** The cell that the member's own certificate must name. */
  readonly cellUid: string;
  /** The member's name, which its own certificate must name too. */
  readonly memberName: string;
  /** Milliseconds since 1970. */
  readonly nowMs: number;
  /**
   * The authorities that were trusted until now: they may have signed the certificate instead of a new one, as in the
   * middle of a rotation. Default: none.
   */
  readonly trustedBefore?: readonly X509Certificate[];
}

/** The files cannot be used; the message says which and why. */
export class TlsMaterialError extends Error {
  override readonly name = "TlsMaterialError";
}

/** A file above this is no certificate, key or bundle of one cell. */
export const TLS_FILE_BYTES_MAX: number = 1024 * 1024;
const AUTHORITIES_MAX = 64;
const CHAIN_MAX = 8;

/**
 * Checks all three files together, so that they are taken or refused as a whole.
 * @throws TlsMaterialError
 */
export function checkTlsMaterial(files: TlsFileContents, expected: TlsExpectation): TlsMaterial {
  const authorities = certificatesOf("the CA bundle", files.ca, AUTHORITIES_MAX);
  for (const authority of authorities) {
    if (!authority.ca) {
      throw new TlsMaterialError(
        `the CA bundle holds ${describe(authority)}, which is no certificate authority`,
      );
    }
  }
  const chain = certificatesOf("the certificate file", files.cert, CHAIN_MAX);
  const [leaf] = chain;
  if (leaf === undefined) throw new TlsMaterialError("the certificate file holds no certificate");
  checkKey(files.key, leaf);
  checkTime(leaf, expected.nowMs);
  checkIdentity(leaf, expected);
  const trusted = [...authorities, ...(expected.trustedBefore ?? [])];
  if (!leadsTo(trusted, leaf, chain.slice(1))) {
    throw new TlsMaterialError(
      `the certificate ${describe(leaf)} was signed by no authority of the CA bundle, neither of the new one nor of the one before`,
    );
  }
  const { key, cert } = files;
  const ca = Buffer.from(authorities.map((authority) => authority.toString()).join(""));
  try {
    usableContextOptions({ key, cert, ca });
  } catch (error) {
    throw new TlsMaterialError(`certificate and key cannot be used: ${messageOf(error)}`);
  }
  return {
    ...{ key, cert, ca, authorities },
    bundleHash: bundleHash(authorities),
    leafHash: sha256(leaf.raw).toString("hex"),
    leafNotAfterMs: leaf.validToDate.getTime(),
  };
}

/** See {@link TlsMaterial.bundleHash}. */
export function bundleHash(authorities: readonly X509Certificate[]): string {
  const fingerprints = [...new Set(authorities.map((authority) => sha256(authority.raw).toString("hex")))];
  return sha256(Buffer.from(fingerprints.sort().join(""), "hex")).toString("hex");
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

function certificatesOf(what: string, pem: Buffer, max: number): readonly X509Certificate[] {
  const blocks = pem.toString("latin1").match(PEM_CERTIFICATE) ?? [];
  if (blocks.length === 0) throw new TlsMaterialError(`${what} holds no PEM certificate`);
  if (blocks.length > max) {
    throw new TlsMaterialError(
      `${what} holds ${String(blocks.length)} certificates, more than ${String(max)}`,
    );
  }
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(block);
    } catch (error) {
      throw new TlsMaterialError(
        `certificate ${String(index + 1)} of ${what} cannot be read: ${messageOf(error)}`,
      );
    }
  });
}

function checkKey(pem: Buffer, leaf: X509Certificate): void {
  let fits: boolean;
  try {
    fits = leaf.checkPrivateKey(createPrivateKey(pem));
  } catch {
    // The reason could quote from the key.
    throw new TlsMaterialError("the key file holds no PEM private key that can be read without a passphrase");
  }
  if (!fits) throw new TlsMaterialError(`the key does not fit the certificate ${describe(leaf)}`);
}

function checkTime(leaf: X509Certificate, nowMs: number): void {
  if (nowMs > leaf.validToDate.getTime()) {
    throw new TlsMaterialError(
      `the certificate ${describe(leaf)} expired on ${leaf.validToDate.toISOString()}`,
    );
  }
  if (nowMs < leaf.validFromDate.getTime()) {
    throw new TlsMaterialError(
      `the certificate ${describe(leaf)} is valid only from ${leaf.validFromDate.toISOString()} on; is the clock right?`,
    );
  }
}

function checkIdentity(leaf: X509Certificate, { cellUid, memberName }: TlsExpectation): void {
  const verdict = readIdentity(leaf.subjectAltName, cellUid);
  if (!verdict.ok)
    throw new TlsMaterialError(`the certificate ${describe(leaf)} is not this member's: ${verdict.reason}`);
  const { kind, name } = verdict.identity;
  if (kind !== "member" || name !== memberName) {
    throw new TlsMaterialError(
      `the certificate ${describe(leaf)} is for ${kind}/${name}, and this is member/${memberName}`,
    );
  }
}

/** Whether signatures lead from the leaf, over the certificates that stand behind it, to somebody who is trusted. */
function leadsTo(
  trusted: readonly X509Certificate[],
  leaf: X509Certificate,
  intermediates: readonly X509Certificate[],
): boolean {
  let current = leaf;
  for (let steps = 0; steps <= intermediates.length; steps += 1) {
    const signedBy = (issuer: X509Certificate): boolean =>
      current.checkIssued(issuer) && current.verify(issuer.publicKey);
    if (trusted.some(signedBy)) return true;
    const next = intermediates.find((issuer) => issuer.ca && issuer !== current && signedBy(issuer));
    if (next === undefined) return false;
    current = next;
  }
  return false;
}

function describe(certificate: X509Certificate): string {
  return `${JSON.stringify(certificate.subject)} (serial ${certificate.serialNumber})`;
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
