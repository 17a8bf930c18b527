import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

const nightly = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly";
const ROUNDS = Number(process.env["LOCKSTEP_ROUNDS"] ?? (nightly ? 200 : 12));

describe("kill -9 under write load (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3);
  });
  after(async () => {
    await cell.stop();
  });

  it(`${String(ROUNDS)} rounds: no acknowledged write is lost and the members' hashes agree`, async (t) => {
    const writers = await Writers.start(cell.endpoints);
    t.after(() => writers.abandon());
    // A linear congruential sequence: the same victims in every run.
    let seed = 42;
    for (let round = 0; round < ROUNDS; round += 1) {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      const victim = cell.members[seed % cell.members.length];
      assert.ok(victim !== undefined);
      await writers.progress(50);
      await victim.kill("SIGKILL");
      await writers.progress(50);
      victim.start();
    }
    await writers.progress(50);
    const acknowledged = await writers.stop();
    t.diagnostic(
      `${String(writers.acknowledgedCount)} writes acknowledged, ${String(writers.unknownCount)} unknown, longest gap ${writers.longestGapMs.toFixed(0)} ms`,
    );
    await assertAllThere(cell.endpoints, acknowledged);
    await cell.agreedDigest();
  });
});
