import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LockstepError } from "@lockstep/client";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { failedOutcome, judgeRejection } from "./rejections.ts";

describe("rejected calls", () => {
  it("are expected with a code and an outcome", () => {
    const reporter = new LatchedReporter();
    const error = judgeRejection(new LockstepError("no-leader", "not-applied", "?"), "put", reporter);
    assert.equal(failedOutcome(error, "put", reporter), "not-applied");
    assert.equal(reporter.counted("unknown outcomes"), 0);
    failedOutcome(new LockstepError("deadline-exceeded", "unknown", "?"), "put", reporter);
    assert.equal(reporter.counted("unknown outcomes"), 1);
  });

  it("are defects when they are something else, or when no fault explains them", () => {
    const reporter = new LatchedReporter();
    assert.throws(() => judgeRejection(new TypeError("?"), "put", reporter), /I-errors.*TypeError/);
    assert.throws(() => judgeRejection(undefined, "put", reporter), /I-errors/);
    for (const code of ["internal", "diverged", "request-expired", "protocol-error"]) {
      const error = new LockstepError(code, "unknown", "?");
      assert.throws(() => judgeRejection(error, "put", reporter), /I-errors/);
    }
    const applied = new LockstepError("deadline-exceeded", "applied", "?");
    assert.throws(() => failedOutcome(applied, "put", reporter), /I-errors/);
  });
});
