import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LIMITS } from "@lockstep/gateway/coordinator";
import type { Compare, KeyValue, RangeOperation, TxnOperation } from "@lockstep/gateway/coordinator";
import { SCAN_KEYS_MAX } from "./ordered-range.ts";
import { bytes, get, lease, Member, put, remove, revision, string, txn } from "./testing/harness.ts";

const keysOf = (kvs: readonly KeyValue[]): string[] => kvs.map(({ key }) => string(key));

/** Ten keys whose orders by creation, change, version and value all differ. */
function tenKeys(): Member {
  const member = new Member();
  for (const digit of "7305918264") member.do(put(`k${digit}`, `v${9 - Number(digit)}`));
  for (const digit of "42424") member.do(put(`k${digit}`, `w${digit}`));
  return member;
}

describe("3a sorted and filtered ranges", () => {
  const all = (more: Partial<RangeOperation>): RangeOperation => get("k", "l", more);

  it("A3: sorts by each target in both directions, and a limit takes the first of the order", () => {
    const member = tenKeys();
    const order = (more: Partial<RangeOperation>): string => keysOf(member.range(all(more)).kvs).join("");
    assert.equal(order({ sort: { target: "create-revision" } }), "k7k3k0k5k9k1k8k2k6k4");
    assert.equal(order({ sort: { target: "mod-revision", descending: true }, limit: 3 }), "k4k2k6");
    assert.equal(order({ sort: { target: "version", descending: true }, limit: 2 }), "k4k2");
    assert.equal(order({ sort: { target: "value" }, limit: 2 }), "k9k8");
    assert.equal(order({ sort: { target: "create-revision", descending: true }, limit: 1 }), "k4");
    const first = member.range(all({ sort: { target: "create-revision" }, limit: 1 }));
    assert.deepEqual([first.count, first.more, string(first.kvs[0]!.value)], [10, true, "v2"]);
  });

  it("A3: filters before it sorts and cuts; the count is of the whole range", () => {
    const member = tenKeys();
    const newest = member.range(all({ sort: { target: "mod-revision", descending: true } })).kvs;
    const second = newest[1]!.modRevision;
    const filtered = member.range(all({ filter: { minModRevision: second }, limit: 2 }));
    assert.deepEqual([keysOf(filtered.kvs), filtered.more, filtered.count], [["k2", "k4"], false, 10]);
    const cut = member.range(all({ filter: { minModRevision: second }, limit: 1, reverse: true }));
    assert.deepEqual([keysOf(cut.kvs), cut.more], [["k4"], true]);
    // Who stands directly before the one that came third.
    const [, before, third] = member.range(all({ sort: { target: "create-revision" } })).kvs;
    const maxCreateRevision = third!.createRevision - 1;
    const sort = { target: "create-revision", descending: true } as const;
    assert.deepEqual(keysOf(member.range(all({ sort, filter: { maxCreateRevision }, limit: 1 })).kvs), [
      string(before!.key),
    ]);
  });

  it("sorts a past state, and values that are only counted or left out", () => {
    const member = tenKeys();
    const past = member.range(all({ revision: revision(11), sort: { target: "version", descending: true } }));
    assert.deepEqual(keysOf(past.kvs), ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"]);
    const bare = member.range(all({ sort: { target: "value" }, keysOnly: true, limit: 1 }));
    assert.deepEqual([keysOf(bare.kvs), bare.kvs[0]!.value.length], [["k9"], 0]);
    const counted = member.range(all({ filter: { minModRevision: 1_000 }, countOnly: true }));
    assert.deepEqual([counted.count, counted.kvs.length, counted.more], [10, 0, false]);
  });

  it("sees what its own transaction wrote before it, and not what comes after", () => {
    const member = tenKeys();
    const sorted = all({ sort: { target: "mod-revision", descending: true }, limit: 1 });
    const done = member.do(txn({ success: [put("k5", "new"), sorted, put("k6", "newer")] }));
    const seen = done.responses[1];
    assert.ok(seen?.kind === "range");
    assert.deepEqual([keysOf(seen.kvs), string(seen.kvs[0]!.value)], [["k5"], "new"]);
  });

  it("refuses to look at too many keys, alone and before a transaction has written anything", () => {
    const member = new Member();
    const batch = 128;
    for (let at = 0; at <= SCAN_KEYS_MAX; at += batch) {
      member.do(txn({ success: Array.from({ length: batch }, (_, i) => put(`k${at + i}`, "")) }));
    }
    const sorted = all({ sort: { target: "version" }, limit: 1 });
    const before = member.machine.revision;
    assert.equal(member.rangeRefused(sorted).code, "too-many-keys");
    assert.equal(member.refused(txn({ success: [put("x"), sorted] })).code, "too-many-keys");
    const over: Compare = {
      key: bytes("k"),
      rangeEnd: bytes("l"),
      target: "version",
      operator: ">",
      operand: 0,
    };
    assert.equal(member.refused(txn({ compares: [over], success: [put("x")] })).code, "too-many-keys");
    assert.equal(member.machine.revision, before);
    assert.equal(member.range(get("x")).count, 0);
    // In key order, and over fewer keys, it goes.
    assert.equal(member.range(get("k1", "k2", { sort: { target: "version" }, limit: 1 })).kvs.length, 1);
  });
});

describe("3b puts that keep what is there", () => {
  it("A8: keeps the value, the lease, or both; a key that is not there has neither", () => {
    const member = new Member();
    member.do({ kind: "lease-grant", leaseId: lease(7), ttlMs: 10_000 });
    member.do({ kind: "lease-grant", leaseId: lease(8), ttlMs: 10_000 });
    for (const keep of ["value", "lease", "both"] as const) {
      assert.equal(member.refused(put("a", "", { keep })).code, "key-not-found");
    }
    member.do(put("a", "first", { leaseId: lease(7) }));
    const state = (): unknown[] => {
      const { value, leaseId, version } = member.range(get("a")).kvs[0]!;
      return [string(value), leaseId, version];
    };
    member.do(put("a", "", { keep: "value", leaseId: lease(8) }));
    assert.deepEqual(state(), ["first", "8", 2]);
    member.do(put("a", "second", { keep: "lease" }));
    assert.deepEqual(state(), ["second", "8", 3]);
    member.do(put("a", "", { keep: "both" }));
    assert.deepEqual(state(), ["second", "8", 4]);
    member.do(put("a", "", { keep: "value" }));
    assert.deepEqual(state(), ["second", "0", 5]);
    member.do({ kind: "lease-revoke", leaseId: lease(8) });
    assert.equal(member.range(get("a")).count, 1);
  });

  it("keeps a value that is too large for the cache", () => {
    const member = new Member();
    const large = "x".repeat(100_000);
    member.do(put("a", large));
    member.restart();
    member.do(put("a", "", { keep: "value" }));
    assert.equal(string(member.range(get("a")).kvs[0]!.value), large);
  });
});

describe("3b transactions inside transactions", () => {
  const inner = (parts: Parameters<typeof txn>[0]): TxnOperation => txn(parts);
  const exists = (key: string): Compare => ({
    key: bytes(key),
    target: "version",
    operator: ">",
    operand: 0,
  });

  it("all decide on the state before the outermost one, and write at one revision", () => {
    const member = new Member();
    const done = member.do(
      txn({
        success: [
          put("a", "1"),
          inner({ compares: [exists("a")], success: [put("b", "wrong")], failure: [put("b", "right")] }),
          get("b"),
        ],
      }),
    );
    const [, nested, read] = done.responses;
    assert.ok(nested?.kind === "txn" && read?.kind === "range");
    assert.equal(nested.succeeded, false);
    assert.equal(string(read.kvs[0]!.value), "right");
    assert.deepEqual([done.revision, nested.revision, read.kvs[0]!.modRevision], [2, 2, 2]);
    assert.deepEqual(keysOf(member.events.at(-1)!.events.map(({ kv }) => kv)), ["a", "b"]);
  });

  it("A5: writes that could meet are refused, those of one transaction's two branches cannot", () => {
    const member = new Member();
    const code = (success: readonly TxnOperation[]): string | undefined => {
      const outcome = member.outcome(txn({ success }));
      return outcome.ok ? undefined : outcome.failure.code;
    };
    assert.equal(code([inner({ success: [put("a")], failure: [put("a")] })]), undefined);
    assert.equal(code([put("a"), inner({ success: [put("a")] })]), "duplicate-key");
    assert.equal(code([put("a"), inner({ failure: [remove("a", "b")] })]), "duplicate-key");
    assert.equal(code([inner({ success: [put("a")] }), inner({ failure: [put("a")] })]), "duplicate-key");
    assert.equal(
      code([inner({ success: [remove("a", "c")] }), inner({ success: [put("b")] })]),
      "duplicate-key",
    );
    assert.equal(code([remove("a", "c"), inner({ success: [remove("b", "d")] })]), undefined);
  });

  it("A7: what one refuses refuses all, before anything is written", () => {
    const member = new Member();
    const bad = inner({ success: [put("b", "v", { leaseId: lease(77) })] });
    assert.equal(member.refused(txn({ success: [put("a"), bad] })).code, "lease-not-found");
    const future = inner({ success: [get("b", undefined, { revision: revision(99) })] });
    assert.equal(member.refused(txn({ success: [put("a"), future] })).code, "future-revision");
    assert.deepEqual([member.machine.revision, member.range(get("a")).count], [1, 0]);
  });

  it("the operations of one list bound those of the transactions in it", () => {
    const member = new Member();
    const gets = (count: number): TxnOperation[] => Array.from({ length: count }, () => get("a"));
    const most = LIMITS.txnOperationsMax;
    const code = (operation: TxnOperation): string | undefined => {
      const outcome = member.outcome(txn({ success: [operation] }));
      return outcome.ok ? undefined : outcome.failure.code;
    };
    assert.equal(code(inner({ success: gets(most - 1) })), undefined);
    assert.equal(code(inner({ success: gets(most) })), "too-many-operations");
    let deep: TxnOperation = get("a");
    for (let i = 0; i < most; i += 1) deep = inner({ success: [deep] });
    assert.equal(code(deep), "too-many-operations");
  });
});

describe("3b compares over a range", () => {
  const over = (more: Partial<Compare>): Compare => ({
    key: bytes("p"),
    rangeEnd: bytes("q"),
    target: "mod-revision",
    operator: "<",
    operand: 5,
    ...more,
  });
  const holds = (member: Member, compare: Compare): boolean =>
    member.do(txn({ compares: [compare] })).succeeded;

  it("A6: a range without keys compares like one missing key", () => {
    const member = new Member();
    assert.equal(holds(member, over({})), true);
    assert.equal(holds(member, over({ operator: ">" })), false);
    assert.equal(holds(member, over({ target: "value", operator: "!=", operand: bytes("x") })), false);
    assert.equal(holds(member, over({ rangeEnd: bytes("a") })), true);
  });

  it("every key must hold, and the answer shows the first that does not", () => {
    const member = new Member();
    for (const key of ["p1", "p2", "p3"]) member.do(put(key, "x"));
    assert.equal(holds(member, over({ operand: 5 })), true);
    const failed = member.do(txn({ compares: [over({ operand: 4 })] }));
    assert.equal(failed.succeeded, false);
    assert.equal(string(failed.failures[0]!.actual!.key), "p3");
    assert.equal(holds(member, over({ target: "value", operator: "=", operand: bytes("x") })), true);
    member.do(put("p2", "y"));
    assert.equal(holds(member, over({ target: "value", operator: "=", operand: bytes("x") })), false);
    assert.equal(
      holds(member, over({ rangeEnd: bytes(""), target: "version", operator: ">", operand: 0 })),
      true,
    );
  });
});
