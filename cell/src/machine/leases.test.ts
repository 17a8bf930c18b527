import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LIMITS } from "@lockstep/gateway/coordinator";
import type { Term } from "../raft/types.ts";
import { DEFAULT_SETTINGS } from "./index.ts";
import { bytes, command, get, lease, Member, put, remove, string, txn } from "./testing/harness.ts";

const grant = (id?: number | string, ttlMs = 10_000) =>
  id === undefined
    ? ({ kind: "lease-grant", ttlMs } as const)
    : ({ kind: "lease-grant", ttlMs, leaseId: lease(id) } as const);
const revoke = (id: number | string) => ({ kind: "lease-revoke", leaseId: lease(id) }) as const;
const on = (id: number | string) => ({ leaseId: lease(id) });
const expire = (leaderTerm: number, ...ids: (number | string)[]) =>
  ({ kind: "expire", namespaceId: 1, leaderTerm: leaderTerm as Term, leaseIds: ids.map(lease) }) as const;

const attached = (member: Member, id: number | string): string[] =>
  member.machine.leaseKeys(1, lease(id), member.store).map(string);

describe("3e leases", () => {
  it("A9: a short TTL is raised, a too long one refused, an id is granted once at a time", () => {
    const member = new Member();
    assert.equal(member.do(grant(5, 1)).ttlMs, LIMITS.leaseTtlMsMin);
    assert.equal(member.refused(grant(5)).code, "lease-exists");
    assert.equal(member.refused(grant(6, LIMITS.leaseTtlMsMax + 1)).code, "invalid-argument");
    assert.equal(member.machine.revision, 1);
    member.do(revoke(5));
    assert.equal(member.do(grant(5)).leaseId, "5");
  });

  it("ids that the cell chooses step over chosen ones and are never given twice", () => {
    const member = new Member();
    member.do(grant(2));
    const ids = [member.do(grant()).leaseId, member.do(grant()).leaseId];
    member.do(revoke("3"));
    member.restart();
    ids.push(member.do(grant()).leaseId);
    assert.deepEqual(ids, ["1", "3", "4"]);
  });

  it("ids beyond 2^53 keep every digit", () => {
    const member = new Member();
    const id = "9223372036854775807";
    member.do(grant(id));
    member.do(put("a", "v", on(id)));
    member.restart();
    assert.equal(member.range(get("a")).kvs[0]!.leaseId, id);
    assert.deepEqual(attached(member, id), ["a"]);
  });

  it("revoking removes all keys in one revision, in key order, with the cause", () => {
    const member = new Member();
    member.do(grant(7));
    for (const key of ["c", "a", "e", "b", "d"]) member.do(put(key, "v", on(7)));
    const result = member.do(revoke(7));
    assert.deepEqual([result.revision, result.deleted], [7, 5]);
    const last = member.events.at(-1)!;
    assert.equal(last.revision, 7);
    assert.deepEqual(
      last.events.map((e) => [e.kind, string(e.kv.key), e.cause, e.previousRevision]),
      [
        ["delete", "a", "lease-revoked", 3],
        ["delete", "b", "lease-revoked", 5],
        ["delete", "c", "lease-revoked", 2],
        ["delete", "d", "lease-revoked", 6],
        ["delete", "e", "lease-revoked", 4],
      ],
    );
    assert.equal(member.refused(revoke(7)).code, "lease-not-found");
    assert.equal(member.store.scan("lease-keys", { from: bytes("\0"), limit: 10 }).length, 0);
  });

  it("revoking a lease without keys leaves the revision", () => {
    const member = new Member();
    member.do(grant(7));
    assert.deepEqual(member.do(revoke(7)), { kind: "lease-revoke", revision: 1, deleted: 0 });
    assert.deepEqual(member.leaseChanges.at(-1), {
      kind: "ended",
      namespaceId: 1,
      leaseId: "7",
      cause: "lease-revoked",
      revision: 1,
    });
  });

  it("A8: a put moves the key to its lease; without one it detaches the key", () => {
    const member = new Member();
    member.do(grant(1));
    member.do(grant(2));
    member.do(put("moved", "v", on(1)));
    member.do(put("moved", "v", on(2)));
    member.do(put("freed", "v", on(1)));
    member.do(put("freed"));
    assert.deepEqual([attached(member, 1), attached(member, 2)], [[], ["moved"]]);
    assert.equal(member.do(revoke(1)).deleted, 0);
    assert.equal(member.do(revoke(2)).deleted, 1);
    assert.equal(member.range(get("freed")).count, 1);
  });

  it("all of it holds within one entry: attached, moved, deleted, re-granted and ended together", () => {
    const member = new Member();
    const outcomes = member.together([
      grant(1),
      grant(2),
      put("a", "v", on(1)),
      put("b", "v", on(1)),
      put("c", "v", on(1)),
      put("b", "v", on(2)),
      remove("c"),
      revoke(1),
      grant(1),
      put("c", "v", on(1)),
      put("a", "w", on(1)),
      revoke(1),
      txn({ success: [get("", "")] }),
    ]);
    const results = outcomes.map((o) => (o.ok ? o.result : undefined));
    assert.deepEqual(results[7], { kind: "lease-revoke", revision: 7, deleted: 1 });
    assert.deepEqual(results[11], { kind: "lease-revoke", revision: 10, deleted: 2 });
    assert.deepEqual(attached(member, 2), ["b"]);
    assert.equal(member.range(get("", "")).count, 1);
    assert.equal(member.machine.namespace(1)!.keys, 1);
  });

  it("a lease holds no more keys than allowed; a key that it holds already is no further one", () => {
    const settings = { ...DEFAULT_SETTINGS, limits: { ...LIMITS, keysPerLeaseMax: 2 } };
    const member = new Member({ settings });
    member.do(grant(1));
    member.do(put("a", "v", on(1)));
    assert.equal(
      member.refused(txn({ success: [put("b", "v", on(1)), put("c", "v", on(1))] })).code,
      "too-many-keys",
    );
    member.do(put("b", "v", on(1)));
    assert.equal(member.refused(put("c", "v", on(1))).code, "too-many-keys");
    assert.equal(member.do(put("b", "w", on(1))).version, 2);
    assert.equal(member.range(get("c")).count, 0);
  });

  it("an expiry of a deposed leader ends nothing (B3)", () => {
    const member = new Member();
    member.do(grant(1));
    member.term = 4 as Term;
    member.entry([expire(3, 1)]);
    assert.notEqual(member.machine.lease(1, lease(1), member.store), undefined);
    member.entry([expire(4, 1, 99)]);
    assert.equal(member.machine.lease(1, lease(1), member.store), undefined);
  });

  it("each lease of one expiry has a revision of its own, if it held keys", () => {
    const member = new Member();
    for (const id of [1, 2, 3]) member.do(grant(id));
    member.do(put("a", "v", on(1)));
    member.do(put("c", "v", on(3)));
    const applied = member.entry([expire(1, 1, 2, 3)]);
    assert.deepEqual(applied.entries[0]!.outcomes, [{ ok: true, result: undefined, replayed: false }]);
    assert.deepEqual(
      applied.events.map((e) => [e.revision, string(e.events[0]!.kv.key), e.events[0]!.cause]),
      [
        [4, "a", "lease-expired"],
        [5, "c", "lease-expired"],
      ],
    );
    assert.deepEqual(
      applied.leaseChanges.map((c) => c.kind === "ended" && [c.leaseId, c.revision]),
      [
        ["1", 4],
        ["2", 4],
        ["3", 5],
      ],
    );
  });

  it("checkpoints survive a restart, and are cleared by a zero", () => {
    const member = new Member();
    member.do({ ...grant(1), owner: "höst/7" });
    const checkpoint = (remainingMs: number) =>
      member.entry([
        {
          kind: "checkpoint",
          namespaceId: 1,
          leaderTerm: 1 as Term,
          leases: [
            { leaseId: lease(1), remainingMs },
            { leaseId: lease(2), remainingMs },
          ],
        },
      ]);
    assert.equal(checkpoint(1234).leaseChanges.length, 1);
    member.restart();
    assert.deepEqual(member.machine.scanLeases(undefined, 10, member.store), [
      { namespaceId: 1, leaseId: "1", ttlMs: 10_000, checkpointMs: 1234, owner: "höst/7" },
    ]);
    checkpoint(0);
    assert.equal(member.machine.lease(1, lease(1), member.store)!.checkpointMs, 0);
  });

  it("leases are listed in id order, in pages", () => {
    const member = new Member();
    for (const id of ["10", "9", "9007199254740993", "100"]) member.do(grant(id));
    const first = member.machine.listLeases(1, { kind: "lease-list", limit: 3 }, member.store);
    assert.deepEqual([first.leases.map((l) => l.leaseId), first.more], [["9", "10", "100"], true]);
    const rest = member.machine.listLeases(1, { kind: "lease-list", after: lease(100) }, member.store);
    assert.deepEqual([rest.leases.map((l) => l.leaseId), rest.more], [["9007199254740993"], false]);
    const slice = member.machine.scanLeases({ namespaceId: 1, leaseId: lease(10) }, 1, member.store);
    assert.deepEqual(
      slice.map((l) => l.leaseId),
      ["100"],
    );
  });

  it("B26: a lease with the largest number of keys ends in one revision", () => {
    const member = new Member();
    member.do(grant(1));
    const keys = Array.from({ length: LIMITS.keysPerLeaseMax }, (_, i) => `k${String(i).padStart(5, "0")}`);
    member.entry(keys.map((key) => command(put(key, "", on(1)))));
    assert.equal(member.refused(put("one more", "", on(1))).code, "too-many-keys");
    const { deleted } = member.do(revoke(1));
    assert.equal(deleted, LIMITS.keysPerLeaseMax);
    assert.equal(member.machine.namespace(1)!.keys, 0);
  });
});
