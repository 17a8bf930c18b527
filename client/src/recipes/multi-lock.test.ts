import assert from "node:assert/strict";
import { test } from "node:test";
import { claimSuite } from "./testing/claim-suite.ts";
import { aborted, eventually, keysIn, setUp } from "./testing/set-up.ts";

claimSuite({
  name: "multi-lock",
  acquire: (client, options) => client.multiLock(["b", "a", "b"]).acquire(options),
  keys: 2,
});

test("multi-lock: all or nothing: while one is held by somebody else it holds none, and waits for that one", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const single = await client.lock("b", { session });
  assert.equal(await client.multiLock(["a", "b"]).tryAcquire({ session }), undefined);
  const waiting = client.multiLock(["a", "b"]).acquire({ session });
  await eventually("it waits", () => member.watchCount() === 1);
  assert.deepEqual(keysIn(member), ["/locks/b"]);
  await using free = await client.lock("a", { session, waitMs: 0 });
  await free.release();
  await single.release();
  const both = await waiting;
  assert.deepEqual(both.names, ["a", "b"]);
  assert.equal(await client.lock("a").tryAcquire({ session }), undefined);
  assert.ok(both.token > single.token);
  await both.release();
  assert.deepEqual(keysIn(member), []);
});

test("multi-lock: those that want the same in another order do not wait for each other", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  let inside = 0;
  await Promise.all(
    Array.from({ length: 10 }, async (_, turn) => {
      const names = turn % 2 === 0 ? ["x", "y", "z"] : ["z", "y"];
      await client.multiLock(names).with({ session }, async () => {
        inside += 1;
        assert.equal(inside, 1);
        await client.get("/work");
        inside -= 1;
      });
    }),
  );
  assert.deepEqual(keysIn(member), []);
});

test("multi-lock: when one of its keys is taken away it is over, and its release frees the rest", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const both = await client.multiLock(["a", "b"]).acquire({ session });
  await client.delete("/locks/b");
  await using other = await client.lock("b", { session });
  await both.release();
  assert.deepEqual(keysIn(member), [other.key]);
});

test("multi-lock: names are checked", async () => {
  const { client } = await setUp();
  for (const names of [[], [""], Array.from({ length: 65 }, (_, i) => String(i))]) {
    assert.throws(() => client.multiLock(names), TypeError);
  }
});

test("multi-lock: when somebody deletes one of its keys, its release frees the others", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const both = await client.multiLock(["a", "b"]).acquire({ session });
  await eventually("it is watched", () => member.watchCount() > 0);
  await client.delete("/locks/b");
  await aborted(both.held);
  await both.release();
  assert.deepEqual(keysIn(member), []);
});
