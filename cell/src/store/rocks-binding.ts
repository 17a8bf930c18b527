/**
 * The few calls of `@nxtedition/rocksdb` that the store uses, typed. The package ships no types, and its promise API
 * costs more than the synchronous calls under it; those are underscore methods, so its version is pinned exactly and
 * the conformance suite is what notices a change.
 */
import { createRequire } from "node:module";

/** Opaque native pointer of a column family. */
export interface ColumnHandle {
  readonly opaque: "column";
}

export interface ColumnOptions {
  /**
   * `level`: write buffer = budget / 4, L1 = budget, target file = budget / 8; two buffers merge into one L0 file;
   * levels from 2 on are compressed with Zstandard. Absent: RocksDB's own defaults (64 MiB write buffers, two at most;
   * leveled compaction; nothing compressed).
   */
  readonly compaction?: "level";
  /** With `level` only. */
  readonly memtableMemoryBudget?: number;
  /** 0: no block cache. */
  readonly cacheSize: number;
  readonly compression: boolean;
  readonly optimize?: "point-lookup";
  readonly filterPolicy?: string;
  readonly blockSize?: number;
}

export interface OpenOptions extends ColumnOptions {
  readonly columns: Readonly<Record<string, ColumnOptions>>;
  readonly createIfMissing: boolean;
  readonly errorIfExists: boolean;
  readonly walCompression: boolean;
  readonly parallelism: number;
}

export interface QueryOptions {
  readonly column: ColumnHandle;
  readonly keyEncoding: "buffer";
  readonly valueEncoding: "buffer";
  readonly gte?: Uint8Array;
  readonly lt?: Uint8Array;
  readonly reverse: boolean;
  readonly values: boolean;
  readonly limit: number;
  /** The row that exceeds this many bytes is the last. */
  readonly highWaterMarkBytes: number;
  readonly fillCache: boolean;
  readonly asyncIO: boolean;
}

/** `rows` alternates key and value; a value is undefined when `values` is false. */
export interface QueryResult {
  readonly rows: readonly (Buffer | undefined)[];
  readonly finished: boolean;
}

export interface ColumnChoice {
  readonly column: ColumnHandle;
}

/** A native write batch. `_clear` keeps its memory, so one batch serves every write. */
export interface NativeBatch {
  _put(key: Uint8Array, value: Uint8Array, options: ColumnChoice): void;
  _del(key: Uint8Array, options: ColumnChoice): void;
  _clear(): void;
  _writeSync(options: { readonly sync: boolean }): void;
  close(): Promise<void>;
}

/** Sees the database as it was when the iterator was made. */
export interface NativeIterator {
  /** `target` must not be empty. Reverse: positions at the last key <= target. */
  _seekSync(target: Uint8Array): void;
  _nextvSync(size: number): QueryResult;
  close(): Promise<void>;
}

export interface NativeDatabase {
  readonly columns: Readonly<Record<string, ColumnHandle>>;
  /** One native MultiGet. null: the read was given up. */
  _getManySync(keys: readonly Uint8Array[], options: ColumnChoice): (Buffer | undefined | null)[];
  querySync(options: QueryOptions): QueryResult;
  _chainedBatch(): NativeBatch;
  _iterator(options: QueryOptions): NativeIterator;
  /** Of the column family `default`, or of the whole database. Empty when unknown. */
  getProperty(name: string): string;
  close(): Promise<void>;
}

interface RocksModule {
  readonly RocksLevel: {
    open(directory: string, options: OpenOptions): Promise<NativeDatabase>;
  };
}

const { RocksLevel } = createRequire(import.meta.url)("@nxtedition/rocksdb") as RocksModule;

export async function openNative(directory: string, options: OpenOptions): Promise<NativeDatabase> {
  return await RocksLevel.open(directory, options);
}
