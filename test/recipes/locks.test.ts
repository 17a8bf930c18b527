import type { Claim } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { until } from "../support/until.ts";
import { RecipeCell, type Contender } from "./recipe-cell.ts";

const CONTENDERS = 8;
const TURNS = 12;

describe("locks on a real cell (R=3)", () => {
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

  /** Each contender takes it some times, and the work beside checks how many are in. @returns the claims in order. */
  async function contend<C extends Claim>(
    contenders: readonly Contender[],
    acquire: (contender: Contender) => Promise<C>,
    holdersMax = 1,
  ): Promise<C[]> {
    const claims: C[] = [];
    let inside = 0;
    await Promise.all(
      contenders.map(async (each) => {
        for (let turn = 0; turn < TURNS; turn++) {
          await using claim = await acquire(each);
          inside += 1;
          assert.ok(inside <= holdersMax, `${String(inside)} holders at once`);
          claims.push(claim);
          await each.client.get("/work");
          claim.assertHeld();
          inside -= 1;
        }
      }),
    );
    assert.equal(claims.length, contenders.length * TURNS);
    return claims;
  }

  function assertIncreasing(claims: readonly Claim[]): void {
    for (const [index, { token }] of claims.entries()) {
      assert.ok(token > (claims[index - 1]?.token ?? 0), "tokens grow");
    }
  }

  it("fair lock: eight contenders exclude each other, tokens grow, and nothing is left", async () => {
    const contenders = await world.contenders(CONTENDERS);
    assertIncreasing(
      await contend(contenders, ({ client, session }) => client.fairLock("contended").acquire({ session })),
    );
  });

  it("fair lock: eight contenders are served in the order of asking", async () => {
    const [first, ...others] = await world.contenders(CONTENDERS);
    assert.ok(first !== undefined);
    const holder = await first.client.fairLock("ordered").acquire({ session: first.session });
    const served: number[] = [];
    const turns: Promise<void>[] = [];
    for (const [place, { client, session }] of others.entries()) {
      turns.push(client.fairLock("ordered").with({ session }, () => void served.push(place)));
      await until("it waits", async () => {
        const { waiters } = await first.client.fairLock("ordered").inspect();
        return waiters.length === place + 1 ? true : undefined;
      });
    }
    await holder.release();
    await Promise.all(turns);
    assert.deepEqual(
      served,
      others.map((_, place) => place),
    );
  });

  it("exclusive lock: eight contenders exclude each other, tokens grow, and nothing is left", async () => {
    const contenders = await world.contenders(CONTENDERS);
    assertIncreasing(
      await contend(contenders, ({ client, session }) => client.lock("contended", { session })),
    );
  });

  it("multi-lock: eight contenders for overlapping pairs exclude each other, and nobody waits for ever", async () => {
    const contenders = await world.contenders(CONTENDERS);
    let turn = 0;
    assertIncreasing(
      await contend(contenders, ({ client, session }) => {
        turn += 1;
        const others = turn % 2 === 0 ? ["shared", `z${String(turn)}`] : ["a", "shared"];
        return client.multiLock(others).acquire({ session });
      }),
    );
  });

  it("semaphore: no more holders than permits, and the tokens of each slot grow", async () => {
    const contenders = await world.contenders(CONTENDERS);
    const permits = await contend(
      contenders,
      ({ client, session }) => client.semaphore("contended", { permits: 3 }).acquire({ session }),
      3,
    );
    for (const slot of [0, 1, 2]) assertIncreasing(permits.filter((permit) => permit.slot === slot));
  });

  it("read-write lock: readers never see a writer, writers are alone, and tokens fit a guard's two marks", async () => {
    const contenders = await world.contenders(CONTENDERS);
    const marks = { read: 0, write: 0 };
    const inside = { read: 0, write: 0 };
    await Promise.all(
      contenders.map(async ({ client, session }, index) => {
        const lock = client.readWriteLock("contended");
        for (let turn = 0; turn < TURNS; turn++) {
          const mode = (turn + index) % 4 === 0 ? "write" : "read";
          await using hold = await lock[mode]({ session });
          inside[mode] += 1;
          assert.equal(inside.write, mode === "write" ? 1 : 0);
          if (mode === "write") assert.equal(inside.read, 0);
          assert.ok(hold.token >= marks.write);
          if (mode === "write") assert.ok(hold.token >= marks.read);
          marks[mode] = Math.max(marks[mode], hold.token);
          await client.get("/work");
          hold.assertHeld();
          inside[mode] -= 1;
        }
      }),
    );
  });

  it("fair lock: the leader of the cell is killed while eight contend: exclusion and order of tokens hold, and nobody hangs", async () => {
    const contenders = await world.contenders(CONTENDERS, 15_000);
    const leader = await world.cell.leader();
    let taken = 0;
    const locks = await contend(contenders, async ({ client, session }) => {
      const lock = await client.fairLock("killed").acquire({ session });
      taken += 1;
      if (taken === CONTENDERS * 3) await leader.kill();
      return lock;
    });
    assertIncreasing(locks);
    leader.start();
    await world.cell.agreedDigest();
  });
});
