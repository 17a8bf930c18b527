import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client, TreeView, ViewChange } from "../index.ts";
import type { FakeMember } from "../testing/fake-cell.ts";
import { eventually, setUp } from "./testing/set-up.ts";

function contents(view: TreeView): Record<string, string> {
  return Object.fromEntries(view.entries().map((kv) => [kv.keyText, kv.text()]));
}

/** Changes happen while nobody can see them, and their history is forgotten. */
async function forgetHistory(member: FakeMember, client: Client, change: () => void): Promise<void> {
  member.greets = false;
  member.breakStreams();
  change();
  member.store.revision += 10;
  member.store.compactRevision = member.store.revision;
  member.greets = true;
  await client.put("/other", "x");
}

test("view: the first state is whole, changes follow, and only those of its range", async () => {
  const { member, client } = await setUp();
  for (let i = 0; i < 1_200; i++) await client.put(`/tree/${String(i)}`, String(i));
  await using view = await client.view({ prefix: "/tree/" });
  assert.equal(view.size, 1_200);
  assert.equal(view.get("/tree/7")?.text(), "7");
  assert.equal(view.has("/tree/1200"), false);
  const changes = view.changes();
  await client.put("/elsewhere", "x");
  await client.put("/tree/7", "seven");
  await client.delete("/tree/8");
  const put = (await changes.next()).value as ViewChange;
  assert.ok(put.kind === "put");
  assert.equal(put.kv.text(), "seven");
  assert.equal(put.previous?.text(), "7");
  const gone = (await changes.next()).value as ViewChange;
  assert.ok(gone.kind === "delete");
  assert.deepEqual([gone.key, gone.previous.text(), gone.cause], ["/tree/8", "8", "client"]);
  assert.equal(view.size, 1_199);
  assert.equal(view.revision, gone.revision);
  view.close();
  assert.equal((await changes.next()).done, true);
  await eventually("nothing watches any more", () => member.watchCount() === 0);
});

test("view: F39: forgotten history is made good by a fresh snapshot, and the readers are told", async () => {
  const { member, client } = await setUp();
  await client.put("/tree/a", "1");
  await client.put("/tree/b", "1");
  await using view = await client.view({ prefix: "/tree/" });
  const changes = view.changes();
  await forgetHistory(member, client, () => member.store.kvs.delete("/tree/a"));
  const change = (await changes.next()).value as ViewChange;
  assert.deepEqual({ ...change, revision: 0 }, { kind: "snapshot", reason: "compacted", revision: 0 });
  assert.deepEqual(contents(view), { "/tree/b": "1" });
  await client.put("/tree/c", "1");
  assert.equal(((await changes.next()).value as ViewChange).kind, "put");
  assert.deepEqual(contents(view), { "/tree/b": "1", "/tree/c": "1" });
});

test("view: H49: an outage leaves what was known last, and says so", async () => {
  const { member, client } = await setUp();
  await client.put("/tree/a", "1");
  await using view = await client.view({ prefix: "/tree/" });
  assert.equal(view.stale, false);
  member.greets = false;
  member.breakStreams();
  await eventually("it knows", () => view.stale);
  assert.deepEqual(contents(view), { "/tree/a": "1" });
  member.greets = true;
  await client.put("/tree/b", "1", { deadlineMs: 20_000 });
  await eventually("it has caught up", () => view.size === 2);
  assert.equal(view.stale, false);
});

test("view: a reader that is too slow is told to look again instead of holding memory", async () => {
  const { client } = await setUp();
  await using view = await client.view({ prefix: "/tree/" });
  const changes = view.changes();
  await Promise.all(Array.from({ length: 1_500 }, (_, i) => client.put(`/tree/${String(i)}`, "x")));
  await eventually("the view has all", () => view.size === 1_500);
  const first = (await changes.next()).value as ViewChange;
  assert.ok(first.kind === "snapshot");
  assert.equal(first.reason, "behind");
  let more = 0;
  view.close();
  while ((await changes.next()).done !== true) more += 1;
  assert.ok(more < 1_000);
});

test("view: F37: more keys than it may have end it with an error that its readers get", async () => {
  const { client } = await setUp();
  await client.put("/tree/a", "1");
  await using view = await client.view({ prefix: "/tree/" }, { keysMax: 2 });
  const errors: unknown[] = [];
  const listening = view.subscribe(() => undefined, { onError: (error) => errors.push(error) });
  await client.put("/tree/b", "1");
  await client.put("/tree/c", "1");
  await listening;
  assert.equal((errors[0] as { code?: string }).code, "too-many-keys");
  assert.equal(view.error, errors[0]);
  assert.equal(view.stale, true);
  await assert.rejects(client.view({ prefix: "/tree/" }, { keysMax: 2 }), { code: "too-many-keys" });
});

test("view: a listener that throws misses nothing after it", async () => {
  const { client } = await setUp();
  await using view = await client.view({ prefix: "/tree/" });
  const seen: string[] = [];
  const errors: unknown[] = [];
  void view.subscribe(
    (change) => {
      if (change.kind === "put") seen.push(change.key);
      throw new RangeError("of the listener");
    },
    { onError: (error) => errors.push(error) },
  );
  for (const name of ["a", "b", "c"]) await client.put(`/tree/${name}`, "x");
  await eventually("all are seen", () => errors.length === 3);
  assert.deepEqual(seen, ["/tree/a", "/tree/b", "/tree/c"]);
});
