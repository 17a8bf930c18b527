import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReadWriteHold } from "../index.ts";
import { claimSuite } from "./testing/claim-suite.ts";
import { eventually, keysIn, settled, setUp } from "./testing/set-up.ts";

claimSuite({
  name: "read-write lock, writer",
  acquire: (client, options) => client.readWriteLock("job").write(options),
});

test("read-write lock: readers share, a writer is alone, and tokens fit the two marks of a guard", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.readWriteLock("job");
  const before = member.requests.length;
  const first = await lock.read({ session });
  assert.equal(member.requests.length - before, 1);
  const second = await lock.read({ session });
  assert.equal(await lock.tryWrite({ session }), undefined);
  const writing = lock.write({ session });
  await eventually("it waits", () => member.watchCount() === 1);
  await first.release();
  await second.release();
  const writer = await writing;
  assert.ok(writer.token > second.token && second.token > first.token);
  assert.equal(writer.mode, "write");
  assert.equal(await lock.tryRead({ session }), undefined);
  assert.equal(await lock.tryWrite({ session }), undefined);
  const reading = lock.read({ session });
  await eventually("it waits", () => member.watchCount() === 1);
  await writer.release();
  const reader = await reading;
  assert.ok(reader.token > writer.token);
  await reader.release();
  assert.deepEqual(keysIn(member), []);
});

test("read-write lock: a writer is not starved: who reads later waits for it, and all who do are served together", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.readWriteLock("job");
  const reader = await lock.read({ session });
  const order: string[] = [];
  const holds: ReadWriteHold[] = [];
  const note = (name: string) => (hold: ReadWriteHold) => {
    order.push(name);
    holds.push(hold);
  };
  const writing = lock.write({ session }).then(note("writer"));
  await eventually("it waits", () => member.watchCount() === 1);
  const reads = [1, 2, 3].map((n) => lock.read({ session }).then(note(`reader ${String(n)}`)));
  await eventually("they wait", () => member.watchCount() === 4);
  const { readers, writer, waiting } = await lock.inspect();
  assert.equal(readers.length, 1);
  assert.equal(writer, undefined);
  assert.deepEqual(
    waiting.map(({ mode }) => mode),
    ["write", "read", "read", "read"],
  );
  assert.deepEqual(order, []);
  await reader.release();
  await writing;
  assert.deepEqual(order, ["writer"]);
  assert.equal((await lock.inspect()).writer?.token, holds[0]?.token);
  await holds[0]?.release();
  await Promise.all(reads);
  assert.equal(order.length, 4);
  for (const hold of holds.slice(1)) hold.assertHeld();
});

test("read-write lock: a writer that gives up lets the readers behind it in, and an earlier writer is still waited for", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.readWriteLock("job");
  const first = await lock.write({ session });
  const abort = new AbortController();
  const second = assert.rejects(lock.write({ session, signal: abort.signal }), { code: "cancelled" });
  await eventually("it waits", () => member.watchCount() === 1);
  let read = false;
  const reading = lock.read({ session }).then((hold) => {
    read = true;
    return hold;
  });
  await eventually("it waits", () => member.watchCount() === 2);
  abort.abort();
  await second;
  await eventually("the reader looks again", () => member.watchCount() === 1);
  await settled(client);
  assert.equal(read, false);
  await first.release();
  assert.equal((await reading).mode, "read");
});
