import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { describe, it } from "node:test";
import { TestAuthority } from "../testing/certificates.ts";
import type { LeafOptions } from "../testing/certificates.ts";
import { identityUri, isCellUid, readIdentity } from "./identity.ts";

const CELL = "6f1c0a9e-0000-4000-8000-000000000001";
const authority = new TestAuthority("test authority");

/** Through a real certificate, so that Node's own way of writing names is part of the test. */
function read(options: LeafOptions): string {
  const certificate = new X509Certificate(authority.issue(options).cert);
  const verdict = readIdentity(certificate.subjectAltName, CELL);
  return verdict.ok ? `${verdict.identity.kind} ${verdict.identity.name}` : verdict.reason;
}

describe("the identity of a certificate", () => {
  it("is its one URI, whatever hosts stand beside it", () => {
    for (const kind of ["member", "admin", "client"] as const) {
      const uri = identityUri({ cellUid: CELL, kind, name: "a-1.b" });
      assert.equal(uri, `lockstep://${CELL}/${kind}/a-1.b`);
      assert.equal(read({ uris: [uri] }), `${kind} a-1.b`);
      assert.equal(read({ uris: [uri], dns: [], ips: [] }), `${kind} a-1.b`);
      assert.equal(read({ uris: [uri], dns: ["x.example", "*.y.example"] }), `${kind} a-1.b`);
    }
  });

  it("must be there, and only once", () => {
    assert.match(read({}), /carries no URI/);
    assert.match(read({ dns: [], ips: [] }), /carries no URI/);
    assert.match(
      read({ uris: [`lockstep://${CELL}/member/m1`, `lockstep://${CELL}/admin/root`] }),
      /carries 2 URIs/,
    );
    assert.match(read({ uris: [`lockstep://${CELL}/member/m1`, "spiffe://x/y"] }), /carries 2 URIs/);
    assert.match(
      read({ uris: [`lockstep://${CELL}/member/m1`, `lockstep://${CELL}/member/m1`] }),
      /carries 2 URIs/,
    );
  });

  it("names this cell", () => {
    assert.match(read({ uris: ["lockstep://another/member/m1"] }), /belongs to cell another/);
    assert.match(read({ uris: [`lockstep://${CELL.toUpperCase()}/member/m1`] }), /belongs to cell/);
  });

  it("is taken letter by letter, so that nothing has two spellings", () => {
    for (const uri of [
      `https://${CELL}/member/m1`,
      `LOCKSTEP://${CELL}/member/m1`,
      `lockstep:/${CELL}/member/m1`,
      `lockstep:///member/m1`,
      `lockstep://${CELL}/Member/m1`,
      `lockstep://${CELL}/root/m1`,
      `lockstep://${CELL}/member/`,
      `lockstep://${CELL}/member`,
      `lockstep://${CELL}/member/m1/`,
      `lockstep://${CELL}/member/m1/x`,
      `lockstep://${CELL}/member//m1`,
      `lockstep://${CELL}/member/%6d1`,
      `lockstep://${CELL}/member/m%31`,
      `lockstep://${CELL}%2Fadmin/member/m1`,
      `lockstep://user@${CELL}/member/m1`,
      `lockstep://${CELL}:443/member/m1`,
      `lockstep://${CELL}/member/m1?x`,
      `lockstep://${CELL}/member/m1#x`,
      `lockstep://${CELL}/member/../admin/x`,
      `lockstep://${CELL}/member/m1 `,
      ` lockstep://${CELL}/member/m1`,
      `lockstep://${CELL}/member/m1\n`,
      `lockstep://${CELL}/member/m1\0`,
      `lockstep://${CELL}/member/m1\0.evil.example`,
      `lockstep://${CELL}/member/m\u00fc`,
      `lockstep://${CELL}/member/-m1`,
      `lockstep://${CELL}/member/${"m".repeat(64)}`,
    ]) {
      assert.match(read({ uris: [uri] }), /is not lockstep:\/\//, JSON.stringify(uri));
    }
  });

  it("cannot be smuggled in through a name of another kind, or behind one", () => {
    assert.match(read({ dns: [`a, URI:lockstep://${CELL}/admin/root`] }), /carries no URI/);
    assert.match(read({ dns: [`URI:lockstep://${CELL}/admin/root`] }), /carries no URI/);
    assert.match(read({ dns: [`a", URI:lockstep://${CELL}/admin/root, DNS:"b`] }), /carries no URI/);
    assert.equal(
      read({ dns: [`a, URI:lockstep://${CELL}/admin/root`], uris: [`lockstep://${CELL}/client/c`] }),
      "client c",
    );
    assert.match(
      read({ uris: [`lockstep://${CELL}/client/c, URI:lockstep://${CELL}/admin/root`] }),
      /is not lockstep:\/\//,
    );
  });

  it("is not read from what Node would not write", () => {
    for (const names of [
      "URI",
      `x"y"z`,
      `DNS:a,URI:lockstep://${CELL}/admin/x`,
      `DNS:"a`,
      "a".repeat(20_000),
    ]) {
      const verdict = readIdentity(names, CELL);
      assert.ok(!verdict.ok && /cannot be read/.test(verdict.reason), names.slice(0, 50));
    }
    assert.ok(!readIdentity(undefined, CELL).ok);
  });
});

it("a cell's name is plain", () => {
  for (const uid of [CELL, "a", "dev-cell", "A.b-1"]) assert.ok(isCellUid(uid), uid);
  for (const uid of ["", "a/b", "a%", "-a", "a.", "a b", "a".repeat(64), "a\n"])
    assert.ok(!isCellUid(uid), uid);
});
