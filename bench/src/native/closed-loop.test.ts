import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { runClosedLoop, type Slot } from "./closed-loop.ts";

const untilDone = { fromMs: 0, untilMs: Infinity };

/** Work that runs out after `count` operations, each answered in a later turn. */
function someWork(count: number, errorOf: (nth: number) => string | undefined) {
  let started = 0;
  let inFlight = 0;
  const seen = { started: 0, inFlightMost: 0 };
  const operationOf = (slot: Slot) => (): boolean => {
    if (started >= count) return false;
    const nth = (started += 1);
    inFlight += 1;
    seen.started = started;
    seen.inFlightMost = Math.max(seen.inFlightMost, inFlight);
    setImmediate(() => {
      inFlight -= 1;
      slot.done(errorOf(nth), 2);
    });
    return true;
  };
  return { operationOf, seen };
}

describe("the closed loop", () => {
  it("keeps every slot busy until the work runs out and counts each answer by its weight", async () => {
    const work = someWork(100, () => undefined);
    const tally = await runClosedLoop({ plan: untilDone, slots: 7, operationOf: work.operationOf });
    assert.deepEqual(work.seen, { started: 100, inFlightMost: 7 });
    assert.equal(tally.operations, 200);
    assert.equal(tally.latencies.total, 200);
    assert.equal(tally.errors, 0);
  });

  it("counts errors apart, keeps the first, and goes on", async () => {
    const work = someWork(10, (nth) => (nth % 5 === 0 ? `refused ${String(nth)}` : undefined));
    const tally = await runClosedLoop({ plan: untilDone, slots: 1, operationOf: work.operationOf });
    assert.equal(tally.operations, 16);
    assert.equal(tally.errors, 2);
    assert.equal(tally.firstError, "refused 5");
  });

  it("counts nothing that completes in the warm-up, except errors", async () => {
    const work = someWork(10, (nth) => (nth === 3 ? "refused" : undefined));
    const plan = { fromMs: Infinity, untilMs: Infinity };
    const tally = await runClosedLoop({ plan, slots: 2, operationOf: work.operationOf });
    assert.equal(tally.operations, 0);
    assert.equal(tally.latencies.total, 0);
    assert.equal(tally.errors, 1);
  });

  it("starts nothing after the plan's end", async () => {
    const work = someWork(1_000_000, () => undefined);
    const plan = { fromMs: 0, untilMs: performance.now() };
    const tally = await runClosedLoop({ plan, slots: 3, operationOf: work.operationOf });
    assert.equal(work.seen.started, 0);
    assert.equal(tally.operations, 0);
  });
});
