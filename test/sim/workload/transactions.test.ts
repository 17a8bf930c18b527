import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KeyValue, type TxnResult } from "@lockstep/client";
import type { KeyTxn } from "../../linearizability/words.ts";
import { ReadChecker } from "../checkers/reads.ts";
import { LatchedReporter } from "./testing/latched-reporter.ts";
import { ManualTruth } from "./testing/manual-truth.ts";
import { checkTxn, holds } from "./transactions.ts";

const PLAN: KeyTxn = {
  kind: "txn",
  compares: [{ key: "a", target: "value", operator: "=", operand: "1" }],
  success: [
    { kind: "put", key: "a", value: "2" },
    { kind: "delete", key: "b" },
  ],
  failure: [{ kind: "get", key: "a" }],
};

/** Revision 2 puts a and b, 3 is the transaction. */
function setUp(): { check: (result: TxnResult, plan?: KeyTxn) => void } {
  const truth = new ManualTruth();
  truth.put({ key: "a", value: "1" }, { key: "b", value: "1" });
  truth.put({ key: "a", value: "2" });
  const reporter = new LatchedReporter();
  const reads = new ReadChecker(truth, reporter);
  const bounds = { committed: 2, floor: 2 };
  return {
    check: (result, plan = PLAN) =>
      void checkTxn({ truth, reporter, reads }, plan, result, { what: "txn", bounds }),
  };
}

const ONLY_PUT: KeyTxn = { ...PLAN, success: PLAN.success.slice(0, 1) };

const PREVIOUS = new KeyValue({
  ...{ key: Buffer.from("a"), value: Buffer.from("1") },
  ...{ createRevision: 2, modRevision: 2, version: 1, leaseId: "0" },
});

const RIGHT: TxnResult = {
  kind: "txn",
  succeeded: true,
  revision: 3,
  failures: [],
  responses: [
    { kind: "put", revision: 3, key: Buffer.from("a"), createRevision: 2, version: 2, previous: PREVIOUS },
  ],
};

describe("a transaction's answer", () => {
  it("is accepted when the true history says the same", () => {
    setUp().check(RIGHT, ONLY_PUT);
  });

  it("is caught with the wrong branch", () => {
    const wrong: TxnResult = { ...RIGHT, succeeded: false, failures: [{ index: 0 }], responses: [] };
    assert.throws(() => setUp().check({ ...wrong, revision: 2 }, ONLY_PUT), /I8-txn/);
  });

  it("is caught with a step that was not done, or an answer too few", () => {
    const { check } = setUp();
    const deletion = { kind: "delete", revision: 3, deleted: 1, previous: [] } as const;
    assert.throws(() => check({ ...RIGHT, responses: [...RIGHT.responses, deletion] }), /I8-value/);
    assert.throws(() => check({ ...RIGHT, responses: [] }, ONLY_PUT), /I8/);
  });

  it("is caught at another revision, and with a wrong version", () => {
    const { check } = setUp();
    assert.throws(() => check({ ...RIGHT, revision: 2 }, ONLY_PUT), /I8/);
    const [put] = RIGHT.responses;
    assert.ok(put?.kind === "put");
    assert.throws(() => check({ ...RIGHT, responses: [{ ...put, version: 1 }] }, ONLY_PUT), /I8-value/);
  });
});

describe("compares", () => {
  it("see a missing key as zeros and its value as nothing at all", () => {
    const on = (
      target: "value" | "version" | "mod-revision",
      operator: "=" | "!=",
      operand: string | number,
    ) => holds({ key: "a", target, operator, operand }, undefined);
    assert.ok(on("version", "=", 0) && on("mod-revision", "=", 0) && on("version", "!=", 1));
    assert.ok(!on("value", "=", "") && !on("value", "!=", "x"));
  });
});
