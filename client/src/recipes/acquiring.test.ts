import assert from "node:assert/strict";
import { test } from "node:test";
import { connectTo, eventually, setUp } from "./testing/set-up.ts";

const LAST_SECOND_MS = 1_000;

test("acquiring: who waits in vain is told of an outage while it lasts, and not of one that is over", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 20_000 });
  const other = await connectTo(member);
  await other.lock("job", { session: await other.session({ ttlMs: 20_000 }), watchKey: false });
  let failures = 1;
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "txn" || failures === 0) return { kind: "execute" };
    failures -= 1;
    return { kind: "fail", failure: { code: "unavailable" } };
  };
  const waiting = (): Promise<unknown> => client.lock("job", { session, waitMs: 300 });
  await assert.rejects(waiting(), { code: "lock-timeout", message: /somebody else holds it$/ });
  assert.equal(failures, 0);
  failures = Infinity;
  await assert.rejects(waiting(), { code: "lock-timeout", message: /could not be asked/ });
});

test("acquiring: who gives up has one last second, however much there is to take back", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 20_000 });
  let transactions = 0;
  // It has its place in the line, and then the cell says nothing any more.
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "txn") return { kind: "execute" };
    transactions += 1;
    return { kind: transactions === 1 ? "execute" : "swallow" };
  };
  const began = performance.now();
  const acquired = client.semaphore("job", { permits: 1 }).acquire({ session, waitMs: 50 });
  await assert.rejects(acquired, { code: "lock-timeout" });
  assert.ok(performance.now() - began < 2 * LAST_SECOND_MS);
  await eventually("its place is being taken back, too", () => transactions === 3);
});
