import assert from "node:assert/strict";
import { test } from "node:test";
import { connectTo, eventually, setUp } from "./testing/set-up.ts";

interface Limits {
  readonly perSecond: number;
}

function parse(json: unknown): Limits {
  if (typeof json !== "object" || json === null || !("perSecond" in json)) throw new TypeError("no limits");
  if (typeof json.perSecond !== "number") throw new TypeError("perSecond is a number");
  return { perSecond: json.perSecond };
}

test("value: the initial one holds until somebody sets it; then all see each change", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const options = {
    initial: { perSecond: 1 },
    parse,
    onError: (error: unknown) => assert.fail(String(error)),
  };
  await using one = await client.value<Limits>("/config/limits", options);
  await using two = await other.value<Limits>("/config/limits", options);
  assert.deepEqual([one.current.perSecond, one.revision], [1, 0]);
  const changes = two.changes();
  await one.set({ perSecond: 2 });
  assert.deepEqual((await changes.next()).value, { perSecond: 2 });
  assert.equal(
    await two.update(({ perSecond }) => ({ perSecond: perSecond + 1 })).then((v) => v.perSecond),
    3,
  );
  await eventually("the other sees it", () => one.current.perSecond === 3);
  assert.ok(one.revision > 0);
  await client.delete("/config/limits");
  await eventually("the initial one holds again", () => one.current.perSecond === 1);
});

test("value: what cannot be parsed leaves the last good one, and is told", async () => {
  const { client } = await setUp();
  const errors: unknown[] = [];
  await client.put("/config/limits", JSON.stringify({ perSecond: 5 }));
  await using value = await client.value<Limits>("/config/limits", {
    initial: { perSecond: 1 },
    parse,
    onError: (error) => errors.push(error),
  });
  await client.put("/config/limits", "{ not JSON");
  await client.put("/config/limits", JSON.stringify({ perSecond: "many" }));
  await eventually("both are told", () => errors.length === 2);
  assert.deepEqual(value.current, { perSecond: 5 });
  await client.put("/config/limits", JSON.stringify({ perSecond: 6 }));
  await eventually("a good one comes", () => value.current.perSecond === 6);
});

test("value: concurrent updates lose none", async () => {
  const { client } = await setUp();
  await using value = await client.value<Limits>("/config/limits", {
    initial: { perSecond: 0 },
    parse,
    onError: (error) => assert.fail(String(error)),
  });
  await Promise.all(
    Array.from({ length: 10 }, () => value.update(({ perSecond }) => ({ perSecond: perSecond + 1 }))),
  );
  assert.equal((await client.get("/config/limits"))?.text(), JSON.stringify({ perSecond: 10 }));
});
