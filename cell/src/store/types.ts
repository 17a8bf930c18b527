/**
 * The ordered key-value store under the state machine: RocksDB, and a memory twin for tests and simulation. Both pass
 * `conformance.ts`. Reads and writes are synchronous and short (microseconds); long work is sliced by the caller.
 * No write is durable until a {@link Store.barrier} that follows it; the write-ahead log is the truth.
 */
export type Keyspace = "index" | "history" | "leases" | "lease-keys" | "requests" | "meta";

export const KEYSPACES: readonly Keyspace[] = [
  "index",
  "history",
  "leases",
  "lease-keys",
  "requests",
  "meta",
];

export interface Row {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

export interface ScanOptions {
  /** Inclusive lower bound. */
  readonly from: Uint8Array;
  /** Exclusive upper bound; absent: to the end of the keyspace. */
  readonly to?: Uint8Array;
  readonly reverse?: boolean;
  /** At most this many rows. Required: nothing scans without a bound. */
  readonly limit: number;
  /** Stop after the row that reaches this many bytes of keys and values. */
  readonly bytesMax?: number;
  /** Leave values empty. */
  readonly keysOnly?: boolean;
}

/**
 * Synchronous reads, on the live store or on a pinned view. Keys are compared bytewise. Keys and values handed out
 * must not be changed.
 */
export interface StoreReader {
  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined;
  /** One call for many keys; the answer is in the order of `keys`. */
  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[];
  scan(keyspace: Keyspace, options: ScanOptions): Row[];
}

/** All changes of one apply. Later operations on a key win. Keys are 1 to 65,535 bytes. */
export interface WriteBatch {
  /**
   * @param isNew the caller knows that there is no row of this key now: a row that is deleted again soon may then never
   * be written at all. Default: not known
   */
  put(keyspace: Keyspace, key: Uint8Array, value: Uint8Array, isNew?: boolean): void;
  delete(keyspace: Keyspace, key: Uint8Array): void;
}

/** A view pinned at one moment; must be closed. */
export interface StoreView extends StoreReader {
  close(): void;
}

export interface StoreStatistics {
  /** On disk (RocksDB) or estimated (memory). */
  readonly bytes: number;
  /** 0..1: how close RocksDB is to a write stall; at 1 proposals must wait. */
  readonly stallPressure: number;
}

export interface Store extends StoreReader {
  /**
   * Applies everything `fill` puts into the batch, atomically. The batch object is reused: it is valid only during
   * the call.
   *
   * @param isLasting nobody changes the bytes that `fill` hands over, also after the call: a store that keeps rows in
   * memory then keeps them without a copy. Default: they may be used again
   */
  write(fill: (batch: WriteBatch) => void, isLasting?: boolean): void;
  /** Pins the present state. */
  view(): StoreView;
  /**
   * Everything written before the call is durable when it resolves. Runs off the event loop while writes go on.
   * Barriers do not overlap: a call during one waits for the next.
   */
  barrier(): Promise<void>;
  statistics(): StoreStatistics;
  close(): Promise<void>;
}
