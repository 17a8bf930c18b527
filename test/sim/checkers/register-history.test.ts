import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { RegisterHistory } from "./register-history.ts";

interface SetUp {
  readonly clock: { nowUs: number };
  readonly reporter: LatchedReporter;
  readonly truth: ManualTruth;
  readonly history: RegisterHistory;
}

function setUp(stepsMax?: number): SetUp {
  const clock = { nowUs: 0 };
  const reporter = new LatchedReporter();
  const truth = new ManualTruth();
  const bound = stepsMax === undefined ? {} : { stepsMax };
  return {
    clock,
    reporter,
    truth,
    history: new RegisterHistory({ scheduler: clock, reporter, truth, ...bound }),
  };
}

describe("the history of the registers", () => {
  it("is checked by the answers, with unknown outcomes left open", () => {
    const { clock, reporter, history } = setUp(5);
    history.begin("dead", { kind: "put", key: "r/1", value: "a" });
    history.begin("lost", { kind: "put", key: "r/1", value: "b" }).failed("unknown");
    history.begin("refused", { kind: "put", key: "r/1", value: "c" }).failed("not-applied");
    clock.nowUs = 10;
    const read = history.begin("reader", { kind: "get", key: "r/1" });
    clock.nowUs = 20;
    read.ok({ kind: "get", found: { value: "a" } });
    history.check();
    assert.equal(reporter.counted("linearizability checks"), 1);
  });

  it("catches a stale read and a refused write that is seen", () => {
    for (const value of ["old", "refused"]) {
      const { clock, history } = setUp(5);
      const refused = history.begin("p3", { kind: "put", key: "r/1", value: "refused" });
      refused.failed("not-applied");
      for (const written of ["old", "new"]) {
        const put = history.begin("p1", { kind: "put", key: "r/1", value: written });
        clock.nowUs += 10;
        put.ok({ kind: "put" });
        clock.nowUs += 10;
      }
      const read = history.begin("p2", { kind: "get", key: "r/1" });
      clock.nowUs += 10;
      read.ok({ kind: "get", found: { value } });
      assert.throws(() => history.check(), /I8-/);
    }
  });

  /** A write, very many of which nobody knows what became of them, and a read that only one of these explains. */
  function withManyUnknown(found: { readonly value: string } | null): SetUp {
    const made = setUp(5);
    const { clock, history, truth } = made;
    const put = history.begin("p1", { kind: "put", key: "r/1", value: "known" });
    clock.nowUs += 10;
    truth.put({ key: "r/1", value: "known" });
    put.ok({ kind: "put" });
    for (let lost = 0; lost < 50; lost++) {
      history.begin("p2", { kind: "put", key: "r/1", value: `lost ${String(lost)}` }).failed("unknown");
    }
    history.begin("p3", { kind: "delete", key: "r/1" }).failed("unknown");
    clock.nowUs += 10;
    const read = history.begin("p4", { kind: "get", key: "r/1" });
    clock.nowUs += 10;
    read.ok({ kind: "get", found });
    return made;
  }

  it("with too many unknown outcomes is checked without those that left no trace", () => {
    const { history, reporter } = withManyUnknown(null);
    history.check();
    assert.equal(reporter.counted("linearizability checks"), 1);
  });

  it("with too many of them that did leave one is not decided, and neither is a lie", () => {
    const traced = withManyUnknown(null);
    for (let lost = 0; lost < 50; lost++) traced.truth.put({ key: "r/1", value: `lost ${String(lost)}` });
    assert.throws(() => traced.history.check(), /I8-undecided/);
    assert.throws(() => withManyUnknown({ value: "never written" }).history.check(), /I8-/);
  });
});
