// Very many clients lose their member at once. What users of other clients met: they came back in the same instant, again
// and again, and took the server down a second time.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { addressOf, CalmCell, type Dial } from "./calm-cell.ts";

const CLIENTS = 300;
/** While nobody answers, delays grow up to this: then each asks every member once a second on average. */
const CEILING_MS = 2_000;

async function crowded(members: number, seed: number): Promise<CalmCell> {
  const cell = new CalmCell(members, seed);
  for (let index = 0; index < CLIENTS; index++) await cell.connect();
  // All are where they want to be.
  await cell.pass(5_000);
  cell.dials.length = 0;
  return cell;
}

/** The most dials within any stretch of this length. */
function most(dials: readonly Dial[], windowMs: number): number {
  let highest = 0;
  let from = 0;
  dials.forEach(({ atMs }, to) => {
    while ((dials[from]?.atMs ?? atMs) <= atMs - windowMs) from += 1;
    highest = Math.max(highest, to - from + 1);
  });
  return highest;
}

describe("G46: a crowd whose members are gone", () => {
  it("asks at random times that come apart more and more, and is back within the longest delay, not in one instant", async () => {
    const cell = await crowded(1, 1);
    cell.kill("m1");
    const goneMs = cell.nowMs;
    await cell.pass(60_000);
    const settled = cell.dials.filter(({ atMs }) => atMs > goneMs + 20_000);
    // One a second each, on average: 40 seconds' worth, evenly.
    assert.ok(
      settled.length > CLIENTS * 40 * 0.9 && settled.length < CLIENTS * 40 * 1.1,
      String(settled.length),
    );
    assert.ok(
      most(settled, 100) < (CLIENTS / 10) * 2,
      `${String(most(settled, 100))} in a tenth of a second`,
    );

    cell.start("m1");
    const backMs = cell.nowMs;
    cell.dials.length = 0;
    await cell.pass(2 * CEILING_MS);
    const back = cell.dials.map(({ atMs }) => atMs - backMs);
    assert.equal(new Set(cell.dials.map(({ host }) => host)).size, CLIENTS, "everybody is back");
    assert.equal(back.length, CLIENTS, "with one connection each");
    assert.ok(Math.max(...back) < CEILING_MS + 10, String(Math.max(...back)));
    assert.ok(most(cell.dials, 100) < CLIENTS / 4, `${String(most(cell.dials, 100))} in a tenth of a second`);
  });

  it("when others are there, goes to them at once and evenly, each client with one dial at a time", async () => {
    const cell = await crowded(3, 2);
    cell.coordinator.setLeader(undefined);
    cell.kill("m1");
    await cell.pass(10_000);
    const perMember = ["m2", "m3"].map(
      (host) => cell.dials.filter(({ address }) => address === addressOf(host)).length,
    );
    for (const count of perMember)
      assert.ok(count > CLIENTS * 0.4 && count < CLIENTS * 0.6, perMember.join());
    const perClient = new Map<string, number>();
    for (const { host } of cell.dials) perClient.set(host, (perClient.get(host) ?? 0) + 1);
    // The one that is gone may be asked, too, and refuses.
    assert.ok(Math.max(...perClient.values()) <= 3, `${String(Math.max(...perClient.values()))} dials`);
  });
});
