import assert from "node:assert/strict";
import { after, test } from "node:test";
import { toWireRange } from "./bytes.ts";
import { connect, LockstepError, REAL_RUNTIME, type Client, type WatchEvent } from "./index.ts";
import { FakeMember } from "./testing/fake-cell.ts";

const cleanUps: (() => void)[] = [];
after(() => {
  for (const cleanUp of cleanUps.reverse()) cleanUp();
});

async function setUp(): Promise<{ member: FakeMember; client: Client }> {
  const member = await FakeMember.start();
  cleanUps.push(() => member.stop());
  const client = await connect({ endpoints: [member.address] });
  cleanUps.push(() => client.close());
  return { member, client };
}

async function take(events: AsyncIterable<WatchEvent>, count: number): Promise<WatchEvent[]> {
  const taken: WatchEvent[] = [];
  for await (const event of events) {
    taken.push(event);
    if (taken.length === count) break;
  }
  return taken;
}

test("a watch from now on loses nothing when the stream breaks before its first event", async () => {
  const { member, client } = await setUp();
  const watch = client.watch("a");
  await watch.created;
  member.breakStreams();
  await client.put("a", "1");
  const [event] = await take(watch, 1);
  assert.equal(event?.kv.text(), "1");
});

test("breaks in the middle of a watch leave no gap and no duplicate", async () => {
  const { member, client } = await setUp();
  const watch = client.watch({ prefix: "w/" });
  await watch.created;
  const writes = (async (): Promise<void> => {
    for (let i = 0; i < 60; i++) {
      if (i % 20 === 10) member.breakStreams();
      await client.put(`w/${String(i)}`, String(i));
    }
  })();
  const values = (await take(watch, 60)).map((event) => event.kv.text());
  await writes;
  assert.deepEqual(
    values,
    Array.from({ length: 60 }, (_, i) => String(i)),
  );
});

test("a place in the history that was compacted is told with the revision to go on from", async () => {
  const { client } = await setUp();
  for (let i = 0; i < 5; i++) await client.put("a", String(i));
  await client.compact(5);
  await assert.rejects(take(client.watch("a", { startRevision: 2 }), 1), (error) => {
    assert.ok(error instanceof LockstepError);
    assert.equal(error.code, "compacted");
    assert.equal(error.compactRevision, 5);
    return true;
  });
});

test("a slow consumer stops the watch at the cell, and gets everything once it catches up", async () => {
  const { member, client } = await setUp();
  const watch = client.watch({ prefix: "w/" }, { bufferEvents: 10 });
  await watch.created;
  for (let i = 0; i < 100; i++) await client.put(`w/${String(i)}`, String(i));
  assert.equal(member.watchCount(), 0);
  const values = (await take(watch, 100)).map((event) => event.kv.text());
  assert.deepEqual(
    values,
    Array.from({ length: 100 }, (_, i) => String(i)),
  );
});

test("leaving the loop ends the watch at the cell", async () => {
  const { member, client } = await setUp();
  const watch = client.watch("a");
  await client.put("a", "1");
  await take(watch, 1);
  await client.put("b", "1");
  assert.equal(member.watchCount(), 0);
});

test("a revision's events come in one batch, with the revision to resume from", async () => {
  const { client } = await setUp();
  const watch = client.watch({ prefix: "w/" });
  await watch.created;
  const { revision } = await client.txn({
    success: [{ put: { key: "w/1", value: "1" } }, { put: { key: "w/2", value: "2" } }],
  });
  for await (const batch of watch.batches()) {
    assert.equal(batch.events.length, 2);
    assert.equal(watch.revision, revision);
    break;
  }
});

test("a signal ends the iteration quietly, the client's close does not", async () => {
  const { client } = await setUp();
  const abort = new AbortController();
  const quiet = take(client.watch("a", { signal: abort.signal }), 1);
  const loud = take(client.watch("a"), 1);
  abort.abort();
  assert.deepEqual(await quiet, []);
  client.close();
  await assert.rejects(loud, { code: "closed" });
});

test("a listener that throws harms neither the stream nor the other listeners; its exception surfaces by itself", async () => {
  const member = await FakeMember.start();
  cleanUps.push(() => member.stop());
  const surfaced: unknown[] = [];
  const caught = (callback: () => void) => (): void => {
    try {
      callback();
    } catch (error) {
      surfaced.push((error as Error).message);
    }
  };
  const client = await connect({
    endpoints: [member.address],
    runtime: {
      ...REAL_RUNTIME,
      afterTurn: (callback) => REAL_RUNTIME.afterTurn(caught(callback)),
      schedule: (callback, delayMs) => REAL_RUNTIME.schedule(caught(callback), delayMs),
    },
  });
  cleanUps.push(() => client.close());
  const fail = (what: string) => (): never => {
    throw new Error(what);
  };
  client.channel.onInfo(fail("info"));
  client.channel.onConnection(fail("connection"));
  client.channel.watch(
    { range: toWireRange("a"), startRevision: 0, returnPrevious: false, omit: undefined },
    { created: fail("created"), events: fail("events"), progress: fail("progress"), ended: fail("ended") },
  );
  const watch = client.watch("a");
  await watch.created;
  member.announce();
  await client.put("a", "1");
  const [event] = await take(watch, 1);
  assert.equal(event?.kv.text(), "1");
  assert.equal((await client.get("a"))?.text(), "1");
  member.breakStreams();
  await client.put("a", "2");
  for (const what of ["info", "connection", "created", "events"])
    assert.ok(surfaced.includes(what), `${what}: ${surfaced.join()}`);
  assert.ok(client.channel.connected);
});
