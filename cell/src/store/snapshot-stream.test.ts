import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { openMemoryStore } from "./memory-store.ts";
import { openRocksStore } from "./rocks-store.ts";
import { createSnapshotSink, createSnapshotSource, type StateSource } from "./snapshot-stream.ts";
import { KEYSPACES, type Row, type Store } from "./types.ts";

const pause = (): Promise<void> => Promise.resolve();
const key = (n: number): Buffer => Buffer.from(String(n).padStart(8, "0"));

function dump(store: Store): Record<string, [string, string][]> {
  const text = (row: Row): [string, string] => [
    Buffer.from(row.key).toString("hex"),
    Buffer.from(row.value).toString("hex"),
  ];
  return Object.fromEntries(
    KEYSPACES.map((keyspace) => [
      keyspace,
      store.scan(keyspace, { from: Buffer.alloc(0), limit: 1_000_000 }).map(text),
    ]),
  );
}

async function allChunks(source: StateSource): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  for (;;) {
    const chunk = await source.chunk(chunks.length);
    if (chunk === undefined) return chunks;
    chunks.push(chunk);
  }
}

function filled(rows: number): Store {
  const store = openMemoryStore();
  store.write((batch) => {
    for (let n = 0; n < rows; n += 1) {
      batch.put("index", key(n), Buffer.alloc(n % 40, n));
      batch.put("history", key(n * 3), Buffer.alloc(100 + (n % 7), n));
      if (n % 5 === 0) batch.put("requests", key(n), Buffer.alloc(0));
    }
    batch.put("meta", Buffer.from("applied"), key(rows));
  });
  return store;
}

async function send(store: Store, chunkBytes: number): Promise<Uint8Array[]> {
  const source = createSnapshotSource(store.view(), { chunkBytes, pause });
  const chunks = await allChunks(source);
  source.close();
  return chunks;
}

async function receive(chunks: readonly Uint8Array[]): Promise<Store> {
  const store = openMemoryStore();
  const sink = createSnapshotSink(store, { pause });
  for (const chunk of chunks) await sink.chunk(chunk);
  sink.finish();
  return store;
}

describe("state stream", () => {
  it("what arrives is what was pinned, whatever is written meanwhile", async () => {
    const store = filled(3000);
    const before = dump(store);
    const source = createSnapshotSource(store.view(), { chunkBytes: 4096, pause });
    const target = openMemoryStore();
    const sink = createSnapshotSink(target, { pause });
    for (let n = 0; ; n += 1) {
      const chunk = await source.chunk(n);
      if (chunk === undefined) break;
      assert.equal(sink.nextChunk, n);
      await sink.chunk(chunk);
      store.write((batch) => {
        batch.put("index", key(n * 100), Buffer.from("later"));
        batch.delete("history", key(n * 300));
        batch.put("meta", Buffer.from("applied"), key(n));
      });
    }
    const summary = sink.finish();
    assert.deepEqual(dump(target), before);
    assert.deepEqual(summary.rows, {
      index: 3000,
      history: 3000,
      leases: 0,
      "lease-keys": 0,
      requests: 600,
      meta: 1,
    });
    assert.match(summary.hash, /^[0-9a-f]{64}$/);
  });

  it("goes from RocksDB into RocksDB", async () => {
    const root = await mkdtemp(join(tmpdir(), "lockstep-stream-"));
    const now = (): number => performance.now();
    const [from, to] = await Promise.all(["a", "b"].map((name) => openRocksStore(join(root, name), { now })));
    from!.write((batch) => {
      for (let n = 0; n < 5000; n += 1) batch.put("history", key(n), Buffer.alloc(200, n));
      batch.put("lease-keys", Buffer.from([0]), Buffer.alloc(0));
    });
    const source = createSnapshotSource(from!.view(), { pause });
    const sink = createSnapshotSink(to!, { pause });
    for (const chunk of await allChunks(source)) await sink.chunk(chunk);
    source.close();
    assert.equal(sink.finish().rows.history, 5000);
    assert.deepEqual(dump(to!), dump(from!));
    await Promise.all([from!.close(), to!.close()]);
    await rm(root, { recursive: true });
  });

  it("an empty store is one chunk", async () => {
    const chunks = await send(openMemoryStore(), 4096);
    assert.equal(chunks.length, 1);
    assert.equal(dump(await receive(chunks))["index"]!.length, 0);
  });

  it("a row larger than a chunk travels whole", async () => {
    const store = openMemoryStore();
    store.write((batch) => batch.put("history", key(1), Buffer.alloc(300_000, 7)));
    assert.deepEqual(dump(await receive(await send(store, 1024))), dump(store));
  });

  it("the last chunk is answered again with the same bytes, also while it is made; others are refused", async () => {
    const store = filled(500);
    const source = createSnapshotSource(store.view(), { chunkBytes: 2048, pause });
    const [first, again] = await Promise.all([source.chunk(0), source.chunk(0)]);
    assert.equal(first, again);
    const second = await source.chunk(1);
    assert.equal(await source.chunk(1), second);
    assert.throws(() => source.chunk(0), /next one or the last one/);
    assert.throws(() => source.chunk(3), /next one or the last one/);
    const rest: Uint8Array[] = [first!, second!];
    for (let n = 2; ; n += 1) {
      const chunk = await source.chunk(n);
      if (chunk === undefined) break;
      rest.push(chunk);
    }
    assert.deepEqual(dump(await receive(rest)), dump(store));
  });

  it("equal states give equal bytes, from either store", async () => {
    const a = await send(filled(800), 4096);
    const b = await send(filled(800), 4096);
    assert.deepEqual(a, b);
  });

  it("slices are bounded: the source pauses at least every 256 rows and 64 KiB", async () => {
    const store = filled(10_000);
    let pauses = 0;
    const source = createSnapshotSource(store.view(), {
      pause: () => {
        pauses += 1;
        return Promise.resolve();
      },
    });
    await allChunks(source);
    assert.ok(pauses >= 22_001 / 256, `${pauses} pauses`);
  });

  it("the sink waits while the store nears a write stall", async () => {
    const chunks = await send(filled(600), 1 << 20);
    const target = openMemoryStore();
    let stalled = 3;
    const reasons: string[] = [];
    const squeezed: Store = Object.assign(Object.create(target) as Store, {
      scan: target.scan.bind(target),
      write: target.write.bind(target),
      statistics: () => ({ bytes: 0, stallPressure: stalled > 0 ? 1 : 0 }),
    });
    const sink = createSnapshotSink(squeezed, {
      pause: (reason) => {
        reasons.push(reason);
        if (reason === "stalled") stalled -= 1;
        return Promise.resolve();
      },
    });
    for (const chunk of chunks) await sink.chunk(chunk);
    assert.equal(reasons.filter((reason) => reason === "stalled").length, 3);
    assert.deepEqual(dump(target), dump(await receive(chunks)));
  });

  it("a store that holds rows is refused", () => {
    assert.throws(() => createSnapshotSink(filled(1), { pause }), { code: "not-fresh" });
  });

  it("a stream that stops early does not finish", async () => {
    const chunks = await send(filled(300), 2048);
    const sink = createSnapshotSink(openMemoryStore(), { pause });
    for (const chunk of chunks.slice(0, -1)) await sink.chunk(chunk);
    assert.throws(() => sink.finish(), { code: "snapshot-invalid" });
  });

  it("a missing, repeated or swapped chunk is refused, and everything after it", async () => {
    const chunks = await send(filled(300), 2048);
    const sink = createSnapshotSink(openMemoryStore(), { pause });
    await sink.chunk(chunks[0]!);
    await assert.rejects(sink.chunk(chunks[0]!), { code: "snapshot-invalid" });
    await assert.rejects(sink.chunk(chunks[1]!), { code: "snapshot-invalid" });
    assert.throws(() => sink.finish(), { code: "snapshot-invalid" });
  });

  it("any flipped bit anywhere is found at the latest by the hash", async () => {
    const chunks = await send(filled(120), 1500);
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(), fc.nat(7), async (which, where, bit) => {
        const damaged = chunks.map((chunk) => Uint8Array.from(chunk));
        const chunk = damaged[which % damaged.length]!;
        chunk[where % chunk.length]! ^= 1 << bit;
        await assert.rejects(receive(damaged), { code: "snapshot-invalid" });
      }),
      { numRuns: 300 },
    );
  });

  it("a chunk cut anywhere is refused", async () => {
    const chunks = await send(filled(20), 1500);
    for (const [which, chunk] of chunks.entries()) {
      for (let length = 0; length < chunk.length; length += 13) {
        const cut = chunks.map((whole, n) => (n === which ? whole.subarray(0, length) : whole));
        await assert.rejects(receive(cut), { code: "snapshot-invalid" });
      }
    }
  });

  it("chunk memory may be reused once a chunk was taken in", async () => {
    const store = filled(400);
    const target = openMemoryStore();
    const sink = createSnapshotSink(target, { pause });
    for (const chunk of await send(store, 1024)) {
      const copy = Uint8Array.from(chunk);
      await sink.chunk(copy);
      copy.fill(0xff);
    }
    sink.finish();
    assert.deepEqual(dump(target), dump(store));
  });
});
