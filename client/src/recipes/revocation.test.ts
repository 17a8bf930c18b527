import assert from "node:assert/strict";
import { test } from "node:test";
import type { RevocationRequest } from "../index.ts";
import { connectTo, eventually, keysIn, setUp } from "./testing/set-up.ts";

const fail = (error: unknown): void => assert.fail(String(error));

test("revocation: the holder is asked, decides, and the one who asked gets it", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const mine = await client.session({ ttlMs: 10_000, owner: "holder" });
  const theirs = await other.session({ ttlMs: 10_000, owner: "asker" });
  assert.equal(await other.fairLock("job").askHolder({ session: theirs }), undefined);
  const held = await client.fairLock("job").acquire({ session: mine });
  const requests: RevocationRequest[] = [];
  await client.onAsked(
    held,
    async (request) => {
      requests.push(request);
      await held.release();
    },
    { onError: fail },
  );
  const request = await other.fairLock("job").askHolder({ session: theirs, reason: "maintenance" });
  assert.ok(request !== undefined);
  const next = await other.fairLock("job").acquire({ session: theirs });
  assert.deepEqual(
    requests.map(({ owner, reason }) => [owner, reason]),
    [["asker", "maintenance"]],
  );
  await request.release();
  await next.release();
  await eventually("nothing is left", () => keysIn(member).length === 0 && member.watchCount() === 0);
});

test("revocation: what was asked before the holder listened is told, once; its successor is not asked", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const first = await client.lock("job", { session });
  await using request = await client.lock("job").askHolder({ session, reason: "early" });
  assert.ok(request !== undefined);
  const told: string[] = [];
  await client.onAsked(first, ({ reason }) => told.push(reason), { onError: fail });
  await eventually("it is told", () => told.length === 1);
  await using again = await client.lock("job").askHolder({ session, reason: "again" });
  assert.ok(again !== undefined);
  await eventually("it is told", () => told.length === 2);
  assert.deepEqual(told, ["early", "again"]);
  await first.release();
  const second = await client.lock("job", { session });
  const late: string[] = [];
  await client.onAsked(second, ({ reason }) => late.push(reason), { onError: fail });
  assert.equal(await client.election("job").askLeader({ session }), undefined);
  assert.deepEqual(late, []);
  await second.release();
  await eventually("nobody listens any more", () => member.watchCount() === 0);
});

test("revocation: a request goes with the session of the one who asked", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const asker = await client.session({ ttlMs: 10_000 });
  await using held = await client.election("job").campaign({ session });
  await client.election("job").askLeader({ session: asker });
  assert.equal(keysIn(member).length, 2);
  await asker.close();
  assert.deepEqual(keysIn(member), [held.key]);
});

test("revocation: a listener that throws is told to onError, and still asked by the next", async () => {
  const { client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  await using held = await client.lock("job", { session });
  const errors: unknown[] = [];
  await client.onAsked(
    held,
    () => {
      throw new RangeError("of the listener");
    },
    { onError: (error) => errors.push(error) },
  );
  await using one = await client.lock("job").askHolder({ session });
  await using two = await client.lock("job").askHolder({ session });
  assert.ok(one !== undefined && two !== undefined);
  await eventually("both are told", () => errors.length === 2);
  assert.ok(errors.every((error) => error instanceof RangeError));
});
