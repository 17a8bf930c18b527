import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Latencies } from "./latencies.ts";
import { Phases } from "./phases.ts";

describe("write gaps", () => {
  function phasesAt(clock: { ms: number }): Phases {
    const phases = new Phases(() => clock.ms);
    phases.resume();
    return phases;
  }

  it("the longest is kept, and the open one counts", () => {
    const clock = { ms: 0 };
    const phases = phasesAt(clock);
    for (const ms of [100, 150, 950, 1000]) {
      clock.ms = ms;
      phases.acknowledged(1);
    }
    assert.equal(phases.total.longestWriteGapMs, 800);
    clock.ms = 2500;
    assert.equal(phases.total.longestWriteGapMs, 1500);
    assert.equal(phases.total.acknowledged, 4);
  });

  it("a gap across a mark counts whole in both phases, an earlier one only in its own", () => {
    const clock = { ms: 0 };
    const phases = phasesAt(clock);
    clock.ms = 5000;
    phases.acknowledged(1);
    phases.mark("harm");
    assert.equal(phases.current.longestWriteGapMs, 0);
    clock.ms = 5400;
    phases.mark("rest");
    clock.ms = 5700;
    phases.acknowledged(1);
    assert.deepEqual(
      [...phases.finished, phases.current].map(({ name, longestWriteGapMs }) => [name, longestWriteGapMs]),
      [
        ["start", 5000],
        ["harm", 400],
        ["rest", 700],
      ],
    );
  });

  it("a pause on purpose is none", () => {
    const clock = { ms: 0 };
    const phases = phasesAt(clock);
    phases.pause();
    clock.ms = 9000;
    phases.resume();
    clock.ms = 9010;
    phases.acknowledged(1);
    assert.equal(phases.total.longestWriteGapMs, 10);
  });
});

describe("latencies", () => {
  it("quantiles are exact to a twentieth", () => {
    const latencies = new Latencies();
    assert.equal(latencies.quantileMs(0.5), 0);
    for (let ms = 1; ms <= 1000; ms += 1) latencies.add(ms);
    for (const [share, ms] of [
      [0.5, 500],
      [0.99, 990],
    ] as const) {
      const found = latencies.quantileMs(share);
      assert.ok(found >= ms && found <= ms * 1.05, `${String(share)}: ${String(found)}`);
    }
    assert.equal(latencies.quantileMs(1), 1000);
  });

  it("what is longer than the scale is not lost", () => {
    const latencies = new Latencies();
    latencies.add(1e9);
    assert.equal(latencies.maxMs, 1e9);
    assert.ok(latencies.quantileMs(0.99) > 100_000);
  });
});
