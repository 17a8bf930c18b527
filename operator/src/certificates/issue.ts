/** Makes authorities and certificates: ECDSA on P-256, which every TLS 1.3 peer must speak. */
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import { createPrivateKey, createPublicKey, randomBytes } from "node:crypto";
import type { webcrypto } from "node:crypto";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
/** Certificates begin to be valid this much before they are made, for peers whose clocks are behind. */
const BACKDATED_MS = 5 * 60_000;

/** PEM. */
export interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

export interface AuthorityRequest {
  /** In the subject, so that people can tell whose it is. */
  readonly cellUid: string;
  readonly nowMs: number;
  readonly durationMs: number;
}

/** A new authority, which signs certificates but no other authority. */
export async function createAuthority({ cellUid, nowMs, durationMs }: AuthorityRequest): Promise<KeyPair> {
  const keys = await generateKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    // Of its own for each, because two authorities of one cell are trusted at once while they follow each other.
    name: [{ CN: [`lockstep-ca ${cellUid} ${randomBytes(4).toString("hex")}`.slice(-64)] }],
    ...validity(nowMs, durationMs),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate: pemOf(certificate), key: await privateKeyPem(keys.privateKey) };
}

export interface LeafRequest {
  /** `lockstep://CELL-UID/KIND/NAME`: the one URI of the certificate. */
  readonly identity: string;
  /** Host names; empty for those who only call. */
  readonly dnsNames: readonly string[];
  /** Whether it is to be served with, too. */
  readonly isServer: boolean;
  readonly nowMs: number;
  /** Cut to the authority's own end. */
  readonly durationMs: number;
}

/**
 * A new key and a certificate for it.
 * @throws RangeError when the authority has expired, TypeError when its key is of another kind
 */
export async function issueLeaf(authority: KeyPair, request: LeafRequest): Promise<KeyPair> {
  const { identity, dnsNames, isServer, nowMs, durationMs } = request;
  const issuer = new x509.X509Certificate(authority.certificate);
  const { notBefore, notAfter } = validity(nowMs, durationMs);
  if (issuer.notAfter.getTime() <= nowMs) {
    throw new RangeError(`the authority ${issuer.subject} expired on ${issuer.notAfter.toISOString()}`);
  }
  const keys = await generateKeys();
  const usages = [x509.ExtendedKeyUsage.clientAuth, ...(isServer ? [x509.ExtendedKeyUsage.serverAuth] : [])];
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serialNumber(),
    subject: [{ CN: [(identity.split("/").at(-1) ?? "").slice(0, 64)] }],
    issuer: issuer.subjectName,
    notBefore,
    notAfter: new Date(Math.min(notAfter.getTime(), issuer.notAfter.getTime())),
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey: await importPrivateKey(authority.key),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(usages),
      new x509.SubjectAlternativeNameExtension([
        { type: "url", value: identity },
        ...dnsNames.map((value) => ({ type: "dns" as const, value })),
      ]),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  return { certificate: pemOf(certificate), key: await privateKeyPem(keys.privateKey) };
}

function validity(nowMs: number, durationMs: number): { readonly notBefore: Date; readonly notAfter: Date } {
  return { notBefore: new Date(nowMs - BACKDATED_MS), notAfter: new Date(nowMs + durationMs) };
}

/** 127 random bits, positive and without a leading zero. */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString("hex");
}

async function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
}

function pemOf(certificate: x509.X509Certificate): string {
  return `${certificate.toString("pem").trim()}\n`;
}

async function privateKeyPem(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await crypto.subtle.exportKey("pkcs8", key));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN PRIVATE KEY-----\n${lines.join("\n")}\n-----END PRIVATE KEY-----\n`;
}

async function importPrivateKey(pem: string): Promise<webcrypto.CryptoKey> {
  const key = createPrivateKey(pem);
  if (
    key.asymmetricKeyType !== "ec" ||
    createPublicKey(key).asymmetricKeyDetails?.namedCurve !== "prime256v1"
  ) {
    throw new TypeError("the authority's key is not one of the curve P-256");
  }
  const der = key.export({ format: "der", type: "pkcs8" });
  return crypto.subtle.importKey("pkcs8", new Uint8Array(der), ALGORITHM, false, ["sign"]);
}
