import { assert } from "../invariant.ts";
import { BarrierQueue, nodeBarrierFiles, syncStoreFiles, type BarrierFiles } from "./barrier.ts";
import { assertKey, scanWanted } from "./bounds.ts";
import { StoreError } from "./errors.ts";
import { StallPressure } from "./pressure.ts";
import { openNative, type ColumnChoice, type NativeBatch, type NativeDatabase } from "./rocks-binding.ts";
import { COLUMN_OF, rocksOptions, type Columns, type RocksMemory } from "./rocks-options.ts";
import { RocksView } from "./rocks-view.ts";
import {
  KEYSPACES,
  type Keyspace,
  type Row,
  type ScanOptions,
  type Store,
  type StoreStatistics,
  type StoreView,
  type WriteBatch,
} from "./types.ts";

export interface RocksStoreOptions extends RocksMemory {
  /** Monotonic milliseconds: how old the cached stall figures are. */
  readonly now: () => number;
  /** Default: node:fs. */
  readonly files?: BarrierFiles;
}

const EMPTY_VALUE: Uint8Array = new Uint8Array(0);
const HIGH_WATER_NONE = 2 ** 31 - 1;
/** Never true here: a synced write blocks the event loop for an fsync. Barriers make writes durable. */
const UNSYNCED = { sync: false } as const;

/**
 * Opens or creates the store in `directory`.
 *
 * @throws {@link StoreError} `open-failed`
 */
export async function openRocksStore(directory: string, options: RocksStoreOptions): Promise<Store> {
  let database: NativeDatabase | undefined;
  try {
    database = await openNative(directory, rocksOptions(options));
    const store = new RocksStore(directory, database, options);
    await store.barrier();
    return store;
  } catch (error) {
    await database?.close().catch(() => undefined);
    throw new StoreError("open-failed", `cannot open the store in ${directory}`, error);
  }
}

class RocksStore implements Store {
  readonly #database: NativeDatabase;
  readonly #columns: Columns;
  /** The one batch of this store: a new one per write is freed by the garbage collector only, far too late. */
  readonly #native: NativeBatch;
  readonly #batch: ReusedBatch;
  readonly #barriers: BarrierQueue;
  readonly #pressure: StallPressure;
  readonly #views = new Set<RocksView>();
  #bytes = 0;
  #writing = false;
  #failure: StoreError | undefined;
  #closing: Promise<void> | undefined;

  constructor(directory: string, database: NativeDatabase, options: RocksStoreOptions) {
    const files = options.files ?? nodeBarrierFiles;
    this.#database = database;
    this.#columns = columnsOf(database);
    this.#native = database._chainedBatch();
    this.#batch = new ReusedBatch(this.#native, this.#columns);
    this.#pressure = new StallPressure(database, options.now);
    this.#barriers = new BarrierQueue(async () => {
      this.#bytes = await syncStoreFiles(directory, files);
    });
  }

  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined {
    return this.getMany(keyspace, [key])[0];
  }

  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[] {
    this.#mustWork();
    if (keys.length === 0) return [];
    let values: (Buffer | undefined | null)[];
    try {
      values = this.#database._getManySync(keys, this.#columns[keyspace]);
    } catch (error) {
      throw this.#fail("a read of the store failed", error);
    }
    // null stands for a read that was given up: without a deadline or a soft limit that cannot happen.
    if (values.includes(null)) throw this.#fail("a read of the store was given up", undefined);
    return values as (Buffer | undefined)[];
  }

  scan(keyspace: Keyspace, options: ScanOptions): Row[] {
    this.#mustWork();
    if (!scanWanted(options)) return [];
    const { from, to, bytesMax } = options;
    const values = options.keysOnly !== true;
    let rows: readonly (Buffer | undefined)[];
    try {
      rows = this.#database.querySync({
        column: this.#columns[keyspace].column,
        keyEncoding: "buffer",
        valueEncoding: "buffer",
        reverse: options.reverse === true,
        values,
        limit: Math.min(options.limit, HIGH_WATER_NONE),
        // The native bound ends after the row that *exceeds* it.
        highWaterMarkBytes: bytesMax === undefined ? HIGH_WATER_NONE : Math.max(0, bytesMax - 1),
        fillCache: true,
        asyncIO: false,
        ...(from.length > 0 && { gte: from }),
        ...(to !== undefined && { lt: to }),
      }).rows;
    } catch (error) {
      throw this.#fail("a scan of the store failed", error);
    }
    return toRows(rows);
  }

  write(fill: (batch: WriteBatch) => void): void {
    this.#mustWork();
    assert(!this.#writing, "a write does not begin inside another");
    this.#writing = true;
    try {
      this.#native._clear();
      this.#batch.rows = 0;
      fill(this.#batch);
      if (this.#batch.rows > 0) this.#commit();
    } finally {
      this.#writing = false;
    }
  }

  view(): StoreView {
    this.#mustWork();
    const view = new RocksView(this.#database, this.#columns, () => this.#views.delete(view));
    this.#views.add(view);
    return view;
  }

  barrier(): Promise<void> {
    const unusable = this.#unusable();
    return unusable === undefined ? this.#barriers.barrier() : Promise.reject(unusable);
  }

  statistics(): StoreStatistics {
    this.#mustWork();
    return { bytes: this.#bytes, stallPressure: this.#pressure.get() };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#barriers.idle();
    for (const view of [...this.#views]) view.close();
    await this.#native.close();
    await this.#database.close();
  }

  #commit(): void {
    try {
      this.#native._writeSync(UNSYNCED);
    } catch (error) {
      throw this.#fail("a write of the store failed; its outcome is unknown", error);
    }
  }

  /** RocksDB refuses writes after a background error until it is reopened, and memory may be ahead of disk (W11). */
  #fail(message: string, cause: unknown): StoreError {
    this.#failure = new StoreError("failed", `${message}: the member must stop`, cause);
    return this.#failure;
  }

  #mustWork(): void {
    const unusable = this.#unusable();
    if (unusable !== undefined) throw unusable;
  }

  #unusable(): StoreError | undefined {
    if (this.#closing !== undefined) return new StoreError("closed", "the store is closed");
    return this.#failure ?? this.#barriers.failure;
  }
}

class ReusedBatch implements WriteBatch {
  readonly #native: NativeBatch;
  readonly #columns: Columns;
  rows = 0;

  constructor(native: NativeBatch, columns: Columns) {
    this.#native = native;
    this.#columns = columns;
  }

  put(keyspace: Keyspace, key: Uint8Array, value: Uint8Array): void {
    assertKey(key);
    this.rows += 1;
    this.#native._put(key, value, this.#columns[keyspace]);
  }

  delete(keyspace: Keyspace, key: Uint8Array): void {
    assertKey(key);
    this.rows += 1;
    this.#native._del(key, this.#columns[keyspace]);
  }
}

/** @param flat key, value, key, value, … */
function toRows(flat: readonly (Buffer | undefined)[]): Row[] {
  const rows: Row[] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) {
    const key = flat[at];
    assert(key !== undefined, "every scanned row has a key");
    rows.push({ key, value: flat[at + 1] ?? EMPTY_VALUE });
  }
  return rows;
}

function columnsOf(database: NativeDatabase): Columns {
  const entries = KEYSPACES.map((keyspace): [Keyspace, ColumnChoice] => {
    const column = database.columns[COLUMN_OF[keyspace]];
    assert(column !== undefined, "every keyspace has its column", { keyspace });
    return [keyspace, { column }];
  });
  return Object.fromEntries(entries) as Record<Keyspace, ColumnChoice>;
}
