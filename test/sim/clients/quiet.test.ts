// An hour in which nothing happens. What users of other clients met: the watch said nothing any more, and no error either.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { WatchEvent } from "@lockstep/client";
import { CalmCell } from "./calm-cell.ts";

const HOUR_MS = 3_600_000;
const TTL_MS = 10_000;

/** What a watch has told so far. */
function collect(events: AsyncIterable<WatchEvent>): readonly string[] {
  const texts: string[] = [];
  void (async (): Promise<void> => {
    for await (const { kind, kv } of events) texts.push(`${kind} ${kv.keyText} ${kv.text()}`);
  })();
  return texts;
}

describe("F37: an hour of quiet", () => {
  it("a watch and a session over a connection on which nothing happens are as they were, and no other is opened", async () => {
    const cell = new CalmCell(1, 1);
    const { client: idle } = await cell.connect();
    const { client: holder } = await cell.connect();
    const watch = idle.watch({ prefix: "w/" });
    const session = await cell.run(holder.session({ ttlMs: TTL_MS }));
    const lock = await cell.run(holder.lock("l", { session }));
    const guarded = holder.watch("w/1");
    const [seen, seenByHolder] = [collect(watch), collect(guarded)];
    await cell.run(Promise.all([watch.created, guarded.created]));

    await cell.pass(HOUR_MS);
    assert.equal(cell.dials.length, 2, "each has its first connection");
    session.assertAlive(TTL_MS / 3);
    lock.assertHeld();
    await cell.run(holder.put("w/1", "after an hour"));
    await cell.pass(10);
    assert.deepEqual(seen, ["put w/1 after an hour"]);
    assert.deepEqual(seenByHolder, seen);
    assert.equal((await cell.run(idle.get("/locks/l")))?.createRevision, lock.token);
  });

  it("a path that dies in the quiet, with nobody told, is noticed: the watch goes on where it was, the session ended before its lease", async () => {
    const cell = new CalmCell(1, 2);
    const { client: idle } = await cell.connect();
    const { client: holder, process } = await cell.connect();
    const { client: writer } = await cell.connect();
    const watch = idle.watch({ prefix: "w/" });
    const seen = collect(watch);
    const session = await cell.run(holder.session({ ttlMs: TTL_MS }));
    let lostAtMs: number | undefined;
    session.lost.addEventListener("abort", () => (lostAtMs = cell.nowMs), { once: true });
    let endedAtMs: number | undefined;
    cell.coordinator.onLeaseEnd(() => (endedAtMs = cell.nowMs));
    await cell.run(watch.created);

    await cell.pass(HOUR_MS);
    assert.equal(cell.dials.length, 3);
    cell.dials.length = 0;
    for (const host of ["c1", process.host]) cell.network.isolate(host, "both");
    for (let change = 1; change <= 3; change++) {
      await cell.run(writer.put(`w/${String(change)}`, "unheard"));
      await cell.pass(TTL_MS);
    }
    assert.deepEqual(seen, []);
    assert.ok(
      cell.dials.some(({ host }) => host === "c1"),
      "also the one that has nothing to say noticed",
    );
    assert.ok(lostAtMs !== undefined && endedAtMs !== undefined && lostAtMs < endedAtMs);
    cell.network.heal();
    await cell.pass(30_000);
    assert.deepEqual(seen, ["put w/1 unheard", "put w/2 unheard", "put w/3 unheard"]);
    await cell.run(writer.put("w/4", "heard"));
    await cell.pass(10);
    assert.equal(seen.length, 4);
  });
});
