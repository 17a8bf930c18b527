import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LIMITS } from "@lockstep/gateway/coordinator";
import { InvariantError } from "../invariant.ts";
import type { LogIndex, Term } from "../raft/types.ts";
import { DEFAULT_SETTINGS } from "./index.ts";
import { bytes, get, Member, put, remove, revision, string, txn } from "./testing/harness.ts";

const keysOf = (kvs: readonly { readonly key: Uint8Array }[]): string[] => kvs.map((kv) => string(kv.key));

describe("3a revisions and ranges", () => {
  it("A1: an empty cell is at revision 1; only a change of a key advances it", () => {
    const member = new Member();
    assert.deepEqual(member.range(get("a")), { kind: "range", revision: 1, kvs: [], count: 0, more: false });
    assert.equal(member.do(put("a")).revision, 2);
    assert.deepEqual(member.do(remove("absent")), { kind: "delete", revision: 2, deleted: 0, previous: [] });
    assert.equal(member.do(txn({ success: [get("a")] })).revision, 2);
    const both = member.do(txn({ success: [put("a"), put("b")] }));
    assert.equal(both.revision, 3);
    const last = member.events.at(-1)!;
    assert.deepEqual([last.revision, keysOf(last.events.map((e) => e.kv))], [3, ["a", "b"]]);
    assert.deepEqual(
      member.range(get("a", "c")).kvs.map((kv) => kv.modRevision),
      [3, 3],
    );
  });

  it("A2: after a delete the key begins anew, and is absent at the deletion's revision", () => {
    const member = new Member();
    member.do(put("a", "1"));
    const { revision: deletedAt } = member.do(remove("a"));
    const again = member.do(put("a", "2"));
    assert.deepEqual([again.createRevision, again.version], [again.revision, 1]);
    assert.equal(member.range(get("a", undefined, { revision: deletedAt })).count, 0);
    assert.equal(string(member.range(get("a", undefined, { revision: revision(2) })).kvs[0]!.value), "1");
  });

  it("A3: limit cuts the answer, says so, and counts everything", () => {
    const member = new Member();
    for (let i = 0; i < 10; i++) member.do(put(`k${i}`));
    const cut = member.range(get("k", "l", { limit: 3 }));
    assert.deepEqual([keysOf(cut.kvs), cut.count, cut.more], [["k0", "k1", "k2"], 10, true]);
    assert.equal(member.range(get("k", "l", { limit: 10 })).more, false);
    const counted = member.range(get("k", "l", { countOnly: true, limit: 1 }));
    assert.deepEqual([counted.count, counted.kvs.length, counted.more], [10, 0, false]);
    const back = member.range(get("k", "l", { limit: 2, reverse: true }));
    assert.deepEqual(keysOf(back.kvs), ["k9", "k8"]);
    const bare = member.range(get("k", "l", { keysOnly: true, limit: 1 }));
    assert.equal(bare.kvs[0]!.value.length, 0);
  });

  it("an empty range end reaches to the end; an end at or before the key holds nothing", () => {
    const member = new Member();
    for (const key of ["a", "b", "c"]) member.do(put(key));
    assert.deepEqual(keysOf(member.range(get("b", "")).kvs), ["b", "c"]);
    assert.equal(member.range(get("", "")).count, 3);
    assert.equal(member.range(get("b", "b")).count, 0);
    assert.equal(member.range(get("c", "a")).count, 0);
  });

  it("keys are ordered as unsigned bytes", () => {
    const member = new Member();
    for (const byte of [0xff, 0x00, 0x80, 0x7f]) {
      member.do({ kind: "put", key: new Uint8Array([byte]), value: bytes("") });
    }
    const all = member.range({ kind: "range", range: { key: bytes(""), rangeEnd: bytes("") } });
    assert.deepEqual(
      all.kvs.map((kv) => kv.key[0]),
      [0x00, 0x7f, 0x80, 0xff],
    );
  });

  it("a reply is cut by its byte bound, but holds at least one key", () => {
    const settings = { ...DEFAULT_SETTINGS, limits: { ...LIMITS, rangeReplyBytesMax: 50 } };
    const member = new Member({ settings });
    for (let i = 0; i < 5; i++) member.do(put(`k${i}`, "x".repeat(20)));
    member.do(put("z", "x".repeat(200)));
    const cut = member.range(get("k", "l"));
    assert.deepEqual([cut.kvs.length, cut.count, cut.more], [2, 5, true]);
    const large = member.range(get("y", ""));
    assert.deepEqual([large.kvs.length, large.more], [1, false]);
  });

  it("A4: only retained revisions can be read; compaction goes forward only", () => {
    const member = new Member();
    for (let i = 0; i < 3; i++) member.do(put("a", String(i)));
    assert.equal(member.rangeRefused(get("a", undefined, { revision: revision(5) })).code, "future-revision");
    member.do({ kind: "compact", revision: revision(4) });
    assert.equal(member.range(get("a", undefined, { revision: revision(4) })).count, 1);
    const refused = member.rangeRefused(get("a", undefined, { revision: revision(3) }));
    assert.deepEqual([refused.code, refused.compactRevision], ["compacted", 4]);
    const compact = (at: number): string => member.refused({ kind: "compact", revision: revision(at) }).code;
    assert.deepEqual([compact(4), compact(5), compact(0)], ["compacted", "future-revision", "compacted"]);
  });
});

describe("3b puts, deletes and transactions", () => {
  it("a sequential put stores the key followed by its revision in 16 digits", () => {
    const member = new Member();
    const result = member.do(put("q/", "v", { sequential: true }));
    assert.equal(string(result.key), "q/0000000000000002");
    assert.deepEqual(keysOf(member.range(get("q/", "q0")).kvs), ["q/0000000000000002"]);
  });

  it("previous states are answered on request, and survive later writes", () => {
    const member = new Member();
    member.do(put("a", "1"));
    const second = member.do(put("a", "2", { returnPrevious: true }));
    member.do(put("a", "3"));
    assert.equal(string(second.previous!.value), "1");
    const gone = member.do(remove("a", "b", true));
    assert.deepEqual(
      gone.previous.map((kv) => [string(kv.key), string(kv.value), kv.version]),
      [["a", "3", 3]],
    );
    assert.equal(member.do(put("a", "4", { returnPrevious: true })).previous, undefined);
  });

  it("A5: a key is written once in a branch; overlapping deletes are allowed", () => {
    const member = new Member();
    const code = (...success: Parameters<typeof txn>[0]["success"] & object): string => {
      const outcome = member.outcome(txn({ success }));
      return outcome.ok ? "ok" : outcome.failure.code;
    };
    assert.equal(code(put("a"), put("a")), "duplicate-key");
    assert.equal(code(put("a"), remove("a", "b")), "duplicate-key");
    assert.equal(code(remove("a", "b"), put("a")), "duplicate-key");
    assert.equal(
      code(put("q", "", { sequential: true }), put("q", "", { sequential: true })),
      "duplicate-key",
    );
    assert.equal(code(remove("a"), remove("a", "c")), "ok");
    assert.equal(member.refused(txn({ failure: [put("a"), put("a")] })).code, "duplicate-key");
    assert.equal(member.do(txn({ success: [put("a")], failure: [put("a")] })).succeeded, true);
    const many = Array.from({ length: 129 }, (_, i) => put(`k${i}`));
    assert.equal(member.refused(txn({ success: many })).code, "too-many-operations");
  });

  it("A6: a missing key compares as 0, its value never compares true", () => {
    const member = new Member();
    const holds = (
      target: "version" | "create-revision" | "mod-revision" | "value" | "lease",
      operator: "=" | "!=" | "<" | ">",
      operand: number | Uint8Array | "0" | "7",
    ): boolean =>
      member.do(txn({ compares: [{ key: bytes("none"), target, operator, operand: operand as number }] }))
        .succeeded;
    assert.equal(holds("mod-revision", "<", 5), true);
    assert.equal(holds("create-revision", "=", 0), true);
    assert.equal(holds("version", ">", -1), true);
    assert.equal(holds("lease", "=", "0"), true);
    assert.equal(holds("lease", "<", "7"), true);
    for (const operator of ["=", "!=", "<", ">"] as const) {
      assert.equal(holds("value", operator, bytes("x")), false);
    }
    member.do(put("none"));
    member.do(remove("none"));
    assert.equal(holds("mod-revision", "=", 0), true);
  });

  it("all compares look at the state before, later operations see earlier ones", () => {
    const member = new Member();
    member.do(put("a", "old"));
    const result = member.do(
      txn({
        compares: [{ key: bytes("a"), target: "value", operator: "=", operand: bytes("old") }],
        success: [get("a"), put("a", "new"), get("a"), remove("b", "c"), remove("x"), get("a", "z")],
      }),
    );
    assert.equal(result.succeeded, true);
    const seen = result.responses.map((r) =>
      r.kind === "range" ? r.kvs.map((kv) => string(kv.value)) : r.kind,
    );
    assert.deepEqual(seen, [["old"], "put", ["new"], "delete", "delete", ["new"]]);
    assert.deepEqual(
      result.responses.map((r) => r.revision),
      [2, 3, 3, 3, 3, 3],
    );
  });

  it("every failed compare is named with what was there", () => {
    const member = new Member();
    member.do(put("a", "x".repeat(2000)));
    const result = member.do(
      txn({
        compares: [
          { key: bytes("a"), target: "version", operator: "=", operand: 1 },
          { key: bytes("a"), target: "create-revision", operator: "=", operand: 0 },
          { key: bytes("none"), target: "version", operator: ">", operand: 0 },
        ],
        failure: [put("lost")],
      }),
    );
    assert.equal(result.succeeded, false);
    assert.deepEqual(
      result.failures.map((f) => [f.index, f.actual?.value.length]),
      [
        [1, 1024],
        [2, undefined],
      ],
    );
    assert.equal(member.range(get("lost")).count, 1);
  });

  it("A7, B11: a transaction that must fail writes nothing at all", () => {
    const member = new Member();
    member.do(put("c"));
    member.do(put("c"));
    member.do({ kind: "compact", revision: revision(3) });
    const code = (...success: Parameters<typeof txn>[0]["success"] & object): string =>
      member.refused(txn({ success })).code;
    assert.equal(code(put("a", "", { leaseId: "77" as never }), put("b")), "lease-not-found");
    assert.equal(code(put("a"), get("b", undefined, { revision: revision(2) })), "compacted");
    assert.equal(code(put("a"), get("b", undefined, { revision: revision(4) })), "future-revision");
    assert.equal(member.range(get("a", "c")).count, 0);
    assert.equal(member.machine.revision, 3);
  });

  it("a delete of more keys than allowed is refused and deletes nothing", () => {
    const settings = { ...DEFAULT_SETTINGS, limits: { ...LIMITS, keysPerDeleteMax: 3 } };
    const member = new Member({ settings });
    for (const key of ["a", "b", "c", "d"]) member.do(put(key));
    assert.equal(member.refused(remove("a", "z")).code, "too-many-keys");
    assert.equal(member.refused(txn({ success: [put("e"), remove("a", "e")] })).code, "too-many-keys");
    assert.equal(member.range(get("a", "z")).count, 4);
    assert.equal(
      member.refused(txn({ success: [remove("a", "c"), remove("c", "e")] })).code,
      "too-many-keys",
    );
    assert.equal(member.do(remove("a", "d")).deleted, 3);
  });

  it("limits of keys and values hold when a command is applied", () => {
    const member = new Member();
    assert.equal(member.refused(put("")).code, "invalid-argument");
    assert.equal(member.refused(put("k".repeat(4097))).code, "invalid-argument");
    assert.equal(member.refused(put("k".repeat(4090), "", { sequential: true })).code, "invalid-argument");
    assert.equal(member.refused(put("k", "v".repeat(LIMITS.valueBytesMax + 1))).code, "request-too-large");
    assert.equal(member.do(put("k", "v".repeat(LIMITS.valueBytesMax))).version, 1);
    assert.equal(member.range(get("k")).kvs[0]!.value.length, LIMITS.valueBytesMax);
  });
});

describe("3d compaction", () => {
  it("B9: a deletion exactly at the point stays, an earlier one goes", () => {
    const member = new Member();
    member.do(put("a"));
    member.do(put("b"));
    member.do(remove("a"));
    member.do(remove("b"));
    member.do({ kind: "compact", revision: revision(5) });
    member.compactPhysically();
    const { events } = member.machine.history(
      { namespaceId: 1, from: revision(5), to: revision(5), limit: 10 },
      member.store,
    );
    assert.deepEqual(
      events.map((e) => [e.revision, e.events[0]!.kind, string(e.events[0]!.kv.key)]),
      [[5, "delete", "b"]],
    );
    assert.equal(member.store.scan("history", { from: bytes(""), limit: 100 }).length, 1);
    assert.equal(member.store.scan("index", { from: bytes(""), limit: 100 }).length, 1);
    member.do(put("c"));
    member.do({ kind: "compact", revision: revision(6) });
    member.compactPhysically();
    assert.equal(member.store.scan("history", { from: bytes(""), limit: 100 }).length, 1);
    assert.equal(member.machine.revision, 6);
  });

  it("the byte counter is what a finished compaction leaves", () => {
    const member = new Member();
    for (let i = 0; i < 40; i++) {
      member.do(i % 7 === 3 ? remove(`k${i % 5}`) : put(`k${i % 5}`, "x".repeat(i)));
    }
    for (const at of [5, 6, 20, member.machine.revision]) {
      member.do({ kind: "compact", revision: revision(at) });
      member.compactPhysically();
      const rows = member.store.scan("history", { from: bytes(""), limit: 1000 });
      const bytesLeft = rows.reduce((sum, row) => sum + row.key.length + row.value.length, 0);
      assert.equal(member.machine.namespace(1)!.historyBytes, bytesLeft);
    }
    const live = member.range(get("", "", { countOnly: true })).count;
    assert.equal(member.machine.namespace(1)!.keys, live);
    assert.equal(member.range(get("k", "l")).count, live);
  });
});

describe("entries", () => {
  it("an empty entry advances the applied index and nothing else", () => {
    const member = new Member();
    member.do(put("a"));
    const before = member.machine.digest;
    const applied = member.apply([
      { index: (member.machine.appliedIndex + 1) as LogIndex, term: 2 as Term, data: new Uint8Array(0) },
    ]);
    assert.deepEqual(applied.entries, [{ index: 2, outcomes: [] }]);
    assert.deepEqual(member.machine.digest, { index: 2, hash: before.hash });
    member.restart();
    assert.equal(member.machine.appliedIndex, 2);
  });

  it("R58: bytes of another version stop the member, whatever else the batch holds", () => {
    const member = new Member();
    const entry = member.encode([{ kind: "format-version", version: 1 }]);
    for (const at of [0, 13]) {
      const data = entry.data.slice();
      data[at] = 99;
      assert.throws(() => member.apply([{ ...entry, data }]), InvariantError);
    }
    const newer = member.encode([{ kind: "format-version", version: 2 }]);
    assert.throws(() => member.apply([newer]), InvariantError);
  });

  it("an entry applied twice, or one left out, is an invariant broken", () => {
    const member = new Member();
    const entry = member.encode([]);
    member.apply([entry]);
    assert.throws(() => member.apply([entry]), InvariantError);
    assert.throws(() => member.apply([{ ...entry, index: 3 as LogIndex }]), InvariantError);
  });

  it("unknown namespaces and other epochs are refused when applied (M4)", () => {
    const member = new Member();
    const identity = { kind: "none" } as const;
    const { outcomes } = member.entry([
      { kind: "client", namespaceId: 9, epoch: 0, identity, operation: put("a") },
      { kind: "client", namespaceId: 1, epoch: 2, identity, operation: put("a") },
      { kind: "client", namespaceId: 1, epoch: 1, identity, operation: put("a") },
    ]).entries[0]!;
    assert.deepEqual(
      outcomes.map((o) => (o.ok ? "ok" : o.failure.code)),
      ["namespace-not-found", "wrong-epoch", "ok"],
    );
  });

  it("rows of a configuration entry go into the digest and the same batch", () => {
    const [a, b] = [new Member(), new Member()];
    const rows = (value: string) => ({
      index: 1 as LogIndex,
      mutations: [{ keyspace: "meta", key: bytes("\0\0\0\0m"), value: bytes(value) } as const],
    });
    a.write(a.machine.applyExternal(rows("x")).mutations);
    b.write(b.machine.applyExternal(rows("y")).mutations);
    assert.notEqual(a.machine.digest.hash, b.machine.digest.hash);
    a.restart();
    assert.equal(a.machine.appliedIndex, 1);
    assert.equal(string(a.store.get("meta", bytes("\0\0\0\0m"))!), "x");
  });
});
