import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ClientLane, LANE_IDLE_MS, LanePool } from "./identity.ts";

test("acknowledgedBelow is the lowest outstanding sequence, and no two outstanding are 1,024 apart", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(2_000), { minLength: 1, maxLength: 4_000 }), (choices) => {
      const lane = new ClientLane(1, 0);
      // The dumb twin: just the set.
      const outstanding = new Set<number>();
      let next = 1;
      for (const choice of choices) {
        if (choice % 3 !== 0 && lane.hasRoom) {
          assert.equal(lane.take(0), next);
          outstanding.add(next++);
        } else if (outstanding.size > 0) {
          const done = [...outstanding][choice % outstanding.size]!;
          outstanding.delete(done);
          lane.done(done);
        }
        const lowest = Math.min(...outstanding, next);
        assert.equal(lane.acknowledgedBelow, lowest);
        assert.ok(next - lowest <= 1_024);
        assert.equal(lane.hasRoom, next - lowest < 1_024);
      }
    }),
    { numRuns: 30 },
  );
});

test("a full lane is passed over, a rested one is not used again", () => {
  const pool = new LanePool();
  const first = new ClientLane(1, 0);
  pool.add(first);
  for (let i = 0; i < 1_024; i++) first.take(0);
  assert.equal(pool.pick(0), undefined);
  const second = new ClientLane(2, 0);
  pool.add(second);
  assert.equal(pool.pick(0), second);
  assert.equal(pool.pick(LANE_IDLE_MS + 1), undefined);
  // The full one has outstanding mutations, which may be sent again: it stays.
  first.done(1);
  assert.equal(pool.pick(LANE_IDLE_MS + 1), first);
});
