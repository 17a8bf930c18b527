import assert from "node:assert/strict";
import { test } from "node:test";
import { connectTo, setUp } from "./testing/set-up.ts";

test("counter: each addition counts once, whoever adds at the same time", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const counters = [client.counter("jobs"), other.counter("jobs"), client.counter("jobs")];
  assert.equal(await client.counter("jobs").get(), 0);
  const seen = new Set<number>();
  await Promise.all(
    counters.flatMap((counter) =>
      Array.from({ length: 10 }, async () => {
        seen.add(await counter.add());
      }),
    ),
  );
  assert.equal(seen.size, 30);
  assert.equal(await client.counter("jobs").get(), 30);
  assert.equal(await client.counter("jobs").add(-31), -1);
});

test("counter: alone, an addition is one round trip", async () => {
  const { member, client } = await setUp();
  const counter = client.counter("jobs");
  await counter.add();
  const before = member.requests.length;
  assert.equal(await counter.add(), 2);
  assert.equal(await counter.add(5), 7);
  assert.equal(member.requests.length - before, 2);
});

test("counter: H47: an answer that is lost does not count twice", async () => {
  const { member, client } = await setUp();
  const counter = client.counter("jobs");
  await counter.add();
  let broken = false;
  member.judge = (_, { operation }) => {
    if (broken || operation?.$case !== "txn") return { kind: "execute" };
    broken = true;
    return { kind: "execute-and-break" };
  };
  assert.equal(await counter.add(), 2);
  assert.equal(await client.counter("jobs").get(), 2);
});

test("counter: what is no safe integer is refused, and left as it is", async () => {
  const { client } = await setUp();
  await client.put("/counters/odd", "1e3");
  await assert.rejects(client.counter("odd").get(), { code: "invalid-argument" });
  await assert.rejects(client.counter("odd").add(), { code: "invalid-argument" });
  await client.put("/counters/high", String(Number.MAX_SAFE_INTEGER));
  await assert.rejects(client.counter("high").add(), { code: "invalid-argument", outcome: "not-applied" });
  await assert.rejects(client.counter("high").add(0.5), TypeError);
  assert.equal((await client.get("/counters/odd"))?.text(), "1e3");
});
