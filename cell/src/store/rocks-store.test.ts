import assert from "node:assert/strict";
import { cp, mkdtemp, readdir, rm, stat, truncate } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { nodeBarrierFiles, type BarrierFiles } from "./barrier.ts";
import { stallPressure } from "./pressure.ts";
import { openRocksStore } from "./rocks-store.ts";
import type { Store } from "./types.ts";

const now = (): number => performance.now();
const key = (n: number): Buffer => Buffer.from(String(n).padStart(8, "0"));

function writeRows(store: Store, from: number, to: number): void {
  for (let n = from; n < to; n += 1) {
    store.write((batch) => {
      batch.put("index", key(n), Buffer.from(`index ${n}`));
      batch.put("history", key(n), Buffer.alloc(200, n));
      batch.put("meta", Buffer.from("applied"), key(n));
    });
  }
}

/** @returns how many rows the store holds; asserts that they are a prefix, the same in every keyspace. */
function prefixLength(store: Store): number {
  const index = store.scan("index", { from: key(0), limit: 1_000_000 });
  const history = store.scan("history", { from: key(0), limit: 1_000_000, keysOnly: true });
  index.forEach((row, n) => assert.deepEqual(row.key, key(n)));
  assert.equal(history.length, index.length);
  assert.deepEqual(
    store.get("meta", Buffer.from("applied")),
    index.length === 0 ? undefined : key(index.length - 1),
  );
  return index.length;
}

describe("RocksDB store", () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "lockstep-store-"));
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
  });

  it("what was written is there after close and open", async () => {
    const first = await openRocksStore(join(root, "a"), { now });
    writeRows(first, 0, 500);
    await first.close();
    const second = await openRocksStore(join(root, "a"), { now });
    assert.equal(prefixLength(second), 500);
    await second.close();
  });

  it("a copy of the folder taken right after a barrier, store open, holds everything before it", async () => {
    const store = await openRocksStore(join(root, "a"), { now });
    writeRows(store, 0, 3000);
    await store.barrier();
    await cp(join(root, "a"), join(root, "copy"), { recursive: true });
    writeRows(store, 3000, 3100);
    const copy = await openRocksStore(join(root, "copy"), { now });
    assert.equal(prefixLength(copy), 3000);
    await Promise.all([copy.close(), store.close()]);
  });

  it("a power cut that drops every log byte not synced by a barrier keeps a prefix with all of the barrier", async () => {
    // What fdatasync certainly covered: the size of each log when its sync began.
    const synced = new Map<string, number>();
    const files: BarrierFiles = {
      ...nodeBarrierFiles,
      async syncFile(path) {
        const { size } = await stat(path);
        const there = await nodeBarrierFiles.syncFile(path);
        synced.set(basename(path), size);
        return there;
      },
    };
    const store = await openRocksStore(join(root, "a"), { now, files });
    writeRows(store, 0, 2000);
    const barrier = store.barrier();
    writeRows(store, 2000, 2500);
    await barrier;
    writeRows(store, 2500, 4000);
    await cp(join(root, "a"), join(root, "cut"), { recursive: true });
    for (const name of await readdir(join(root, "cut"))) {
      if (name.endsWith(".log")) await truncate(join(root, "cut", name), synced.get(name) ?? 0);
    }
    const cut = await openRocksStore(join(root, "cut"), { now });
    const kept = prefixLength(cut);
    assert.ok(kept >= 2000, `kept ${kept}`);
    assert.ok(kept < 4000, "the cut lost something, or this test shows nothing");
    await Promise.all([cut.close(), store.close()]);
  });

  it("a log cut anywhere after the barrier reopens to a prefix, never to a hole between keyspaces", async () => {
    const store = await openRocksStore(join(root, "a"), { now });
    writeRows(store, 0, 50);
    await store.barrier();
    const [log] = (await readdir(join(root, "a"))).filter((name) => name.endsWith(".log"));
    const { size } = await stat(join(root, "a", log!));
    writeRows(store, 50, 60);
    const { size: end } = await stat(join(root, "a", log!));
    for (let at = size; at < end; at += 397) {
      await cp(join(root, "a"), join(root, `cut${at}`), { recursive: true });
      await truncate(join(root, `cut${at}`, log!), at);
      const cut = await openRocksStore(join(root, `cut${at}`), { now });
      assert.ok(prefixLength(cut) >= 50);
      await cut.close();
    }
    await store.close();
  });

  it("a failed sync is final: that barrier, later barriers, reads and writes are refused (W7)", async () => {
    let fail = false;
    const files: BarrierFiles = {
      ...nodeBarrierFiles,
      async syncFile(path) {
        if (fail) throw Object.assign(new Error("i/o error"), { code: "EIO" });
        return await nodeBarrierFiles.syncFile(path);
      },
    };
    const store = await openRocksStore(join(root, "a"), { now, files });
    writeRows(store, 0, 1);
    fail = true;
    const failing = store.barrier();
    const waiting = store.barrier();
    await assert.rejects(failing, { code: "failed" });
    await assert.rejects(waiting, { code: "failed" });
    fail = false;
    await assert.rejects(store.barrier(), { code: "failed" });
    assert.throws(
      () => {
        writeRows(store, 1, 2);
      },
      { code: "failed" },
    );
    assert.throws(() => store.get("index", key(0)), { code: "failed" });
    await store.close();
  });

  it("barriers do not overlap: three calls during one share the next", async () => {
    let running = 0;
    let rounds = 0;
    const files: BarrierFiles = {
      ...nodeBarrierFiles,
      async list(directory) {
        assert.equal(running, 0);
        running += 1;
        rounds += 1;
        return await nodeBarrierFiles.list(directory);
      },
      async syncDirectory(path) {
        await nodeBarrierFiles.syncDirectory(path);
        running -= 1;
      },
    };
    const store = await openRocksStore(join(root, "a"), { now, files });
    rounds = 0;
    await Promise.all([store.barrier(), store.barrier(), store.barrier(), store.barrier()]);
    assert.equal(rounds, 2);
    await store.close();
  });

  it("a folder that is not a database fails to open with open-failed", async () => {
    const store = await openRocksStore(join(root, "a"), { now });
    await assert.rejects(openRocksStore(join(root, "a"), { now }), { code: "open-failed" });
    await store.close();
    await truncate(join(root, "a", "CURRENT"), 0);
    await assert.rejects(openRocksStore(join(root, "a"), { now }), { code: "open-failed" });
  });

  it("stall pressure is read at most every 250 ms", async () => {
    let time = 0;
    let reads = 0;
    const store = await openRocksStore(join(root, "a"), {
      now: () => {
        reads += 1;
        return time;
      },
    });
    assert.equal(store.statistics().stallPressure, 0);
    time = 249;
    assert.equal(store.statistics().stallPressure, 0);
    assert.equal(reads, 2);
    await store.close();
  });
});

describe("stall pressure", () => {
  const of = (figures: Record<string, number>): number => stallPressure((name) => figures[name] ?? 0);

  it("is 1 when RocksDB delays or stops writes, whatever the other figures say", () => {
    assert.equal(of({ "is-write-stopped": 1 }), 1);
    assert.equal(of({ "actual-delayed-write-rate": 16_000_000 }), 1);
  });
  it("rises with level-0 files, unflushed memtables and compaction debt, the worst counts", () => {
    assert.equal(of({}), 0);
    assert.equal(of({ "num-files-at-level0": 10, "num-immutable-mem-table": 1 }), 0.5);
    assert.equal(of({ "num-immutable-mem-table": 4 }), 0.8);
    assert.equal(of({ "estimate-pending-compaction-bytes": 2 ** 40 }), 1);
  });
});
