import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { openMemoryStore, type MemoryStore } from "./memory-store.ts";
import { SortedMap } from "./sorted-map.ts";

const key = (n: number): Buffer => Buffer.from([n >>> 8, n & 255]);

function writeNumber(store: MemoryStore, n: number): void {
  store.write((batch) => {
    batch.put("index", key(n), key(n));
    batch.put("history", key(n), key(n));
  });
}

function count(store: MemoryStore): number {
  const rows = store.scan("index", { from: key(0), limit: 100_000 });
  rows.forEach((row, n) => assert.deepEqual(Buffer.from(row.key), key(n)));
  assert.equal(store.scan("history", { from: key(0), limit: 100_000 }).length, rows.length);
  return rows.length;
}

describe("memory store: crash", () => {
  for (const [random, kept] of [
    [0, 10],
    [0.5, 15],
    [0.999, 20],
  ] as const) {
    it(`keeps the barrier and a prefix after it: random ${random} keeps ${kept} of 20`, async () => {
      const store = openMemoryStore();
      for (let n = 0; n < 10; n += 1) writeNumber(store, n);
      await store.barrier();
      for (let n = 10; n < 20; n += 1) writeNumber(store, n);
      store.crash(() => random);
      assert.equal(count(store), kept);
      writeNumber(store, kept);
      store.crash(() => 0);
      assert.equal(count(store), kept);
    });
  }

  it("a barrier covers only the writes made before its call", async () => {
    const store = openMemoryStore();
    writeNumber(store, 0);
    const barrier = store.barrier();
    writeNumber(store, 1);
    await barrier;
    assert.equal(store.pendingWrites, 1);
    store.crash(() => 0);
    assert.equal(count(store), 1);
  });

  it("a barrier that a crash interrupts does not resolve and fixes nothing", async () => {
    let finishSync = (): void => undefined;
    const store = openMemoryStore({ sync: () => new Promise((resolve) => (finishSync = resolve)) });
    writeNumber(store, 0);
    const barrier = store.barrier();
    store.crash(() => 0);
    writeNumber(store, 0);
    writeNumber(store, 1);
    finishSync();
    await assert.rejects(barrier, { code: "closed" });
    assert.equal(count(store), 2);
    assert.equal(store.pendingWrites, 2);
  });

  it("views end with a crash; a store that was closed is open again", async () => {
    const store = openMemoryStore();
    writeNumber(store, 0);
    const view = store.view();
    await store.barrier();
    await store.close();
    store.crash(() => 0);
    assert.throws(() => view.get("index", key(0)), { code: "closed" });
    assert.equal(count(store), 1);
  });

  it("a failed sync is final until a crash", async () => {
    let broken = true;
    const store = openMemoryStore({
      sync: () => (broken ? Promise.reject(new Error("EIO")) : Promise.resolve()),
    });
    writeNumber(store, 0);
    await assert.rejects(store.barrier(), { code: "failed" });
    broken = false;
    await assert.rejects(store.barrier(), { code: "failed" });
    assert.throws(
      () => {
        writeNumber(store, 1);
      },
      { code: "failed" },
    );
    store.crash(() => 0);
    assert.equal(count(store), 0);
    writeNumber(store, 0);
    await store.barrier();
  });
});

/** The dumb twin: an array that is sorted anew for every question. */
class SortedArray {
  rows: [number, number][] = [];

  apply(op: Operation): void {
    this.rows = this.rows.filter(([n]) => n !== op.key);
    if (op.kind === "set") this.rows.push([op.key, op.value]);
    this.rows.sort(([a], [b]) => a - b);
  }
}

interface Operation {
  readonly kind: "set" | "delete";
  readonly key: number;
  readonly value: number;
}

function contents(map: SortedMap): [number, number][] {
  const rows: [number, number][] = [];
  for (let at = map.firstFrom(key(0)); at !== undefined; at = map.next(at)) {
    const row = map.at(at);
    rows.push([Buffer.from(row.key).readUInt16BE(), Buffer.from(row.value).readUInt16BE()]);
  }
  return rows;
}

describe("sorted map", () => {
  const operation = fc.record({
    kind: fc.constantFrom("set" as const, "set" as const, "delete" as const),
    key: fc.integer({ min: 0, max: 600 }),
    value: fc.integer({ min: 0, max: 65_535 }),
  });
  const script = fc.array(fc.oneof({ weight: 20, arbitrary: operation }, fc.constant("clone" as const)), {
    minLength: 1,
    maxLength: 2500,
    size: "max",
  });

  it("agrees with a sorted array, and clones keep the moment they were made", () => {
    fc.assert(
      fc.property(script, fc.integer({ min: 0, max: 601 }), (steps, probe) => {
        const map = new SortedMap();
        const twin = new SortedArray();
        const clones: [SortedMap, [number, number][]][] = [];
        for (const step of steps) {
          if (step === "clone") {
            clones.push([map.clone(), [...twin.rows]]);
            continue;
          }
          twin.apply(step);
          if (step.kind === "set") map.set(key(step.key), key(step.value));
          else map.delete(key(step.key));
        }
        assert.deepEqual(contents(map), twin.rows);
        assert.equal(map.size, twin.rows.length);
        assert.equal(map.bytes, twin.rows.length * 4);
        for (const [clone, rows] of clones) assert.deepEqual(contents(clone), rows);
        const below = map.lastBelow(key(probe));
        const expected = twin.rows.findLast(([n]) => n < probe);
        assert.deepEqual(below && Buffer.from(map.at(below).key), expected && key(expected[0]));
      }),
      { numRuns: 40 },
    );
  });

  it("holds 200,000 rows put in any order", () => {
    const map = new SortedMap();
    const wide = (n: number): Buffer => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32BE(n);
      return bytes;
    };
    for (let n = 0; n < 200_000; n += 1) map.set(wide((n * 7919) % 200_000), wide(n));
    assert.equal(map.size, 200_000);
    let at = map.firstFrom(wide(0));
    for (let n = 0; n < 200_000; n += 1) {
      assert.ok(at !== undefined);
      assert.equal(Buffer.compare(map.at(at).key, wide(n)), 0);
      at = map.next(at);
    }
    assert.equal(at, undefined);
  });
});
