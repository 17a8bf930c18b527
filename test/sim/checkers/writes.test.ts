import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { WriteLedger } from "./writes.ts";

function setUp(): { truth: ManualTruth; writes: WriteLedger } {
  const truth = new ManualTruth();
  const writes = new WriteLedger(truth, new LatchedReporter());
  writes.begin("v");
  return { truth, writes };
}

describe("the ledger of writes", () => {
  it("accepts one write at the acknowledged revision", () => {
    const { truth, writes } = setUp();
    writes.written("v", truth.put({ key: "a", value: "v" }));
    truth.put({ key: "a", value: "of somebody else" });
  });

  it("accepts one write or none behind an unknown outcome, now or later", () => {
    const { truth, writes } = setUp();
    writes.unknown("v");
    truth.put({ key: "a", value: "v" });
  });

  it("catches a retry that ran twice, also under two keys", () => {
    const { truth } = setUp();
    truth.put({ key: "a", value: "v" });
    assert.throws(() => truth.put({ key: "b", value: "v" }), /I-idempotence/);
  });

  it("catches an acknowledgement of what nobody committed, or of another revision", () => {
    const { truth, writes } = setUp();
    assert.throws(() => writes.written("v", 2), /I6-acknowledged/);
    truth.put({ key: "a", value: "v" });
    assert.throws(() => writes.written("v", 3), /I6-acknowledged/);
  });

  it("catches an effect of what was refused, before and after the refusal", () => {
    const before = setUp();
    before.truth.put({ key: "a", value: "v" });
    assert.throws(() => before.writes.notApplied("v"), /I-not-applied/);
    const after = setUp();
    after.writes.notApplied("v");
    assert.throws(() => after.truth.put({ key: "a", value: "v" }), /I-not-applied/);
  });

  it("catches an effect of a branch that was not taken", () => {
    const { truth, writes } = setUp();
    truth.put({ key: "a", value: "v" });
    assert.throws(() => writes.skipped("v"), /I-not-applied/);
  });
});
