import assert from "node:assert/strict";
import { test } from "node:test";
import { claimSuite } from "./testing/claim-suite.ts";
import { keysIn, setUp } from "./testing/set-up.ts";

claimSuite({ name: "exclusive lock", acquire: (client, options) => client.lock("job", options) });

test("exclusive lock: its key is /locks/NAME, whatever the name holds", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000, owner: "me" });
  await using lock = await client.lock("a/~/b", { session });
  assert.deepEqual(keysIn(member), ["/locks/a/~/b"]);
  const holder = await client.lock("a/~/b").holder();
  assert.equal(holder?.token, lock.token);
  assert.equal(holder.owner, "me");
  assert.equal(await client.lock("free").holder(), undefined);
});

test("exclusive lock: ten thousand on one session end with it, at once", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 60_000 });
  const locks = await Promise.all(
    Array.from({ length: 10_000 }, (_, i) => client.lock(`job/${String(i)}`, { session, watchKey: false })),
  );
  assert.equal(member.store.kvs.size, 10_000);
  const [first] = locks;
  let told = false;
  first?.held.addEventListener("abort", () => (told = true));
  await session.close();
  assert.ok(told);
  assert.ok(locks.every((lock) => lock.held.aborted));
});
