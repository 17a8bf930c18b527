import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { orderByDeadline } from "./deadline-order.ts";
import { NONE } from "./slot-lists.ts";
import { TimingWheel, WHEEL_TICK_MS } from "./timing-wheel.ts";

describe("timing wheel", () => {
  it("fires each slot once, never early, within a bucket, across all levels", () => {
    const dues = [
      0,
      63,
      64,
      255 * 64,
      256 * 64,
      257 * 64,
      256 ** 2 * 64 - 1,
      256 ** 2 * 64 + 5,
      256 ** 3 * 64 + 1,
    ];
    const wheel = new TimingWheel(dues.length, (slot) => dues[slot]!);
    wheel.reset(0);
    dues.forEach((_, slot) => wheel.schedule(slot));
    const fired: number[] = [];
    // Steps that land around every due time.
    const times = dues.flatMap((due) => [due - 1, due, due + 2 * WHEEL_TICK_MS]).filter((time) => time >= 0);
    for (const time of times.sort((a, b) => a - b)) {
      wheel.advance(time, 1e9, (slot) => {
        assert.ok(dues[slot]! <= time);
        fired.push(slot);
      });
      dues.forEach((due, slot) => {
        if (due + 2 * WHEEL_TICK_MS <= time) assert.ok(fired.includes(slot), `slot ${slot} at ${time}`);
      });
    }
    assert.deepEqual(
      fired.toSorted((a, b) => a - b),
      dues.map((_, slot) => slot),
    );
  });

  it("stops at its budget and goes on where it was, also inside a cascade, but never inside a bucket", () => {
    // All on the second level at first; then ten slots to a bucket.
    const due = (slot: number): number => (300 + Math.floor(slot / 10)) * WHEEL_TICK_MS;
    const wheel = new TimingWheel(1000, due);
    wheel.reset(0);
    for (let slot = 0; slot < 1000; slot += 1) wheel.schedule(slot);
    const fired: number[] = [];
    let calls = 0;
    while (fired.length < 1000) {
      calls += 1;
      assert.ok(calls < 200);
      const before = fired.length;
      const touched = wheel.advance(due(1000), 37, (slot) => fired.push(slot));
      assert.ok(touched < 37 + 10);
      assert.equal((fired.length - before) % 10, 0);
    }
    assert.ok(calls >= 2000 / 47);
    assert.deepEqual(
      fired,
      Array.from({ length: 1000 }, (_, slot) => slot),
    );
  });

  it("a slot moved later comes up at its old time and may be scheduled anew", () => {
    let due = 1000;
    const wheel = new TimingWheel(1, () => due);
    wheel.reset(0);
    wheel.schedule(0);
    due = 90_000;
    let visits = 0;
    for (let now = 0; now < 89_000; now += 100) {
      wheel.advance(now, 100, (slot) => {
        visits += 1;
        wheel.schedule(slot);
      });
    }
    assert.equal(visits, 1);
    assert.notEqual(wheel.lists.listOf(0), NONE);
  });

  it("a time far beyond the wheel is kept, not lost", () => {
    const wheel = new TimingWheel(1, () => 1e18);
    wheel.reset(0);
    wheel.schedule(0);
    wheel.advance(1e6, 100, () => assert.fail("fired"));
    assert.notEqual(wheel.lists.listOf(0), NONE);
  });
});

describe("order by deadline", () => {
  it("is stable and by whole milliseconds, narrow or wide", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 1e6 }), { maxLength: 300 }),
        fc.boolean(),
        (times, narrow) => {
          const deadlines = Float64Array.from(times, (time) => (narrow ? time % 1000 : time));
          const slots = times.map((_, slot) => slot);
          const expected = slots.toSorted((a, b) => deadlines[a]! - deadlines[b]!);
          assert.deepEqual(orderByDeadline(slots, deadlines), expected);
        },
      ),
    );
  });
});
