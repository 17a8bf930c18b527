import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Histogram } from "./histogram.ts";

describe("Histogram", () => {
  it("says 0 for everything when it is empty", () => {
    const empty = new Histogram();
    assert.equal(empty.total, 0);
    assert.equal(empty.quantileMs(0.99), 0);
    assert.equal(empty.maxMs, 0);
  });

  it("is exact below 128 microseconds and for the largest sample", () => {
    const some = new Histogram();
    for (let micros = 1; micros <= 100; micros += 1) some.record(micros / 1000);
    some.record(98_765.432);
    assert.equal(some.quantileMs(0.5), 0.051);
    assert.equal(some.quantileMs(1), 98_765.432);
    assert.equal(some.maxMs, 98_765.432);
  });

  it("counts a weighted sample as that many samples", () => {
    const weighted = new Histogram();
    weighted.record(1, 99);
    weighted.record(50, 1);
    assert.equal(weighted.total, 100);
    assert.ok(weighted.quantileMs(0.99) < 1.01);
    assert.ok(weighted.quantileMs(0.999) >= 50);
  });

  it("is within one percent above the sorted samples' quantile, whatever the samples", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 2 ** 34 }), { minLength: 1, maxLength: 300 }),
        fc.double({ min: 0.001, max: 1, noNaN: true }),
        (samples, q) => {
          const histogram = new Histogram();
          for (const micros of samples) histogram.record(micros / 1000);
          const sorted = [...samples].sort((a, b) => a - b);
          const exact = sorted[Math.max(1, Math.round(q * sorted.length)) - 1]!;
          const got = histogram.quantileMs(q) * 1000;
          // Dividing by 1,000 and back may lose a microsecond.
          assert.ok(
            got >= exact - 1.001 && got <= exact * 1.01 + 1.001,
            `${String(got)} for ${String(exact)}`,
          );
        },
      ),
      { numRuns: 200 },
    );
  });
});
