import assert from "node:assert/strict";
import { test } from "node:test";
import { claimSuite } from "./testing/claim-suite.ts";
import { connectTo, eventually, keysIn, settled, setUp } from "./testing/set-up.ts";

claimSuite({ name: "fair lock", acquire: (client, options) => client.fairLock("job").acquire(options) });

test("fair lock: it is served in the order of asking, and whoever waits looks once at most, however long the line", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.fairLock("job");
  const first = await lock.acquire({ session });
  const served: number[] = [];
  const releases: (() => Promise<void>)[] = [];
  const waiting: Promise<void>[] = [];
  for (let place = 0; place < 5; place++) {
    waiting.push(
      lock.acquire({ session }).then((held) => {
        served.push(place);
        releases.push(() => held.release());
      }),
    );
    await eventually("it waits", () => member.watchCount() === place + 1);
  }
  let release = (): Promise<void> => first.release();
  const before = member.requests.length;
  for (let place = 0; place < 5; place++) {
    await release();
    await waiting[place];
    assert.deepEqual(
      served,
      Array.from({ length: place + 1 }, (_, i) => i),
    );
    release = releases[place] ?? release;
  }
  await release();
  // Six releases, and looks of the two that had more before them than they follow.
  assert.ok(member.requests.length - before <= 8, String(member.requests.length - before));
  assert.deepEqual(keysIn(member), []);
});

test("fair lock: four contenders hand it on by the release and its event alone: nobody has to ask", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.fairLock("job");
  let holder = await lock.acquire({ session });
  const waiting = [1, 2, 3].map(() => lock.acquire({ session }));
  await eventually("they wait", () => member.watchCount() === 3);
  const before = member.requests.length;
  for (const next of waiting) {
    await holder.release();
    holder = await next;
  }
  await holder.release();
  assert.equal(member.requests.length - before, 4);
});

test("fair lock: a waiter in the middle that gives up lets nobody pass", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.fairLock("job");
  const holder = await lock.acquire({ session });
  const abort = new AbortController();
  const middle = assert.rejects(lock.acquire({ session, signal: abort.signal }), { code: "cancelled" });
  await eventually("it waits", () => member.watchCount() === 1);
  let served = false;
  const last = lock.acquire({ session }).then((held) => {
    served = true;
    return held;
  });
  await eventually("it waits", () => member.watchCount() === 2);
  abort.abort();
  await middle;
  await eventually("the last looks again and waits", () => member.watchCount() === 1);
  await settled(client);
  assert.equal(served, false);
  holder.assertHeld();
  await holder.release();
  assert.ok((await last).token > holder.token);
});

test("fair lock: C23: two waiters of one session do not both hold", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const holder = await client.fairLock("job").acquire({ session });
  assert.equal(await client.fairLock("job").tryAcquire({ session }), undefined);
  assert.equal(keysIn(member).length, 1);
  await holder.release();
  assert.ok((await client.fairLock("job").tryAcquire({ session })) !== undefined);
});

test("fair lock: whose place somebody deletes is told, and does not hold when its turn comes", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.fairLock("job");
  await using holder = await lock.acquire({ session });
  const ended = assert.rejects(lock.acquire({ session }), { code: "not-held" });
  await eventually("it waits", () => member.watchCount() === 1);
  const place = keysIn(member).find((key) => key !== holder.key);
  await client.delete(place ?? "");
  await ended;
});

test("fair lock: a name and a longer one that begins with it have nothing in common", async () => {
  const { client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  await using short = await client.fairLock("a").acquire({ session });
  await using long = await client.fairLock("a/b").acquire({ session, waitMs: 0 });
  await using digits = await client.fairLock("a/0000000000000001").acquire({ session, waitMs: 0 });
  assert.ok(short.token < long.token && long.token < digits.token);
  assert.throws(() => client.fairLock("a/~/b"), TypeError);
  assert.throws(() => client.fairLock(""), TypeError);
});

test("fair lock: inspect tells who holds it, since when, and who waits in which order", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const first = await client.session({ ttlMs: 10_000, owner: "one" });
  const second = await other.session({ ttlMs: 10_000, owner: "two" });
  await using held = await client.fairLock("job").acquire({ session: first });
  const abort = new AbortController();
  const waiting = assert.rejects(other.fairLock("job").acquire({ session: second, signal: abort.signal }));
  await eventually("it waits", () => member.watchCount() > 0);
  const { holder, waiters } = await client.fairLock("job").inspect();
  assert.equal(holder?.owner, "one");
  assert.equal(holder.token, held.token);
  assert.ok(Math.abs((holder.sinceMs ?? 0) - Date.now()) < 60_000);
  assert.deepEqual(
    waiters.map(({ owner }) => owner),
    ["two"],
  );
  abort.abort();
  await waiting;
});

test("fair lock: with() gives it up after the work, and tells when it did not last until the work's end", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.fairLock("job");
  assert.equal(await lock.with({ session }, (held) => Promise.resolve(held.name)), "job");
  assert.deepEqual(keysIn(member), []);
  await assert.rejects(
    lock.with({ session }, () => {
      throw new RangeError("of the work");
    }),
    RangeError,
  );
  assert.deepEqual(keysIn(member), []);
  await assert.rejects(
    lock.with({ session }, async (held) => {
      member.store.expire(session.leaseId);
      await new Promise((resolve) => held.held.addEventListener("abort", resolve));
    }),
    { code: "not-held" },
  );
});
