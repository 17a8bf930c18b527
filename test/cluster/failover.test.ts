import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";

const ROUNDS = 3;
/** What a person would notice. The aim (docs/guarantees.md promises no figure) is a quarter of a second on a calm machine. */
const GAP_MS_MAX = 5_000;

describe("kill -9 of the leader (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3);
  });
  after(async () => {
    await cell.stop();
  });

  it("writes resume, by the evidence of reset connections, without waiting for an election timeout", async (t) => {
    for (let round = 1; round <= ROUNDS; round += 1) {
      const client = await connect({ endpoints: cell.endpoints });
      await client.put("gap", "warm");
      const leader = await cell.leader();
      const killedAt = performance.now();
      await leader.kill();
      await client.put("gap", String(round), { deadlineMs: GAP_MS_MAX });
      const gapMs = performance.now() - killedAt;
      t.diagnostic(`round ${String(round)}: a write was acknowledged ${gapMs.toFixed(0)} ms after the kill`);
      assert.ok(gapMs < GAP_MS_MAX);
      client.close();
      leader.start();
      await cell.agreedDigest();
    }
  });
});
