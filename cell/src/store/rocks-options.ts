import type { ColumnChoice, ColumnOptions, OpenOptions } from "./rocks-binding.ts";
import type { Keyspace } from "./types.ts";

const MIB = 1024 * 1024;

/**
 * `history` lives in RocksDB's column family `default`: the binding reads properties of that one only, and history
 * takes most bytes, so its level-0 files and compaction debt are the ones that warn of a stall.
 */
export const COLUMN_OF: Readonly<Record<Keyspace, string>> = {
  index: "index",
  history: "default",
  leases: "leases",
  "lease-keys": "lease-keys",
  requests: "requests",
  meta: "meta",
};

/** The native option object of each keyspace, made once. */
export type Columns = Readonly<Record<Keyspace, ColumnChoice>>;

/**
 * Budgets are explicit and small. Normally three write buffers (3/4 of the budget) are in memory, six when flushing
 * lags. Small buffers also bound the log: RocksDB flushes the column that holds back its oldest log once all logs
 * exceed four times what all write buffers together may take.
 *
 * Compression: with level compaction the binding leaves levels 0 and 1 (about one and a half budgets) uncompressed
 * and compresses deeper ones with Zstandard; LZ4 cannot be chosen. `compression: true` would only add dictionary
 * training, which costs memory and compaction time, so it is off.
 */
function column(budgetMib: number, cacheMib: number): ColumnOptions {
  return {
    compaction: "level",
    memtableMemoryBudget: Math.floor(budgetMib * MIB),
    cacheSize: Math.floor(cacheMib * MIB),
    compression: false,
    blockSize: 4096,
    // Full Bloom filters: most of an apply's look-ups in `index` and `requests` are for keys that do not exist.
    filterPolicy: "bloomfilter:10:false",
  };
}

/**
 * `history` is written in key order and rarely overlaps itself, so with RocksDB's defaults its files only move from level
 * to level, unread and unwritten. Compressing the last level instead (what `level` does) rewrote every row once more:
 * measured with 320-byte rows, 8.5 against 6.2 microseconds of processor time a put, both with two rows a put. The price
 * is disk space, and a write buffer of 64 MiB.
 */
function historyColumn(cacheMib: number): ColumnOptions {
  return {
    cacheSize: Math.floor(cacheMib * MIB),
    compression: false,
    // Fewer and larger blocks: index blocks and checksums cost less, and history is read in stretches.
    blockSize: 8192,
    filterPolicy: "bloomfilter:10:false",
  };
}

export interface RocksMemory {
  /**
   * Multiplies memtable budgets and block caches, except history's write buffer. Default 1 (about 25 MB of memtables
   * and 64 MB for history's, 18 MB of caches).
   */
  readonly memoryScale?: number;
}

export function rocksOptions(memory: RocksMemory): OpenOptions {
  const scale = memory.memoryScale ?? 1;
  const sized = (budgetMib: number, cacheMib: number): ColumnOptions =>
    column(budgetMib * scale, cacheMib * scale);
  const history = historyColumn(8 * scale);
  return {
    ...history,
    columns: {
      default: history,
      // Hash index in data blocks and a Bloom filter over each memtable: this one is read by whole key all the time.
      index: { ...sized(12, 6), optimize: "point-lookup" },
      requests: { ...sized(6, 1), optimize: "point-lookup" },
      leases: sized(3, 1),
      "lease-keys": sized(3, 1),
      meta: sized(3, 0.5),
    },
    createIfMissing: true,
    errorIfExists: false,
    walCompression: false,
    // One flush and one compaction at a time: more threads would only take the cores from the event loop.
    parallelism: 2,
  };
}
