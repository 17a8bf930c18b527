import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { RegisterHistory } from "./register-history.ts";

function setUp(): { clock: { nowUs: number }; reporter: LatchedReporter; history: RegisterHistory } {
  const clock = { nowUs: 0 };
  const reporter = new LatchedReporter();
  return { clock, reporter, history: new RegisterHistory(clock, reporter) };
}

describe("the history of the registers", () => {
  it("is checked by the answers, with unknown outcomes left open", () => {
    const { clock, reporter, history } = setUp();
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
      const { clock, history } = setUp();
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
});
