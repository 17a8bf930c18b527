import assert from "node:assert/strict";
import { after, test } from "node:test";
import { connect, lockKey, type Client, type ConnectOptions } from "./index.ts";
import { REAL_RUNTIME, type Runtime } from "./runtime.ts";
import { FakeMember } from "./testing/fake-cell.ts";

const cleanUps: (() => void)[] = [];
after(() => {
  for (const cleanUp of cleanUps.reverse()) cleanUp();
});

async function setUp(options: Partial<ConnectOptions> = {}): Promise<{ member: FakeMember; client: Client }> {
  const member = await FakeMember.start();
  cleanUps.push(() => member.stop());
  const client = await connect({ endpoints: [member.address], ...options });
  cleanUps.push(() => client.close());
  return { member, client };
}

function keyOf(member: FakeMember, name: string): unknown {
  return member.store.kvs.get(lockKey(name));
}

test("one holder at a time, each with a larger token than the one before", async () => {
  const { client } = await setUp();
  let holders = 0;
  const tokens: number[] = [];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const session = await client.session({ ttlMs: 10_000 });
      const lock = await client.lock("job", { session });
      holders += 1;
      assert.equal(holders, 1);
      lock.assertHeld();
      assert.equal(Number(lock.tokenString), lock.token);
      assert.equal(lock.tokenString.length, 16);
      tokens.push(lock.token);
      await client.put("work", "x");
      holders -= 1;
      await lock.release();
      await session.close();
    }),
  );
  assert.equal(tokens.length, 8);
  for (let i = 1; i < tokens.length; i++) assert.ok(tokens[i]! > tokens[i - 1]!);
});

test("a lock that is not free in time fails with lock-timeout, and with waitMs 0 at once", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const holder = await client.lock("job", { session });
  await assert.rejects(client.lock("job", { session, waitMs: 0 }), { code: "lock-timeout" });
  await assert.rejects(client.lock("job", { session, waitMs: 30 }), { code: "lock-timeout" });
  holder.assertHeld();
  await client.put("fence", "");
  assert.equal(member.watchCount(), 0);
});

test("the end of the session ends the hold and the waiting, and frees the lock for others", async () => {
  const { member, client } = await setUp();
  const first = await client.session({ ttlMs: 10_000 });
  const second = await client.session({ ttlMs: 10_000 });
  const held = await client.lock("job", { session: first });
  const waiting = client.lock("job", { session: second });
  const doomed = client.lock("other", { session: first });
  await doomed;
  const ended = assert.rejects(client.lock("other", { session: first }), { code: "session-lost" });
  await client.put("fence", "");
  member.store.expire(first.leaseId);
  await ended;
  assert.ok((await waiting).token > held.token);
  assert.ok(held.held.aborted);
  assert.throws(() => held.assertHeld(), { code: "not-held" });
  assert.equal(first.remainingMs(), 0);
  // No network, no error: there is nothing left to release.
  const before = member.frames.length;
  await held.release();
  assert.equal(member.frames.length, before);
});

test("B18: a claim whose answer is read after the session's own deadline gives no lock, though no timer has fired", async () => {
  let stoppedForMs = 0;
  const runtime: Runtime = { ...REAL_RUNTIME, now: () => REAL_RUNTIME.now() + stoppedForMs };
  const { member, client } = await setUp({ runtime });
  const session = await client.session({ ttlMs: 10_000 });
  member.judge = (_, { operation }) => {
    // The process is stopped while the answer is under way; its timers are late.
    if (operation?.$case === "txn") stoppedForMs = 20_000;
    return { kind: "execute" };
  };
  await assert.rejects(client.lock("job", { session }), { code: "session-lost" });
});

test("a late release never frees a later holder's lock", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const early = await client.lock("job", { session });
  await client.delete(lockKey("job"));
  const late = await client.lock("job", { session });
  await early.release();
  assert.ok(keyOf(member, "job") !== undefined);
  assert.ok(late.token > early.token);
});

test("an acquire whose outcome is unknown takes its key back", async () => {
  const { member, client } = await setUp({ identity: "none" });
  const session = await client.session({ ttlMs: 10_000 });
  let broken = false;
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "txn" || broken) return { kind: "execute" };
    broken = true;
    return { kind: "execute-and-break" };
  };
  await assert.rejects(client.lock("job", { session, waitMs: 0 }), {
    code: "connection-lost",
    outcome: "unknown",
  });
  assert.equal(keyOf(member, "job"), undefined);
});

test("a lock won after nobody waits any more is given back", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const abort = new AbortController();
  member.judge = (_, { operation }) => {
    if (operation?.$case === "txn" && operation.value.compares.length > 0) abort.abort();
    return { kind: "execute" };
  };
  await assert.rejects(client.lock("job", { session, signal: abort.signal }), { code: "cancelled" });
  assert.equal(keyOf(member, "job"), undefined);
});

test("an expired session refuses to be used", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lost = new Promise((resolve) => session.lost.addEventListener("abort", resolve));
  member.store.expire(session.leaseId);
  await lost;
  assert.throws(() => session.assertAlive(), { code: "session-lost" });
  await assert.rejects(client.lock("job", { session }), { code: "session-lost" });
});

test("closing a session frees its locks at once and never throws", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  await client.lock("job", { session });
  await session.close();
  assert.equal(keyOf(member, "job"), undefined);
  const other = await client.session({ ttlMs: 10_000 });
  member.stop();
  client.close();
  await other[Symbol.asyncDispose]();
});
