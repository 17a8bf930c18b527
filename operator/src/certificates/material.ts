/** Certificates as found in Secrets, read with Node's own parser: the one that members use. */
import { createHash, createPrivateKey, X509Certificate } from "node:crypto";

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;
/** More are no bundle of one cell. */
const CERTIFICATES_MAX = 64;

/**
 * Reads the certificates of a PEM text, which may hold other things between them.
 * @throws TypeError that says what is wrong
 */
export function certificatesOf(pem: string): readonly X509Certificate[] {
  const blocks = pem.match(PEM_CERTIFICATE) ?? [];
  if (blocks.length === 0) throw new TypeError("there is no PEM certificate in it");
  if (blocks.length > CERTIFICATES_MAX) throw new TypeError(`it holds ${String(blocks.length)} certificates`);
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(block);
    } catch (cause) {
      throw new TypeError(`certificate ${String(index + 1)} cannot be read`, { cause });
    }
  });
}

/** SHA-256 of a certificate's DER, in lower-case hex: how members tell their leaf, and how authorities are named here. */
export function fingerprintOf(certificate: X509Certificate): string {
  return createHash("sha256").update(certificate.raw).digest("hex");
}

/**
 * How members tell which authorities they trust: SHA-256, in lower-case hex, over the 32-byte fingerprints of the
 * certificates, every one once, sorted bytewise, one after the other.
 *
 * @param fingerprints as {@link fingerprintOf} gives them
 */
export function bundleHashOf(fingerprints: readonly string[]): string {
  const sorted = [...new Set(fingerprints)].sort();
  return createHash("sha256")
    .update(Buffer.from(sorted.join(""), "hex"))
    .digest("hex");
}

/** A bundle: each certificate once, in the order of their fingerprints, so that equal sets are equal texts. */
export function bundlePem(certificates: readonly X509Certificate[]): string {
  const byFingerprint = new Map(certificates.map((certificate) => [fingerprintOf(certificate), certificate]));
  return [...byFingerprint.keys()]
    .sort()
    .map((fingerprint) => byFingerprint.get(fingerprint)?.toString() ?? "")
    .join("");
}

/** Who signed a certificate, out of these. @returns undefined: none of them */
export function signerOf(
  certificate: X509Certificate,
  authorities: readonly X509Certificate[],
): X509Certificate | undefined {
  return authorities.find(
    (authority) => certificate.checkIssued(authority) && certificate.verify(authority.publicKey),
  );
}

/** What a certificate is for. */
export interface ExpectedNames {
  readonly identity: string;
  readonly dnsNames: readonly string[];
}

/** Whether a certificate names this identity and no other, and all of these hosts. */
export function hasNames(certificate: X509Certificate, { identity, dnsNames }: ExpectedNames): boolean {
  const names = (certificate.subjectAltName ?? "").split(", ");
  const uris = names.filter((name) => name.startsWith("URI:"));
  return (
    uris.length === 1 &&
    uris[0] === `URI:${identity}` &&
    dnsNames.every((host) => names.includes(`DNS:${host}`))
  );
}

/** Whether a private key in PEM is that of a certificate; false, too, for what is no key. */
export function isKeyOf(pem: string, certificate: X509Certificate): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(pem));
  } catch {
    return false;
  }
}
