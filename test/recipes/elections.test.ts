import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { until } from "../support/until.ts";
import { RecipeCell } from "./recipe-cell.ts";

describe("elections on a real cell (R=3)", () => {
  let world: RecipeCell;
  before(async () => {
    world = await RecipeCell.start();
  });
  after(async () => {
    await world.stop();
  });
  afterEach(async () => {
    await world.assertNothingLeft();
  });

  it("each candidate leads once, alone, in a larger term, and an observer sees no term twice or backwards", async () => {
    const contenders = await world.contenders(8);
    const observer = await world.contender();
    const stop = new AbortController();
    const seen: number[] = [];
    const observing = (async (): Promise<void> => {
      for await (const leader of observer.client.election("job").observe({ signal: stop.signal })) {
        if (leader !== undefined) seen.push(leader.term);
      }
    })();
    const terms: number[] = [];
    let leaders = 0;
    await Promise.all(
      contenders.map(({ client, session }, index) =>
        client.election("job").lead({ session, value: String(index) }, async (leadership) => {
          leaders += 1;
          assert.equal(leaders, 1);
          terms.push(leadership.term);
          await until("it is seen", () => (seen.at(-1) === leadership.term ? true : undefined));
          leaders -= 1;
        }),
      ),
    );
    stop.abort();
    await observing;
    assert.deepEqual(seen, terms);
    assert.deepEqual(
      terms,
      [...terms].sort((a, b) => a - b),
    );
  });

  it("a leader that is cut off for good is followed by the next candidate, and knew before it that its time was over", async () => {
    const doomed = await world.contender(3_000);
    const { client, session } = await world.contender();
    const first = await doomed.client.election("job").campaign({ session: doomed.session });
    const next = client.election("job").campaign({ session });
    let knewAt = Infinity;
    first.held.addEventListener("abort", () => (knewAt = performance.now()), { once: true });
    // Its process stops to speak, without a word to the cell.
    doomed.client.close();
    const second = await next;
    assert.ok(knewAt < performance.now());
    assert.ok(second.term > first.term);
    assert.throws(() => first.assertHeld());
    await second.resign();
  });

  it("the leader of the cell is killed while somebody leads and somebody waits: neither is disturbed", async () => {
    const [one, two] = await world.contenders(2, 15_000);
    assert.ok(one !== undefined && two !== undefined);
    const leadership = await one.client.election("job").campaign({ session: one.session });
    const waiting = two.client.election("job").campaign({ session: two.session });
    const member = await world.cell.leader();
    await member.kill();
    await leadership.announce("still here");
    leadership.assertHeld();
    assert.equal((await two.client.election("job").leader())?.value, "still here");
    await leadership.resign();
    assert.ok((await waiting).term > leadership.term);
    await (await waiting).resign();
    member.start();
    await world.cell.agreedDigest();
  });
});
