import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KeyValue, NO_LEASE_ID } from "@lockstep/client";
import { outputOf, txnOf } from "./observe.ts";
import { compareAndSet } from "./words.ts";

const state = new KeyValue({
  key: Buffer.from("k"),
  value: Buffer.from("a"),
  createRevision: 2,
  modRevision: 4,
  version: 3,
  leaseId: NO_LEASE_ID,
});
const seen = { value: "a", createRevision: 2, modRevision: 4, version: 3 };

describe("the client's results in a history", () => {
  it("a read tells the key and the revision that it reflects", () => {
    const range = { kind: "range", revision: 9, kvs: [state], count: 1, more: false } as const;
    assert.deepEqual(outputOf(range), { kind: "get", found: seen, revision: 9 });
    assert.deepEqual(outputOf({ ...range, kvs: [] }), { kind: "get", found: null, revision: 9 });
  });

  it("a put and a delete tell what they made and what was there", () => {
    const put = { kind: "put", revision: 5, key: state.key, createRevision: 2, version: 4 } as const;
    assert.deepEqual(outputOf(put), { kind: "put", revision: 5, createRevision: 2, version: 4 });
    assert.deepEqual(outputOf({ kind: "delete", revision: 5, deleted: 1, previous: [state] }), {
      kind: "delete",
      revision: 5,
      deleted: 1,
      previous: seen,
    });
  });

  it("a transaction tells its branch, each step's answer and what failed; its revision belongs to the whole", () => {
    const range = { kind: "range", revision: 9, kvs: [state], count: 1, more: false } as const;
    const failures = [{ index: 0, actual: state }, { index: 1 }];
    assert.deepEqual(outputOf({ kind: "txn", succeeded: false, revision: 9, responses: [range], failures }), {
      kind: "txn",
      succeeded: false,
      revision: 9,
      responses: [{ kind: "get", found: seen }],
      failures: [
        { index: 0, actual: seen },
        { index: 1, actual: null },
      ],
    });
  });

  it("a compare-and-set is asked of the client as it is recorded", () => {
    assert.deepEqual(txnOf(compareAndSet("k", { modRevision: 4 }, "b", true)), {
      compares: [{ key: "k", operator: "=", modRevision: 4 }],
      success: [{ put: { key: "k", value: "b" } }],
      failure: [{ get: { key: "k" } }],
    });
  });
});
