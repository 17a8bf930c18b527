import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, keysIn, setUp } from "./testing/set-up.ts";

test("barrier: who waits goes on when it is lowered, and at once when it is down", async () => {
  const { member, client } = await setUp();
  const barrier = client.barrier("start");
  await barrier.wait();
  assert.equal(await barrier.raise(), true);
  assert.equal(await barrier.raise(), false);
  assert.equal(await barrier.isUp(), true);
  const waiting = [barrier.wait(), client.barrier("start").wait({ waitMs: 10_000 })];
  await eventually("they wait", () => member.watchCount() === 2);
  assert.equal(await barrier.lower(), true);
  await Promise.all(waiting);
  assert.equal(await barrier.lower(), false);
  assert.deepEqual(keysIn(member), []);
});

test("barrier: of a session it comes down with that, through forgotten history too", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const barrier = client.barrier("start");
  await barrier.raise({ session });
  const waiting = barrier.wait();
  await eventually("it waits", () => member.watchCount() === 1);
  member.greets = false;
  member.breakStreams();
  member.store.expire(session.leaseId);
  member.store.revision += 5;
  member.store.compactRevision = member.store.revision;
  member.greets = true;
  await waiting;
});

test("barrier: waiting ends by time and by a signal", async () => {
  const { client } = await setUp();
  const barrier = client.barrier("start");
  await barrier.raise();
  await assert.rejects(barrier.wait({ waitMs: 20 }), { code: "lock-timeout" });
  await assert.rejects(barrier.wait({ signal: AbortSignal.abort(new RangeError("mine")) }), RangeError);
});

test("double barrier: nobody begins before all have come, nobody goes on before all have left, and nothing stays", async () => {
  const { member, client } = await setUp();
  const barrier = client.doubleBarrier("work", { participants: 3 });
  let inside = 0;
  let left = 0;
  const part = async (): Promise<void> => {
    const session = await client.session({ ttlMs: 10_000 });
    const participation = await barrier.enter({ session });
    inside += 1;
    assert.equal(left, 0);
    await client.get("/work");
    left += 1;
    await participation.leave();
    assert.equal(left, 3);
  };
  const parts = [part(), part()];
  await eventually("two wait", () => member.watchCount() === 2);
  assert.equal(inside, 0);
  parts.push(part());
  await Promise.all(parts);
  assert.equal(inside, 3);
  assert.deepEqual(keysIn(member), []);
});

test("double barrier: who gives up counts no longer, and who dies inside is not waited for", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const doomed = await client.session({ ttlMs: 10_000 });
  const barrier = client.doubleBarrier("work", { participants: 2 });
  await assert.rejects(barrier.enter({ session, waitMs: 20 }), { code: "lock-timeout" });
  assert.deepEqual(keysIn(member), []);
  await assert.rejects(
    Promise.all([
      barrier.enter({ session, waitMs: 50 }),
      client.doubleBarrier("work", { participants: 3 }).enter({ session: doomed, waitMs: 50 }),
    ]),
    { code: "limit-mismatch" },
  );
  await eventually("all have given up", () => keysIn(member).length === 0);
  const [participation] = await Promise.all([barrier.enter({ session }), barrier.enter({ session: doomed })]);
  const leaving = participation.leave();
  await eventually("it waits for the other", () => member.watchCount() > 0);
  member.store.expire(doomed.leaseId);
  await leaving;
  assert.deepEqual(keysIn(member), []);
});
