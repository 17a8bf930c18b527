import assert from "node:assert/strict";
import { test } from "node:test";
import { claimSuite } from "./testing/claim-suite.ts";
import { eventually, keysIn, setUp } from "./testing/set-up.ts";

claimSuite({
  name: "semaphore with one permit",
  acquire: (client, options) => client.semaphore("job", { permits: 1 }).acquire(options),
  roundTrips: 2,
});

test("semaphore: as many hold as there are permits, in the order of asking, and each slot's tokens grow", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const semaphore = client.semaphore("job", { permits: 3 });
  const marks = [0, 0, 0];
  let holders = 0;
  const order: number[] = [];
  await Promise.all(
    Array.from({ length: 20 }, async (_, turn) => {
      await using permit = await semaphore.acquire({ session });
      holders += 1;
      assert.ok(holders <= 3, "more holders than permits");
      assert.ok(permit.token > (marks[permit.slot] ?? Infinity), "a slot's tokens grow");
      marks[permit.slot] = permit.token;
      order.push(turn);
      await client.get("/work");
      permit.assertHeld();
      holders -= 1;
    }),
  );
  assert.deepEqual(
    order,
    Array.from({ length: 20 }, (_, turn) => turn),
  );
  assert.deepEqual(keysIn(member), []);
});

test("semaphore: who counts with another number of permits is told, and who counted first", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000, owner: "first" });
  const three = client.semaphore("job", { permits: 3 });
  const five = client.semaphore("job", { permits: 5 });
  await using held = await three.acquire({ session });
  await assert.rejects(five.acquire({ session }), (error: Error & { code?: string }) => {
    assert.equal(error.code, "limit-mismatch");
    assert.match(error.message, /3 permits for "first".*5 here/);
    return true;
  });
  assert.deepEqual(keysIn(member), [held.key]);
  await held.release();
  await using other = await five.acquire({ session });
  assert.equal(other.slot, 0);
  assert.throws(() => client.semaphore("job", { permits: 0 }), TypeError);
  assert.throws(() => client.semaphore("job", { permits: 1_001 }), TypeError);
});

test("semaphore: a slot freed by an expired session goes to the first that waits, and nobody else wakes", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const doomed = await client.session({ ttlMs: 10_000, owner: "doomed" });
  const semaphore = client.semaphore("job", { permits: 2 });
  const first = await semaphore.acquire({ session: doomed });
  const second = await semaphore.acquire({ session });
  assert.deepEqual([first.slot, second.slot], [0, 1]);
  assert.equal(await semaphore.tryAcquire({ session }), undefined);
  const waiting = [semaphore.acquire({ session }), semaphore.acquire({ session })];
  await eventually("they wait", () => member.watchCount() === 2);
  const { holders, waiters } = await semaphore.inspect();
  assert.deepEqual(
    holders.map(({ slot, owner }) => [slot, owner]),
    [
      [0, "doomed"],
      [1, ""],
    ],
  );
  assert.equal(waiters.length, 2);
  member.store.expire(doomed.leaseId);
  const third = await waiting[0];
  assert.equal(third?.slot, 0);
  assert.ok(third.token > first.token);
  await second.release();
  const fourth = await waiting[1];
  assert.equal(fourth?.slot, 1);
  assert.ok(fourth.token > second.token);
});

test("semaphore: a ticket that turned into a slot whose answer was lost leaves neither behind", async () => {
  const { member, client } = await setUp({ identity: "none" });
  const session = await client.session({ ttlMs: 10_000 });
  member.judge = (_, { operation }) => {
    const take = operation?.$case === "txn" && operation.value.success.length === 2;
    if (!take) return { kind: "execute" };
    member.judge = () => ({ kind: "execute" });
    return { kind: "execute-and-break" };
  };
  const semaphore = client.semaphore("job", { permits: 2 });
  await assert.rejects(semaphore.acquire({ session, waitMs: 0 }), { outcome: "unknown" });
  assert.deepEqual(keysIn(member), []);
});
