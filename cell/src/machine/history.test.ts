import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { bytes, get, Member, put, remove, revision, string, txn } from "./testing/harness.ts";
import type { RetentionPolicy } from "./types.ts";

describe("history for watches", () => {
  const page = (member: Member, from: number, limit: number) =>
    member.machine.history(
      { namespaceId: 1, from: revision(from), to: member.machine.revision, limit },
      member.store,
    );

  it("a page never splits a revision, and says where the next one begins", () => {
    const member = new Member();
    member.do(txn({ success: ["a", "b", "c", "d", "e"].map((key) => put(key)) }));
    member.do(put("f"));
    const first = page(member, 1, 2);
    assert.deepEqual(
      first.events.map((r) => [r.revision, r.events.length]),
      [[2, 5]],
    );
    assert.equal(first.next, 3);
    const second = page(member, 3, 2);
    assert.deepEqual([second.events.length, second.next], [1, 4]);
    assert.deepEqual(page(member, 4, 2), { events: [], next: 4 });
  });

  it("revisions of others are gaps: the answer covers them", () => {
    const member = new Member();
    member.do(put("a"));
    assert.equal(page(member, 1, 10).next, 3);
    assert.deepEqual(page(member, 100, 10), { events: [], next: 100 });
  });

  it("A14: the state before a change is there while it is retained", () => {
    const member = new Member();
    member.do(put("a", "1"));
    member.do(put("a", "2"));
    member.do(remove("a"));
    const events = page(member, 1, 10).events.flatMap((r) => r.events);
    assert.deepEqual(
      events.map((e) => e.previousRevision),
      [0, 2, 3],
    );
    const before = (at: number): string | undefined => {
      const kv = member.machine.stateAt(1, bytes("a"), revision(at), member.store);
      return kv === undefined ? undefined : string(kv.value);
    };
    assert.deepEqual([before(1), before(2), before(3), before(4)], [undefined, "1", "2", undefined]);
    member.do({ kind: "compact", revision: revision(3) });
    assert.deepEqual([before(2), before(3)], [undefined, "2"]);
    member.compactPhysically();
    assert.deepEqual([before(2), before(3)], [undefined, "2"]);
  });
});

describe("retention", () => {
  const due = (member: Member, policy: RetentionPolicy): number | undefined =>
    member.machine.retentionDue(1, policy, member.store);
  const retain = (member: Member, at: number): void => {
    member.entry([{ kind: "retain", namespaceId: 1, compactRevision: revision(at) }]);
  };

  it("nothing is due without bounds, or within them", () => {
    const member = new Member();
    for (let i = 0; i < 5; i++) member.do(put("a"));
    assert.equal(due(member, {}), undefined);
    assert.equal(due(member, { ageMs: 1000, revisions: 100, bytes: 10_000 }), undefined);
  });

  it("by age: the state as of the age stays readable", () => {
    const member = new Member();
    for (let i = 0; i < 5; i++) {
      member.do(put("a", String(i)));
      member.timeMs += 100;
    }
    // Revisions 2 to 6 were made at 0, 100, ... 400; now is 500.
    member.do(put("b"));
    assert.equal(due(member, { ageMs: 250 }), 4);
    assert.equal(due(member, { ageMs: 300 }), 4);
    assert.equal(due(member, { ageMs: 500 }), 2);
    assert.equal(due(member, { ageMs: 501 }), undefined);
    retain(member, 4);
    assert.equal(due(member, { ageMs: 250 }), undefined);
    assert.equal(string(member.range(get("a", undefined, { revision: revision(4) })).kvs[0]!.value), "2");
  });

  it("by revisions", () => {
    const member = new Member();
    for (let i = 0; i < 10; i++) member.do(put("a"));
    assert.equal(due(member, { revisions: 4 }), 7);
    assert.equal(due(member, { revisions: 10 }), 1);
    assert.equal(due(member, { revisions: 11 }), undefined);
  });

  it("by bytes of superseded history: the smallest point that suffices", () => {
    const member = new Member();
    for (let i = 0; i < 50; i++) member.do(put("a", "x".repeat(100)));
    const liveBytes = member.machine.namespace(1)!.historyBytes / 50;
    const at = due(member, { bytes: 1500 })!;
    retain(member, at);
    const left = member.machine.namespace(1)!.historyBytes - liveBytes;
    assert.ok(left <= 1500 && left > 1300, String(left));
    assert.equal(due(member, { bytes: 1500 }), undefined);
  });

  it("bytes of live keys are not history: they force no compaction", () => {
    const member = new Member();
    for (let i = 0; i < 50; i++) member.do(put(`k${i}`, "x".repeat(100)));
    assert.equal(due(member, { bytes: 0 }), undefined);
    member.do(remove("k1"));
    member.do(put("z"));
    assert.equal(due(member, { bytes: 0 }), 53);
  });

  it("a proposal at or below the point, or beyond the newest revision, does no harm", () => {
    const member = new Member();
    for (let i = 0; i < 4; i++) member.do(put("a"));
    retain(member, 3);
    retain(member, 2);
    assert.equal(member.machine.namespace(1)!.compactRevision, 3);
    retain(member, 99);
    assert.equal(member.machine.namespace(1)!.compactRevision, 5);
  });

  it("a slice is bounded, and compaction resumes where a restart cut it", () => {
    const member = new Member();
    for (let i = 0; i < 30; i++) member.do(put("a"));
    retain(member, member.machine.revision);
    let slices = 0;
    for (let done = false; !done; slices++) {
      const slice = member.machine.compactSlice(member.store, 4);
      assert.ok(slice.mutations.length <= 4 + 1);
      member.write(slice.mutations);
      member.restart();
      done = slice.done;
    }
    assert.ok(slices >= 8);
    assert.equal(member.store.scan("history", { from: bytes("\0"), limit: 100 }).length, 1);
  });
});
