import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentSyncs } from "./recent-syncs.ts";

test("the slowest tenth of the recent syncs took at least this long", () => {
  const syncs = new RecentSyncs();
  for (let i = 1; i <= 100; i += 1) syncs.add(i, 0);
  assert.equal(syncs.p90Us(0), 91_000);
});

test("too few syncs say nothing", () => {
  const syncs = new RecentSyncs();
  for (let i = 0; i < 19; i += 1) syncs.add(5, 0);
  assert.equal(syncs.p90Us(0), 0);
  syncs.add(5, 0);
  assert.equal(syncs.p90Us(0), 5_000);
});

test("a stall of long ago does not count any more", () => {
  const syncs = new RecentSyncs();
  for (let i = 0; i < 500; i += 1) syncs.add(1_000, 0);
  for (let i = 0; i < 50; i += 1) syncs.add(2, 61_000);
  assert.equal(syncs.p90Us(61_000), 2_000);
});

test("under load only the newest are kept", () => {
  const syncs = new RecentSyncs();
  for (let i = 0; i < 5_000; i += 1) syncs.add(900, 0);
  for (let i = 0; i < 1_024; i += 1) syncs.add(1, 1);
  assert.equal(syncs.p90Us(1), 1_000);
});
