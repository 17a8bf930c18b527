import type { NativeDatabase } from "./rocks-binding.ts";

/** RocksDB's defaults, at which it begins to delay writes: on the event loop a delayed write is a stall. */
const LEVEL0_FILES_SLOWDOWN = 20;
const PENDING_COMPACTION_BYTES_SLOWDOWN = 64 * 1024 ** 3;
/** Of the six write buffers that the binding allows; at five unflushed ones RocksDB delays. */
const UNFLUSHED_MEMTABLES_SLOWDOWN = 5;
const REFRESH_MS = 250;

/**
 * How near RocksDB is to delaying writes, 0..1. Delayed or stopped writes of *any* column give 1; the figures that
 * warn before are those of the column that takes most bytes (`COLUMN_OF`). Read at most every 250 ms.
 */
export class StallPressure {
  readonly #database: NativeDatabase;
  readonly #now: () => number;
  #readAtMs = -Infinity;
  #pressure = 0;

  constructor(database: NativeDatabase, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  get(): number {
    const now = this.#now();
    if (now - this.#readAtMs >= REFRESH_MS) {
      this.#readAtMs = now;
      this.#pressure = stallPressure((name) => Number(this.#database.getProperty(`rocksdb.${name}`)));
    }
    return this.#pressure;
  }
}

/** @param property a RocksDB property by its name after `rocksdb.` */
export function stallPressure(property: (name: string) => number): number {
  if (property("is-write-stopped") > 0 || property("actual-delayed-write-rate") > 0) return 1;
  return Math.min(
    1,
    Math.max(
      property("num-files-at-level0") / LEVEL0_FILES_SLOWDOWN,
      property("num-immutable-mem-table") / UNFLUSHED_MEMTABLES_SLOWDOWN,
      property("estimate-pending-compaction-bytes") / PENDING_COMPACTION_BYTES_SLOWDOWN,
    ),
  );
}
