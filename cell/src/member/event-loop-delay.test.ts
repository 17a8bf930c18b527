import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createHistogram } from "node:perf_hooks";
import type { RecordableHistogram } from "node:perf_hooks";
import { EventLoopDelay } from "./event-loop-delay.ts";
import { MemberMetrics } from "./metrics.ts";

/** Recorded as Node's monitor does: from one of its timers to the next. */
function delaysOf(intervalsMs: readonly number[]): EventLoopDelay {
  const histogram: RecordableHistogram = createHistogram();
  for (const ms of intervalsMs) histogram.record(ms * 1e6);
  return new EventLoopDelay({
    max: histogram.max,
    percentile: (at) => histogram.percentile(at),
    enable: () => true,
    disable: () => true,
    reset: () => histogram.reset(),
  });
}

const near = (seconds: number, expected: number): void =>
  assert.ok(Math.abs(seconds - expected) < 0.001, `${String(seconds)} instead of ${String(expected)}`);

describe("the event loop's delay", () => {
  it("a loop with nothing to do has none: the time between two looks is not a delay", () => {
    const delays = delaysOf(Array.from({ length: 1_000 }, () => 10));
    near(delays.percentile(99), 0);
    near(delays.max, 0);
  });

  it("is what came on top of it", () => {
    const delays = delaysOf([...Array.from({ length: 9_998 }, () => 11), 40, 90]);
    near(delays.percentile(99), 0.001);
    near(delays.percentile(99.99), 0.03);
    near(delays.max, 0.08);
  });

  it("is never negative, and none while nothing was recorded", () => {
    assert.equal(delaysOf([9]).percentile(99), 0);
    for (const empty of [delaysOf([]), new EventLoopDelay()]) {
      assert.ok(Number.isFinite(empty.percentile(99.99)) && Number.isFinite(empty.max));
      empty.close();
    }
  });

  it("no gauge of a member tells of it with the sampling in it", async () => {
    const metrics = new MemberMetrics();
    const text = await metrics.registry.metrics();
    metrics.close();
    const names = [...text.matchAll(/^# TYPE (\S*(?:event_?loop)\S*) /gm)].map(([, name]) => name);
    assert.deepEqual(names, [
      "nodejs_eventloop_lag_seconds",
      "lockstep_event_loop_delay_p99_seconds",
      "lockstep_event_loop_delay_p9999_seconds",
      "lockstep_event_loop_delay_max_seconds",
    ]);
  });
});
