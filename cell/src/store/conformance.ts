/**
 * What every {@link Store} must do. `storeConformance` registers node:test cases; each opens a store of its own.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KEY_BYTES_MAX } from "./bounds.ts";
import { StoreError } from "./errors.ts";
import { KEYSPACES, type Row, type ScanOptions, type Store, type StoreReader } from "./types.ts";

export interface StoreUnderTest {
  readonly store: Store;
  /** Called after the case, with the store closed or not: removes everything. */
  readonly dispose: () => Promise<void>;
}

export interface ConformanceSubject {
  readonly name: string;
  /** A fresh, empty store. */
  readonly open: () => Promise<StoreUnderTest>;
}

type Case = (store: Store) => void | Promise<void>;

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const bytes = (text: string): Uint8Array => encoder.encode(text);
const text = (value: Uint8Array | undefined): string | undefined =>
  value === undefined ? undefined : decoder.decode(value);
const pairs = (rows: readonly Row[]): string =>
  rows.map(({ key, value }) => `${text(key)}=${text(value)}`).join(" ");

function fill(store: Store, ...rows: readonly string[]): void {
  store.write((batch) => {
    for (const row of rows) {
      const [key = "", value = ""] = row.split("=");
      batch.put("index", bytes(key), bytes(value));
    }
  });
}

function scan(
  reader: StoreReader,
  from: string,
  options: Partial<Omit<ScanOptions, "to">> & { to?: string },
): string {
  const { to, ...rest } = options;
  const end = to === undefined ? {} : { to: bytes(to) };
  return pairs(reader.scan("index", { limit: 100, ...rest, ...end, from: bytes(from) }));
}

const writes: Record<string, Case> = {
  "a written row is read, an absent key is undefined, an empty value is a value": (store) => {
    fill(store, "a=1", "empty=");
    assert.equal(text(store.get("index", bytes("a"))), "1");
    assert.equal(store.get("index", bytes("b")), undefined);
    assert.equal(store.get("index", bytes("empty"))?.length, 0);
  },
  "keyspaces do not see each other": (store) => {
    store.write((batch) => {
      for (const keyspace of KEYSPACES) batch.put(keyspace, bytes("k"), bytes(keyspace));
      batch.delete("leases", bytes("k"));
    });
    for (const keyspace of KEYSPACES) {
      assert.equal(text(store.get(keyspace, bytes("k"))), keyspace === "leases" ? undefined : keyspace);
    }
  },
  "later operations on a key win inside one batch": (store) => {
    store.write((batch) => {
      batch.put("index", bytes("a"), bytes("1"));
      batch.put("index", bytes("a"), bytes("2"));
      batch.put("index", bytes("b"), bytes("1"));
      batch.delete("index", bytes("b"));
      batch.delete("index", bytes("c"));
      batch.put("index", bytes("c"), bytes("3"));
    });
    assert.equal(scan(store, "", {}), "a=2 c=3");
  },
  "a batch whose filling throws changes nothing, and the next one is clean": (store) => {
    fill(store, "a=1");
    assert.throws(() => {
      store.write((batch) => {
        batch.put("index", bytes("a"), bytes("2"));
        throw new RangeError("boom");
      });
    }, RangeError);
    fill(store, "b=1");
    assert.equal(scan(store, "", {}), "a=1 b=1");
  },
  "the caller may reuse its buffers after a write": (store) => {
    const key = Buffer.from("a");
    const value = Buffer.from("1");
    store.write((batch) => {
      batch.put("index", key, value);
      key.write("b");
      value.write("2");
      batch.put("index", key, value);
    });
    key.fill(0);
    value.fill(0);
    assert.equal(scan(store, "", {}), "a=1 b=2");
  },
  "a write inside a write is a broken invariant and leaves the store usable": (store) => {
    assert.throws(() => {
      store.write(() => {
        fill(store, "a=1");
      });
    }, /inside another/);
    fill(store, "b=1");
    assert.equal(scan(store, "", {}), "b=1");
  },
  "keys are 1 to KEY_BYTES_MAX bytes": (store) => {
    const longest = Buffer.alloc(KEY_BYTES_MAX, 0xff);
    for (const key of [Buffer.alloc(0), Buffer.alloc(KEY_BYTES_MAX + 1)]) {
      assert.throws(() => {
        store.write((batch) => batch.put("index", key, bytes("")));
      }, /key bytes/);
    }
    store.write((batch) => batch.put("index", longest, bytes("x")));
    assert.equal(text(store.get("index", longest)), "x");
    const reader = store.view();
    for (const each of [store, reader]) {
      const rows = each.scan("index", { from: bytes("a"), reverse: true, limit: 2 });
      assert.deepEqual(
        rows.map(({ value }) => text(value)),
        ["x"],
      );
    }
    reader.close();
  },
};

/** Run on the live store and on a view. */
const reads: Record<string, (reader: StoreReader) => void> = {
  "many keys are answered in the order asked, repeated and absent ones too": (reader) => {
    const values = reader.getMany("index", ["c", "nope", "a", "c"].map(bytes));
    assert.deepEqual(values.map(text), ["3", undefined, "1", "3"]);
    assert.deepEqual(reader.getMany("index", []), []);
  },
  "a scan has an inclusive start and an exclusive end": (reader) => {
    assert.equal(scan(reader, "a", { to: "c" }), "a=1 b=2");
    assert.equal(scan(reader, "aa", { to: "cc" }), "b=2 c=3");
    assert.equal(scan(reader, "d", {}), "d=4 e=5");
    assert.equal(scan(reader, "c", { to: "c" }), "");
    assert.equal(scan(reader, "d", { to: "b" }), "");
    assert.equal(scan(reader, "x", {}), "");
  },
  "a reverse scan covers the same range from its end": (reader) => {
    assert.equal(scan(reader, "a", { to: "c", reverse: true }), "b=2 a=1");
    assert.equal(scan(reader, "b", { reverse: true }), "e=5 d=4 c=3 b=2");
    assert.equal(scan(reader, "", { to: "bb", reverse: true, limit: 1 }), "b=2");
    assert.equal(scan(reader, "x", { reverse: true }), "");
    assert.equal(scan(reader, "", { to: "a", reverse: true }), "");
  },
  "a scan stops at its limit": (reader) => {
    assert.equal(scan(reader, "b", { limit: 2 }), "b=2 c=3");
    assert.equal(scan(reader, "", { reverse: true, limit: 2 }), "e=5 d=4");
    assert.equal(scan(reader, "", { limit: 0 }), "");
  },
  "a scan stops after the row that reaches bytesMax": (reader) => {
    assert.equal(scan(reader, "", { bytesMax: 1 }), "a=1");
    assert.equal(scan(reader, "", { bytesMax: 2 }), "a=1");
    assert.equal(scan(reader, "", { bytesMax: 3 }), "a=1 b=2");
    assert.equal(scan(reader, "", { bytesMax: 4, reverse: true }), "e=5 d=4");
    assert.equal(scan(reader, "", { bytesMax: 2, keysOnly: true }), "a= b=");
  },
  "a keys-only scan leaves values empty": (reader) => {
    assert.equal(scan(reader, "b", { to: "d", keysOnly: true }), "b= c=");
    assert.equal(scan(reader, "b", { to: "d", keysOnly: true, reverse: true }), "c= b=");
  },
};

const views: Record<string, Case> = {
  "a view does not see later writes, in any keyspace or direction": (store) => {
    fill(store, "a=1", "b=2");
    const view = store.view();
    fill(store, "a=9", "c=3");
    store.write((batch) => {
      batch.delete("index", bytes("b"));
      batch.put("meta", bytes("m"), bytes("1"));
    });
    assert.equal(scan(view, "", {}), "a=1 b=2");
    assert.equal(scan(view, "", { reverse: true }), "b=2 a=1");
    assert.deepEqual(view.getMany("index", ["a", "b", "c"].map(bytes)).map(text), ["1", "2", undefined]);
    assert.equal(view.get("meta", bytes("m")), undefined);
    assert.equal(scan(store, "", {}), "a=9 c=3");
    view.close();
  },
  "views of different moments live side by side": (store) => {
    const seen = [0, 1, 2].map((round) => {
      fill(store, `a=${round}`, `k${round}=x`);
      return store.view();
    });
    assert.deepEqual(
      seen.map((view) => scan(view, "", {})),
      ["a=0 k0=x", "a=1 k0=x k1=x", "a=2 k0=x k1=x k2=x"],
    );
    for (const view of seen) view.close();
  },
  "a closed view refuses reads; closing twice is harmless; the store may close first": async (store) => {
    fill(store, "a=1");
    const closed = store.view();
    closed.close();
    closed.close();
    assert.throws(() => closed.get("index", bytes("a")), { code: "closed" });
    const open = store.view();
    await store.close();
    assert.throws(() => open.get("index", bytes("a")), { code: "closed" });
  },
};

const ordering: Record<string, Case> = {
  "keys are ordered bytewise, not as text": (store) => {
    const keys = [[0], [0, 0], [0, 255], [1], [127], [128], [0xc3, 0xa4], [255], [255, 255]].map((key) =>
      Buffer.from(key),
    );
    store.write((batch) => {
      for (const key of [...keys].reverse()) batch.put("history", key, key);
    });
    const rows = store.scan("history", { from: Buffer.alloc(0), limit: 100 });
    assert.deepEqual(
      rows.map(({ key }) => Buffer.from(key)),
      keys,
    );
  },
  "many rows: order, point reads, ranges and deletions hold": (store) => {
    const key = (n: number): Uint8Array => bytes(String(n).padStart(6, "0"));
    const count = 20_000;
    for (let start = 0; start < count; start += 1000) {
      store.write((batch) => {
        // A fixed permutation, so that rows arrive out of order.
        for (let n = start; n < start + 1000; n += 1)
          batch.put("index", key((n * 7919) % count), bytes(`v${n}`));
      });
    }
    store.write((batch) => {
      for (let n = 0; n < count; n += 2) batch.delete("index", key(n));
    });
    const rows = store.scan("index", { from: key(0), limit: count });
    assert.equal(rows.length, count / 2);
    assert.ok(rows.every((row, at) => Buffer.compare(row.key, key(at * 2 + 1)) === 0));
    const middle = store.scan("index", { from: key(5000), to: key(5010), limit: 100, reverse: true });
    assert.deepEqual(
      middle.map((row) => text(row.key)),
      ["005009", "005007", "005005", "005003", "005001"],
    );
    assert.equal(store.get("index", key(4000)), undefined);
    assert.match(text(store.get("index", key(4001))) ?? "", /^v\d+$/);
  },
};

const lifecycle: Record<string, Case> = {
  "barriers asked for together all resolve, and writes go on meanwhile": async (store) => {
    fill(store, "a=1");
    const barriers = [store.barrier(), store.barrier(), store.barrier()];
    fill(store, "b=2");
    await Promise.all([...barriers, store.barrier()]);
    assert.equal(scan(store, "", {}), "a=1 b=2");
  },
  "statistics are figures in range": async (store) => {
    fill(store, "a=1");
    await store.barrier();
    const { bytes: size, stallPressure } = store.statistics();
    assert.ok(size > 0);
    assert.ok(stallPressure >= 0 && stallPressure <= 1);
  },
  "a closed store refuses everything with code closed": async (store) => {
    await store.close();
    await store.close();
    const closed = (error: unknown): boolean => error instanceof StoreError && error.code === "closed";
    assert.throws(() => store.get("index", bytes("a")), closed);
    assert.throws(() => store.scan("index", { from: bytes("a"), limit: 1 }), closed);
    assert.throws(() => {
      fill(store, "a=1");
    }, closed);
    assert.throws(() => store.view(), closed);
    assert.throws(() => store.statistics(), closed);
    await assert.rejects(store.barrier(), closed);
  },
};

function register(subject: ConformanceSubject, name: string, run: Case): void {
  void it(name, async () => {
    const { store, dispose } = await subject.open();
    try {
      await run(store);
    } finally {
      await store.close();
      await dispose();
    }
  });
}

export function storeConformance(subject: ConformanceSubject): void {
  void describe(`store conformance: ${subject.name}`, () => {
    for (const cases of [writes, views, ordering, lifecycle]) {
      for (const [name, run] of Object.entries(cases)) register(subject, name, run);
    }
    for (const [name, run] of Object.entries(reads)) {
      register(subject, `live store: ${name}`, (store) => {
        fill(store, "a=1", "b=2", "c=3", "d=4", "e=5");
        run(store);
      });
      register(subject, `view: ${name}`, (store) => {
        fill(store, "a=1", "b=2", "c=3", "d=4", "e=5");
        const view = store.view();
        fill(store, "a=9", "bb=9", "f=9");
        run(view);
        view.close();
      });
    }
  });
}
