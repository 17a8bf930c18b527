import assert from "node:assert/strict";
import { X509Certificate, createHash, generateKeyPairSync } from "node:crypto";
import { describe, it } from "node:test";
import { TestAuthority } from "@lockstep/gateway/testing/certificates";
import type { LeafOptions, TestCertificate } from "@lockstep/gateway/testing/certificates";
import { bundleHash, checkTlsMaterial } from "./tls-material.ts";
import type { TlsExpectation, TlsMaterial } from "./tls-material.ts";

const CELL = "cell-1";
const NOW_MS = Date.now();
const HOUR_MS = 3_600_000;
const authority = new TestAuthority("one");
const other = new TestAuthority("two");

function issue(from: TestAuthority = authority, options: LeafOptions = {}): TestCertificate {
  return from.issue({ uris: [`lockstep://${CELL}/member/m1`], ...options });
}

function check(
  files: { cert: string; key: string; ca?: string },
  expected: Partial<TlsExpectation> = {},
): TlsMaterial {
  const { cert, key, ca = authority.cert } = files;
  return checkTlsMaterial(
    { cert: Buffer.from(cert), key: Buffer.from(key), ca: Buffer.from(ca) },
    { cellUid: CELL, memberName: "m1", nowMs: NOW_MS, ...expected },
  );
}

describe("certificate files are taken whole or not at all", () => {
  it("taken: a leaf for this member, its key, and the authority that signed it", () => {
    const leaf = issue();
    const material = check(leaf);
    const { raw, validToDate } = new X509Certificate(leaf.cert);
    assert.equal(material.leafHash, createHash("sha256").update(raw).digest("hex"));
    assert.equal(material.leafNotAfterMs, validToDate.getTime());
  });

  it("taken: a leaf over an intermediate that stands behind it, but not without it", () => {
    const middle = new TestAuthority("middle", authority);
    const leaf = issue(middle);
    assert.ok(check({ ...leaf, cert: leaf.cert + middle.cert }));
    assert.throws(() => check(leaf), /signed by no authority/);
    const foreign = new TestAuthority("middle", other);
    assert.throws(() => check({ ...leaf, cert: leaf.cert + foreign.cert }), /signed by no authority/);
  });

  it("refused: what is no certificate, no key, or not all of it", () => {
    const leaf = issue();
    assert.throws(() => check({ ...leaf, cert: "" }), /certificate file holds no PEM certificate/);
    assert.throws(() => check({ ...leaf, ca: "what?" }), /CA bundle holds no PEM certificate/);
    const broken = leaf.cert.replace(/\n[A-Za-z0-9+/]{20}/, "\nAAAAAAAAAAAAAAAAAAAA");
    assert.throws(
      () => check({ ...leaf, cert: broken }),
      /certificate 1 of the certificate file cannot be read/,
    );
    assert.throws(
      () => check({ ...leaf, ca: authority.cert + broken }),
      /certificate 2 of the CA bundle cannot/,
    );
    assert.throws(() => check({ ...leaf, cert: leaf.cert.slice(0, 200) }), /holds no PEM certificate/);
    assert.throws(() => check({ ...leaf, key: "" }), /holds no PEM private key/);
    assert.throws(() => check({ ...leaf, key: leaf.key.slice(0, 60) }), /holds no PEM private key/);
    assert.throws(() => check({ ...leaf, ca: authority.cert.repeat(65) }), /65 certificates, more than 64/);
  });

  it("refused: a key of another certificate, and a leaf in the place of an authority", () => {
    const leaf = issue();
    assert.throws(() => check({ ...leaf, key: issue().key }), /the key does not fit/);
    const { privateKey } = generateKeyPairSync("ed25519");
    const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    assert.throws(() => check({ ...leaf, key: pem }), /the key does not fit/);
    assert.throws(() => check({ ...leaf, ca: authority.cert + leaf.cert }), /no certificate authority/);
  });

  it("refused: expired, and not valid yet", () => {
    const past = issue(authority, { notBeforeMs: NOW_MS - 2 * HOUR_MS, notAfterMs: NOW_MS - HOUR_MS });
    assert.throws(() => check(past), /expired on/);
    const future = issue(authority, { notBeforeMs: NOW_MS + HOUR_MS });
    assert.throws(() => check(future), /valid only from/);
    assert.ok(check(future, { nowMs: NOW_MS + 2 * HOUR_MS }));
  });

  it("refused: another cell, another member, another kind, nobody", () => {
    const named = (uri: string): TestCertificate => issue(authority, { uris: [uri] });
    assert.throws(() => check(named("lockstep://cell-2/member/m1")), /belongs to cell cell-2/);
    assert.throws(
      () => check(named(`lockstep://${CELL}/member/m2`)),
      /is for member\/m2, and this is member\/m1/,
    );
    assert.throws(() => check(named(`lockstep://${CELL}/admin/m1`)), /is for admin\/m1/);
    assert.throws(() => check(issue(authority, { uris: [] })), /carries no URI/);
  });

  it("signed by the new bundle or by the one before, and by nobody else", () => {
    const leaf = issue(other);
    assert.throws(() => check(leaf), /signed by no authority of the CA bundle/);
    assert.ok(check({ ...leaf, ca: other.cert }));
    const trustedBefore = [new X509Certificate(other.cert)];
    assert.ok(check(leaf, { trustedBefore }));
    // The same name with another key is another authority.
    assert.throws(() => check(issue(new TestAuthority("one"))), /signed by no authority/);
  });
});

it("a bundle's hash is that of the set, byte for byte as documented", () => {
  const one = new X509Certificate(authority.cert);
  const two = new X509Certificate(other.cert);
  const prints = [one, two].map(({ raw }) => createHash("sha256").update(raw).digest());
  const whole = Buffer.concat(prints.sort((a, b) => a.compare(b)));
  const expected = createHash("sha256").update(whole).digest("hex");
  assert.equal(bundleHash([one, two]), expected);
  assert.equal(bundleHash([two, one, two]), expected);
  assert.notEqual(bundleHash([one]), expected);
  assert.equal(check({ ...issue(), ca: `noise\n${other.cert}\n${authority.cert}` }).bundleHash, expected);
});
