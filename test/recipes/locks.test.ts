import { connect, type Client, type Claim, type Session } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

const CONTENDERS = 8;
const TURNS = 12;

interface Contender {
  readonly client: Client;
  readonly session: Session;
}

describe("locks on a real cell (R=3)", () => {
  let cell: TestCell;
  const open: Contender[] = [];
  before(async () => {
    cell = await TestCell.start(3);
  });
  after(async () => {
    await cell.stop();
  });
  afterEach(async () => {
    const contenders = open.splice(0);
    const [first] = contenders;
    if (first !== undefined) {
      await Promise.all(contenders.map(({ session }) => session.close()));
      const left = await first.client.range({ prefix: "/" }, { keysOnly: true });
      assert.deepEqual(
        left.kvs.map((kv) => kv.keyText),
        [],
        "a recipe left keys behind",
      );
    }
    for (const { client } of contenders) client.close();
  });

  async function contender(ttlMs = 10_000): Promise<Contender> {
    const client = await connect({ endpoints: cell.endpoints });
    const made = { client, session: await client.session({ ttlMs }) };
    open.push(made);
    return made;
  }

  /** Each contender takes it some times; the register beside checks who is in, and by which token. */
  async function contend(
    contenders: readonly Contender[],
    acquire: (contender: Contender) => Promise<Claim>,
  ): Promise<number[]> {
    const tokens: number[] = [];
    let inside = 0;
    await Promise.all(
      contenders.map(async (each) => {
        for (let turn = 0; turn < TURNS; turn++) {
          await using claim = await acquire(each);
          inside += 1;
          assert.equal(inside, 1, "two holders at once");
          tokens.push(claim.token);
          await each.client.get("/work");
          claim.assertHeld();
          inside -= 1;
        }
      }),
    );
    return tokens;
  }

  function assertIncreasing(tokens: readonly number[]): void {
    for (const [index, token] of tokens.entries())
      assert.ok(token > (tokens[index - 1] ?? 0), String(tokens));
  }

  it("fair lock: eight contenders exclude each other, tokens grow, and nothing is left", async () => {
    const contenders = await Promise.all(Array.from({ length: CONTENDERS }, () => contender()));
    const tokens = await contend(contenders, ({ client, session }) =>
      client.fairLock("contended").acquire({ session }),
    );
    assert.equal(tokens.length, CONTENDERS * TURNS);
    assertIncreasing(tokens);
  });

  it("fair lock: eight contenders are served in the order of asking", async () => {
    const contenders = await Promise.all(Array.from({ length: CONTENDERS }, () => contender()));
    const [first, ...others] = contenders;
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
    const contenders = await Promise.all(Array.from({ length: CONTENDERS }, () => contender()));
    assertIncreasing(
      await contend(contenders, ({ client, session }) => client.lock("contended", { session })),
    );
  });

  it("fair lock: the leader of the cell is killed while eight contend: exclusion and order of tokens hold, and nobody hangs", async () => {
    const contenders = await Promise.all(Array.from({ length: CONTENDERS }, () => contender(15_000)));
    const leader = await cell.leader();
    let taken = 0;
    const tokens = await contend(contenders, async ({ client, session }) => {
      const lock = await client.fairLock("killed").acquire({ session });
      taken += 1;
      if (taken === CONTENDERS * 3) await leader.kill();
      return lock;
    });
    assert.equal(tokens.length, CONTENDERS * TURNS);
    assertIncreasing(tokens);
    leader.start();
    await cell.agreedDigest();
  });
});
