/**
 * The store's twin in memory, for tests and simulation: the same behaviour (it passes the same conformance suite),
 * and a crash that loses any suffix of the writes after the last barrier, as RocksDB may on a power cut.
 */
import { assert } from "../invariant.ts";
import { BarrierQueue } from "./barrier.ts";
import { assertKey, scanWanted } from "./bounds.ts";
import { StoreError } from "./errors.ts";
import { SortedMap, type Position } from "./sorted-map.ts";
import {
  KEYSPACES,
  type Keyspace,
  type Row,
  type ScanOptions,
  type Store,
  type StoreReader,
  type StoreStatistics,
  type StoreView,
  type WriteBatch,
} from "./types.ts";

/** Write batches kept undone-able; older ones count as written back, as RocksDB's flushes would make them. */
const PENDING_WRITES_MAX = 100_000;
const EMPTY_VALUE: Uint8Array = new Uint8Array(0);

export interface MemoryStoreOptions {
  /** What a barrier waits for before it holds, e.g. the simulated disk. Default: nothing. Rejection is final (W7). */
  readonly sync?: () => Promise<void>;
}

export interface MemoryStore extends Store {
  /**
   * Power cut and restart: keeps everything up to the last barrier and a prefix of the writes after it. Views are
   * closed, a barrier that was running never holds; the store is then open again (also after `close`).
   *
   * @param random uniform in [0, 1): how long the kept prefix is
   */
  crash(random: () => number): void;
  /** Write batches that a crash may lose. */
  readonly pendingWrites: number;
}

export function openMemoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  return new MemoryStoreTwin(options);
}

type Maps = Record<Keyspace, SortedMap>;

interface Change {
  readonly keyspace: Keyspace;
  readonly key: Uint8Array;
  readonly value: Uint8Array | undefined;
}

class MapsReader implements StoreReader {
  protected maps: Maps;

  constructor(maps: Maps) {
    this.maps = maps;
  }

  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined {
    this.mustWork();
    return this.maps[keyspace].get(key);
  }

  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[] {
    this.mustWork();
    return keys.map((key) => this.maps[keyspace].get(key));
  }

  scan(keyspace: Keyspace, options: ScanOptions): Row[] {
    this.mustWork();
    return scanWanted(options) ? scanMap(this.maps[keyspace], options) : [];
  }

  protected mustWork(): void {
    // A plain reader always works.
  }
}

class MemoryView extends MapsReader implements StoreView {
  #closed = false;

  get closed(): boolean {
    return this.#closed;
  }

  close(): void {
    this.#closed = true;
  }

  protected override mustWork(): void {
    if (this.#closed) throw new StoreError("closed", "the view is closed");
  }
}

class MemoryStoreTwin extends MapsReader implements MemoryStore {
  readonly #sync: () => Promise<void>;
  readonly #views = new Set<MemoryView>();
  #barriers: BarrierQueue;
  /** State that a crash cannot take back; `#pending` leads from it to the live maps. */
  #durable: Maps = emptyMaps();
  #pending: Change[][] = [];
  /** Counts pending writes ever made durable, so that a barrier knows its own after others were written back. */
  #durableWrites = 0;
  #writing = false;
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    super(emptyMaps());
    this.#sync = options.sync ?? ((): Promise<void> => Promise.resolve());
    this.#barriers = this.#newBarriers();
  }

  get pendingWrites(): number {
    return this.#pending.length;
  }

  write(fill: (batch: WriteBatch) => void): void {
    this.mustWork();
    assert(!this.#writing, "a write does not begin inside another");
    const changes: Change[] = [];
    this.#writing = true;
    try {
      fill(collector(changes));
    } finally {
      this.#writing = false;
    }
    applyChanges(this.maps, changes);
    this.#pending.push(changes);
    if (this.#pending.length > PENDING_WRITES_MAX)
      this.#makeDurable(this.#durableWrites + PENDING_WRITES_MAX / 2);
  }

  view(): StoreView {
    this.mustWork();
    for (const view of this.#views) if (view.closed) this.#views.delete(view);
    const view = new MemoryView(cloneMaps(this.maps));
    this.#views.add(view);
    return view;
  }

  barrier(): Promise<void> {
    const unusable = this.#unusable();
    return unusable === undefined ? this.#barriers.barrier() : Promise.reject(unusable);
  }

  statistics(): StoreStatistics {
    this.mustWork();
    const bytes = KEYSPACES.reduce((sum, keyspace) => sum + this.maps[keyspace].bytes, 0);
    return { bytes, stallPressure: 0 };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#closeViews();
    await this.#barriers.idle();
  }

  crash(random: () => number): void {
    const kept = Math.min(this.#pending.length, Math.floor(random() * (this.#pending.length + 1)));
    this.#makeDurable(this.#durableWrites + kept);
    this.#pending = [];
    this.maps = cloneMaps(this.#durable);
    this.#closeViews();
    this.#barriers = this.#newBarriers();
    this.#closed = false;
    this.#writing = false;
  }

  protected override mustWork(): void {
    const unusable = this.#unusable();
    if (unusable !== undefined) throw unusable;
  }

  #unusable(): StoreError | undefined {
    return this.#closed ? new StoreError("closed", "the store is closed") : this.#barriers.failure;
  }

  #newBarriers(): BarrierQueue {
    const queue = new BarrierQueue(async () => {
      const covered = this.#durableWrites + this.#pending.length;
      await this.#sync();
      // A crash meanwhile replaced the queue: the writes this barrier counted may be gone.
      if (this.#barriers !== queue) throw new StoreError("closed", "the store crashed during the barrier");
      this.#makeDurable(covered);
    });
    return queue;
  }

  #makeDurable(writes: number): void {
    const count = writes - this.#durableWrites;
    if (count <= 0) return;
    for (const changes of this.#pending.slice(0, count)) applyChanges(this.#durable, changes);
    this.#pending = this.#pending.slice(count);
    this.#durableWrites = writes;
  }

  #closeViews(): void {
    for (const view of this.#views) view.close();
    this.#views.clear();
  }
}

function collector(changes: Change[]): WriteBatch {
  return {
    put(keyspace, key, value): void {
      assertKey(key);
      // Copied, as RocksDB does: callers reuse their buffers.
      changes.push({ keyspace, key: Uint8Array.from(key), value: Buffer.from(value) });
    },
    delete(keyspace, key): void {
      assertKey(key);
      changes.push({ keyspace, key: Uint8Array.from(key), value: undefined });
    },
  };
}

function applyChanges(maps: Maps, changes: readonly Change[]): void {
  for (const { keyspace, key, value } of changes) {
    if (value === undefined) maps[keyspace].delete(key);
    else maps[keyspace].set(key, value);
  }
}

function emptyMaps(): Maps {
  return mapKeyspaces(() => new SortedMap());
}

function cloneMaps(maps: Maps): Maps {
  return mapKeyspaces((keyspace) => maps[keyspace].clone());
}

function mapKeyspaces(make: (keyspace: Keyspace) => SortedMap): Maps {
  return Object.fromEntries(KEYSPACES.map((keyspace) => [keyspace, make(keyspace)])) as Maps;
}

function scanMap(map: SortedMap, options: ScanOptions): Row[] {
  const { from, to, reverse, limit, bytesMax, keysOnly } = options;
  const rows: Row[] = [];
  let bytes = 0;
  let at: Position | undefined = reverse === true ? map.lastBelow(to) : map.firstFrom(from);
  while (at !== undefined && rows.length < limit) {
    const { key, value } = map.at(at);
    if (reverse === true ? Buffer.compare(key, from) < 0 : to !== undefined && Buffer.compare(key, to) >= 0)
      break;
    rows.push({ key, value: keysOnly === true ? EMPTY_VALUE : value });
    bytes += key.length + (keysOnly === true ? 0 : value.length);
    if (bytesMax !== undefined && bytes >= bytesMax) break;
    at = reverse === true ? map.previous(at) : map.next(at);
  }
  return rows;
}
