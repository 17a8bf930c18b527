import assert from "node:assert/strict";
import { test } from "node:test";
import { ConditionFailedError, type PutResult, type RangeResult } from "../index.ts";
import { eventually, setUp } from "./testing/set-up.ts";

test("transaction: conditions, steps and results, each of its own type", async () => {
  const { client } = await setUp();
  const result = await client
    .transaction()
    .ifMissing("a")
    .put("a", "1")
    .put("b", "2")
    .get({ prefix: "" })
    .delete("b", { returnPrevious: true })
    .commit();
  assert.ok(result.ok);
  const [a, , all, gone] = result.results;
  const put: PutResult = a;
  const range: RangeResult = all;
  assert.equal(put.createRevision, result.revision);
  assert.equal(range.kvs.length, 2);
  assert.equal(gone.previous[0]?.text(), "2");
});

test("transaction: a refusal says which conditions failed and what was there, and does what was to be done otherwise", async () => {
  const { client } = await setUp();
  await client.put("a", "1");
  const { modRevision } = (await client.get("a")) ?? { modRevision: 0 };
  const result = await client
    .transaction()
    .ifMissing("a")
    .ifExists("b")
    .ifVersion("a", 1)
    .ifModRevision("a", modRevision + 1)
    .ifValue("a", "2")
    .if({ key: "a", operator: "<", version: 1 })
    .put("a", "3")
    .otherwise((steps) => steps.get("a").put("refused", "x"))
    .commit();
  assert.ok(!result.ok);
  assert.deepEqual(
    result.failed.map(({ kind, key }) => [kind, key]),
    [
      ["missing", "a"],
      ["exists", "b"],
      ["modRevision", "a"],
      ["value", "a"],
      ["compare", "a"],
    ],
  );
  assert.equal(result.failed[0]?.actual?.text(), "1");
  assert.equal(result.failed[1]?.actual, undefined);
  const [look, put] = result.results;
  assert.equal(look.kvs[0]?.text(), "1");
  assert.equal(put.version, 1);
  assert.equal((await client.get("a"))?.text(), "1");
});

test("transaction: the throwing commit throws the same, as a sentence", async () => {
  const { client } = await setUp();
  await assert.rejects(client.transaction().ifExists("a").put("b", "1").commitOrThrow(), (error) => {
    assert.ok(error instanceof ConditionFailedError);
    assert.equal(error.code, "condition-failed");
    assert.equal(error.outcome, "not-applied");
    assert.match(error.message, /"a" was to exist, but it does not exist/);
    assert.equal(error.failed.length, 1);
    return true;
  });
  assert.equal(await client.get("b"), undefined);
  assert.equal((await client.transaction().ifMissing("a").put("a", "1").commitOrThrow()).results.length, 1);
});

test("transaction: ifHeld lets the holder write, and nobody who held before", async () => {
  const { client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const early = await client.fairLock("job").acquire({ session });
  const write = client.transaction().ifHeld(early).put("result", "early");
  assert.ok((await write.commit()).ok);
  // The key goes, and this process does not know it yet: the cell does.
  await client.delete(early.key);
  const late = await client.fairLock("job").acquire({ session });
  const refused = await write.commit();
  assert.ok(!refused.ok);
  assert.equal(refused.failed[0]?.kind, "held");
  assert.equal(refused.failed[0].claim, early);
  assert.ok((await client.transaction().ifHeld(late).put("result", "late").commit()).ok);
  assert.equal((await client.get("result"))?.text(), "late");
});

test("transaction: ifHeld asks the own clock first: after the session's end nothing is sent", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const locks = await client.multiLock(["a", "b"]).acquire({ session });
  const write = client.transaction().ifHeld(locks).put("result", "x");
  assert.ok((await write.commit()).ok);
  member.store.expire(session.leaseId);
  await eventually("it knows", () => locks.held.aborted);
  const before = member.frames.length;
  await assert.rejects(write.commit(), { code: "not-held", outcome: "not-applied" });
  assert.equal(member.frames.length, before);
});

test("transaction: building on goes its own way, and leaves what was built before", async () => {
  const { client } = await setUp();
  const base = client.transaction().ifMissing("a");
  const one = base.put("a", "1");
  base.put("a", "2").put("b", "2");
  assert.ok((await one.commit()).ok);
  assert.equal((await client.get("a"))?.text(), "1");
  assert.equal(await client.get("b"), undefined);
});
