import { assert } from "../invariant.ts";
import type { ScanOptions } from "./types.ts";

/** Longest key of any keyspace: what makes {@link AFTER_LAST_KEY} larger than every key. */
export const KEY_BYTES_MAX = 65_535;

/** Larger than every key that can be stored. */
export const AFTER_LAST_KEY: Uint8Array = Buffer.alloc(KEY_BYTES_MAX + 1, 0xff);

/** Not larger than any key: keys are not empty. */
export const FIRST_KEY: Uint8Array = Buffer.alloc(1);

/** Checked by both stores, so that the twin refuses what RocksDB would. */
export function assertKey(key: Uint8Array): void {
  assert(key.length > 0 && key.length <= KEY_BYTES_MAX, "0 < key bytes <= max", { bytes: key.length });
}

/** @returns false when the range is empty and nothing need be read. */
export function scanWanted(options: ScanOptions): boolean {
  assert(Number.isSafeInteger(options.limit) && options.limit >= 0, "scan limit >= 0", {
    limit: options.limit,
  });
  if (options.limit === 0) return false;
  return options.to === undefined || Buffer.compare(options.from, options.to) < 0;
}
