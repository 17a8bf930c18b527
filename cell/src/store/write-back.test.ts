import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openMemoryStore } from "./memory-store.ts";
import { KEYSPACES, type Keyspace, type Row, type Store, type WriteBatch } from "./types.ts";
import { writeBack } from "./write-back.ts";

const key = (n: number): Uint8Array => Uint8Array.of(1 + (n >> 4), n & 15);
const value = (n: number): Uint8Array => Buffer.from(`value ${n}`);
const ALL = { from: Uint8Array.of(0), limit: 1_000 };

function rowsOf(store: Store, keyspace: Keyspace): string[] {
  return text(store.scan(keyspace, ALL));
}

function text(rows: readonly Row[]): string[] {
  return rows.map((row) => `${Buffer.from(row.key).toString("hex")}=${Buffer.from(row.value).toString()}`);
}

function values(store: Store, keys: readonly Uint8Array[]): (string | undefined)[] {
  return store.getMany("lease-keys", keys).map((one) => (one === undefined ? undefined : hex(one)));
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

/** Counts what arrives in the store below. */
function counting(store: Store): { readonly store: Store; readonly rows: () => number } {
  let rows = 0;
  const counted: Store = {
    get: (keyspace, one) => store.get(keyspace, one),
    getMany: (keyspace, keys) => store.getMany(keyspace, keys),
    scan: (keyspace, options) => store.scan(keyspace, options),
    view: () => store.view(),
    barrier: () => store.barrier(),
    statistics: () => store.statistics(),
    close: () => store.close(),
    write: (fill) =>
      store.write((batch) =>
        fill({
          put(keyspace, one, bytes): void {
            rows += 1;
            batch.put(keyspace, one, bytes);
          },
          delete(keyspace, one): void {
            rows += 1;
            batch.delete(keyspace, one);
          },
        }),
      ),
  };
  return { store: counted, rows: () => rows };
}

const change = fc.record({
  keyspace: fc.constantFrom<Keyspace>("index", "lease-keys", "history"),
  key: fc.nat(63),
  value: fc.option(fc.nat(999)),
});
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ write: fc.array(change, { maxLength: 8 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      from: fc.nat(63),
      to: fc.option(fc.nat(70)),
      reverse: fc.boolean(),
      limit: fc.nat(12),
      bytesMax: fc.option(fc.integer({ min: 1, max: 80 })),
      keysOnly: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.constant("view" as const) },
);

test("whatever is written and handed down in between, reads and scans say what a plain store says", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.integer({ min: 1, max: 40 }), (steps, rowsMax) => {
      const plain = openMemoryStore();
      const late = writeBack(openMemoryStore(), { rowsMax });
      for (const one of steps) {
        if (one === "view") {
          const view = late.view();
          for (const keyspace of KEYSPACES) {
            assert.deepEqual(text(view.scan(keyspace, ALL)), rowsOf(plain, keyspace));
          }
          view.close();
        } else if ("write" in one) {
          const known = new Set(KEYSPACES.flatMap((keyspace) => rowKeys(plain, keyspace)));
          const fill = (batch: WriteBatch): void => {
            const seen = new Set(known);
            for (const { keyspace, key: n, value: v } of one.write) {
              const name = `${keyspace} ${n}`;
              if (v === null) batch.delete(keyspace, key(n));
              else batch.put(keyspace, key(n), value(v), !seen.has(name));
              if (v === null) seen.delete(name);
              else seen.add(name);
            }
          };
          plain.write(fill);
          late.write(fill);
        } else {
          const { to, bytesMax, ...rest } = one;
          const options = {
            ...rest,
            from: key(one.from),
            ...(to !== null && { to: key(to) }),
            ...(bytesMax !== null && { bytesMax }),
          };
          assert.deepEqual(text(late.scan("index", options)), text(plain.scan("index", options)));
        }
        const keys = Array.from({ length: 64 }, (_, n) => key(n));
        assert.deepEqual(values(late, keys), values(plain, keys));
      }
    }),
    { numRuns: 400 },
  );
});

function rowKeys(store: Store, keyspace: Keyspace): string[] {
  return store
    .scan(keyspace, ALL)
    .map(({ key: [high = 0, low = 0] }) => `${keyspace} ${((high - 1) << 4) | low}`);
}

test("a crash goes back to a whole state: all waiting rows are of one moment, and history is never behind them", async () => {
  for (let seed = 0; seed < 50; seed++) {
    const below = openMemoryStore();
    const store = writeBack(below, { rowsMax: 7 });
    const random = fc.sample(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }), {
      seed,
      numRuns: 1,
    });
    for (let index = 1; index <= 40; index++) {
      store.write((batch) => {
        batch.put("history", Uint8Array.of(index), value(index));
        for (const keyspace of ["index", "requests", "meta"] as const) {
          batch.put(keyspace, key(0), value(index));
          if (index % 3 === 0) batch.put(keyspace, key(index), value(index));
        }
      });
      if (index === 10) await store.barrier();
    }
    below.crash(() => random[0] ?? 0);
    const applied = (keyspace: Keyspace): string => Buffer.from(below.get(keyspace, key(0)) ?? []).toString();
    const at = Number(applied("meta").slice("value ".length));
    assert.ok(at >= 10, "what a barrier fixed is there");
    assert.deepEqual([applied("index"), applied("requests")], [applied("meta"), applied("meta")]);
    for (const keyspace of ["index", "requests", "meta"] as const) {
      assert.equal(rowsOf(below, keyspace).length, 1 + Math.floor(at / 3));
    }
    assert.ok(rowsOf(below, "history").length >= at, `seed ${seed}: history is behind`);
  }
});

test("a row that comes and goes between two barriers is never written, nor is a state that is replaced", async () => {
  const { store: below, rows } = counting(openMemoryStore());
  const store = writeBack(below);
  for (let n = 0; n < 100; n++) {
    store.write((batch) => {
      batch.put("index", key(1), value(n), true);
      batch.put("leases", key(2), value(n), n === 0);
    });
    store.write((batch) => batch.delete("index", key(1)));
  }
  await store.barrier();
  assert.equal(rows(), 1);
  assert.deepEqual(rowsOf(store, "index"), []);
});

test("a large batch of rows that come and go waits as a small one does: many locks that are taken at once", async () => {
  const { store: below, rows } = counting(openMemoryStore());
  const store = writeBack(below, { rowsMax: 100 });
  const locks = Array.from({ length: 90 }, (_, n) => Buffer.from(`lock ${n}`));
  for (let round = 0; round < 20; round++) {
    store.write((batch) => {
      for (const lock of locks) batch.put("index", lock, value(round), true);
    }, true);
    store.write((batch) => {
      for (const lock of locks) batch.delete("index", lock);
    }, true);
  }
  await store.barrier();
  assert.equal(rows(), 0);
});

test("a row that is deleted although it is not known to be new is deleted below", async () => {
  const below = openMemoryStore();
  const store = writeBack(below);
  store.write((batch) => batch.put("index", key(1), value(1), true));
  await store.barrier();
  store.write((batch) => batch.delete("index", key(1)));
  store.write((batch) => batch.put("index", key(1), value(2), true));
  store.write((batch) => batch.delete("index", key(1)));
  await store.barrier();
  assert.deepEqual(rowsOf(below, "index"), []);
});

test("a batch that deletes history goes down whole, with all that waited before it", () => {
  const below = openMemoryStore();
  const store = writeBack(below);
  store.write((batch) => {
    batch.put("history", key(1), value(1));
    batch.put("meta", key(0), value(1));
  });
  assert.deepEqual(rowsOf(below, "meta"), [], "waits");
  store.write((batch) => {
    batch.delete("history", key(1));
    batch.put("meta", key(9), value(9));
  });
  assert.deepEqual(rowsOf(below, "history"), []);
  assert.equal(rowsOf(below, "meta").length, 2);
});

test("a batch whose making failed leaves nothing behind", () => {
  const store = writeBack(openMemoryStore());
  assert.throws(
    () =>
      store.write((batch) => {
        batch.put("index", key(1), value(1));
        throw new Error("in the middle");
      }),
    /in the middle/,
  );
  store.write((batch) => batch.put("index", key(2), value(2)));
  assert.equal(rowsOf(store, "index").length, 1);
});
