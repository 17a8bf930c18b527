/**
 * Throw-away certificate authorities for tests: X.509 version 3 with P-256 keys, written byte by byte so that nothing
 * has to be installed and a test may put into a certificate what no honest issuer would.
 */
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { isIPv4 } from "node:net";

/** PEM. */
export interface TestCertificate {
  readonly key: string;
  readonly cert: string;
}

export interface LeafOptions {
  readonly commonName?: string;
  /** Alternative names: host names, literal IPv4 addresses, URIs. Default: localhost and 127.0.0.1, no URI. */
  readonly dns?: readonly string[];
  readonly ips?: readonly string[];
  readonly uris?: readonly string[];
  /** Milliseconds since 1970. Default: from an hour ago to a day from now. */
  readonly notBeforeMs?: number;
  readonly notAfterMs?: number;
  /** Its key. Default: a fresh one. */
  readonly keys?: KeyPair;
}

export interface KeyPair {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

const HOUR_MS = 60 * 60 * 1000;

export class TestAuthority {
  /** PEM. */
  readonly cert: string;
  readonly #name: Buffer;
  readonly #keys: KeyPair;

  /** @param issuer who signs it; default: it signs itself */
  constructor(commonName: string, issuer?: TestAuthority) {
    this.#keys = makeKeys();
    this.#name = distinguishedName(commonName);
    const { publicKey } = this.#keys;
    this.cert = certificate({
      publicKey,
      subject: this.#name,
      issuerName: (issuer ?? this).#name,
      issuerKeys: (issuer ?? this).#keys,
      validity: [Date.now() - HOUR_MS, Date.now() + 48 * HOUR_MS],
      extensions: [
        extension(OID.basicConstraints, true, sequence(boolean(true))),
        // keyCertSign and cRLSign
        extension(OID.keyUsage, true, tlv(0x03, Buffer.of(1, 0x06))),
      ],
    });
  }

  issue(options: LeafOptions = {}): TestCertificate {
    const { dns = ["localhost"], ips = ["127.0.0.1"], uris = [] } = options;
    const keys = options.keys ?? makeKeys();
    const names = [
      ...dns.map((name) => tlv(0x82, Buffer.from(name, "latin1"))),
      ...ips.map((ip) => tlv(0x87, addressBytes(ip))),
      ...uris.map((uri) => tlv(0x86, Buffer.from(uri, "latin1"))),
    ];
    const cert = certificate({
      publicKey: keys.publicKey,
      subject: distinguishedName(options.commonName ?? "leaf"),
      issuerName: this.#name,
      issuerKeys: this.#keys,
      validity: [
        options.notBeforeMs ?? Date.now() - HOUR_MS,
        options.notAfterMs ?? Date.now() + 24 * HOUR_MS,
      ],
      extensions: [
        // digitalSignature
        extension(OID.keyUsage, true, tlv(0x03, Buffer.of(7, 0x80))),
        extension(OID.extendedKeyUsage, false, sequence(oid(OID.serverAuth), oid(OID.clientAuth))),
        ...(names.length === 0 ? [] : [extension(OID.subjectAltName, false, sequence(...names))]),
      ],
    });
    return { cert, key: keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString() };
  }
}

export function makeKeys(): KeyPair {
  return generateKeyPairSync("ec", { namedCurve: "prime256v1" });
}

const OID = {
  ecdsaWithSha256: [1, 2, 840, 10045, 4, 3, 2],
  commonName: [2, 5, 4, 3],
  subjectKeyIdentifier: [2, 5, 29, 14],
  keyUsage: [2, 5, 29, 15],
  subjectAltName: [2, 5, 29, 17],
  basicConstraints: [2, 5, 29, 19],
  authorityKeyIdentifier: [2, 5, 29, 35],
  extendedKeyUsage: [2, 5, 29, 37],
  serverAuth: [1, 3, 6, 1, 5, 5, 7, 3, 1],
  clientAuth: [1, 3, 6, 1, 5, 5, 7, 3, 2],
} as const;

interface Content {
  readonly publicKey: KeyObject;
  readonly subject: Buffer;
  readonly issuerName: Buffer;
  readonly issuerKeys: KeyPair;
  readonly validity: readonly [number, number];
  readonly extensions: readonly Buffer[];
}

/** RFC 5280, section 4.1. */
function certificate(content: Content): string {
  const algorithm = sequence(oid(OID.ecdsaWithSha256));
  const [notBefore, notAfter] = content.validity;
  const body = sequence(
    tlv(0xa0, tlv(0x02, Buffer.of(2))),
    // Positive, and without a superfluous zero in front.
    tlv(0x02, Buffer.concat([Buffer.of(0x40), randomBytes(15)])),
    algorithm,
    content.issuerName,
    sequence(time(notBefore), time(notAfter)),
    content.subject,
    spki(content.publicKey),
    tlv(
      0xa3,
      sequence(
        ...content.extensions,
        extension(OID.subjectKeyIdentifier, false, tlv(0x04, keyId(content.publicKey))),
        extension(
          OID.authorityKeyIdentifier,
          false,
          sequence(tlv(0x80, keyId(content.issuerKeys.publicKey))),
        ),
      ),
    ),
  );
  const signature = sign("sha256", body, content.issuerKeys.privateKey);
  const der = sequence(body, algorithm, tlv(0x03, Buffer.concat([Buffer.of(0), signature])));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

function spki(key: KeyObject): Buffer {
  return key.export({ type: "spki", format: "der" });
}

function keyId(key: KeyObject): Buffer {
  return createHash("sha256").update(spki(key)).digest().subarray(0, 20);
}

function distinguishedName(commonName: string): Buffer {
  const attribute = sequence(oid(OID.commonName), tlv(0x0c, Buffer.from(commonName, "utf8")));
  return sequence(tlv(0x31, attribute));
}

function extension(id: readonly number[], critical: boolean, value: Buffer): Buffer {
  return sequence(oid(id), ...(critical ? [boolean(true)] : []), tlv(0x04, value));
}

/** UTCTime or GeneralizedTime. */
function time(ms: number): Buffer {
  const digits = new Date(ms)
    .toISOString()
    .replace(/\.\d+Z$/, "Z")
    .replace(/[-:T]/g, "");
  // Years up to 2049 must be written with two digits.
  return Number(digits.slice(0, 4)) < 2050
    ? tlv(0x17, Buffer.from(digits.slice(2), "latin1"))
    : tlv(0x18, Buffer.from(digits, "latin1"));
}

function addressBytes(ip: string): Buffer {
  if (!isIPv4(ip)) throw new TypeError(`${ip} is not an IPv4 address`);
  return Buffer.from(ip.split(".").map(Number));
}

function boolean(value: boolean): Buffer {
  return tlv(0x01, Buffer.of(value ? 0xff : 0));
}

function oid(numbers: readonly number[]): Buffer {
  const [first = 0, second = 0, ...rest] = numbers;
  const bytes = [first * 40 + second];
  for (const number of rest) {
    const septets = [number & 0x7f];
    for (let left = number >>> 7; left > 0; left >>>= 7) septets.unshift((left & 0x7f) | 0x80);
    bytes.push(...septets);
  }
  return tlv(0x06, Buffer.from(bytes));
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tlv(0x30, Buffer.concat(parts));
}

function tlv(tag: number, value: Buffer): Buffer {
  const { length } = value;
  const head = length < 0x80 ? [tag, length] : [tag, 0x82, length >>> 8, length & 0xff];
  // Two bytes of length hold for whatever a certificate of a test contains, but must not be more than needed.
  if (length >= 0x80 && length < 0x100) head.splice(1, 3, 0x81, length);
  return Buffer.concat([Buffer.from(head), value]);
}
