import assert from "node:assert/strict";
import { it } from "node:test";
import type { IdentityKind } from "@lockstep/gateway";
import { admin } from "@lockstep/proto";
import { authorizeAdmin, readPeer } from "./tls-access.ts";

const METHODS = Object.entries(admin.AdminService);
/** What a member may call; of these, AddLearner under its own name only. */
const FOR_MEMBERS = ["status", "listMembers", "addLearner"];

function verdict(kind: IdentityKind, path: string, request?: Buffer): string | undefined {
  return authorizeAdmin({ path, identity: { cellUid: "c", kind, name: "m1" }, request });
}

function joining(name: string): Buffer {
  const request = { name, incarnation: "", addresses: undefined, plannedOn: 0, cellId: "" };
  return Buffer.from(admin.AddLearnerRequest.encode(request).finish());
}

it("administrators may call everything, members what joining needs, applications nothing", () => {
  assert.ok(METHODS.length >= FOR_MEMBERS.length);
  for (const [method, { path }] of METHODS) {
    assert.equal(verdict("admin", path), undefined, method);
    assert.match(verdict("client", path) ?? "", /application/, method);
    const asMember = verdict("member", path, joining("m1"));
    assert.equal(asMember === undefined, FOR_MEMBERS.includes(method), method);
  }
});

it("a member joins under its own name only", () => {
  const { path } = admin.AdminService.addLearner;
  assert.equal(verdict("member", path, joining("m1")), undefined);
  for (const name of ["m2", "M1", "m1.", "", " m1"]) {
    assert.match(verdict("member", path, joining(name)) ?? "", /under its own name/, name);
  }
  for (const request of [undefined, Buffer.from([0x0a, 0x7f])]) {
    assert.match(verdict("member", path, request) ?? "", /under its own name/);
  }
});

it("a peer is a member of this cell", () => {
  const read = (alternativeNames: string): string => {
    const proved = readPeer({ commonName: "m1", alternativeNames }, "c");
    return proved.ok ? proved.name : proved.reason;
  };
  assert.equal(read("DNS:x, URI:lockstep://c/member/m1"), "m1");
  assert.match(read("URI:lockstep://c/admin/m1"), /not for a member/);
  assert.match(read("URI:lockstep://c/client/m1"), /not for a member/);
  assert.match(read("URI:lockstep://d/member/m1"), /belongs to cell d/);
  assert.match(read("DNS:m1"), /carries no URI/);
  assert.ok(!readPeer(undefined, "c").ok);
});
