import { closeSync, fdatasyncSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "./processes.ts";

/** Linux's magic numbers of file systems that keep nothing. */
const IN_MEMORY = new Set([0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */]);
const SYNCS = 200;

/** A folder of this run under `parent`. @throws BenchError when it would be in memory: fsync would cost nothing. */
export function makeRunDirectory(parent: string): string {
  mkdirSync(parent, { recursive: true });
  if (IN_MEMORY.has(statfsSync(parent).type)) {
    throw new BenchError(`${parent} is in memory (tmpfs): choose a folder on a disk with --data`);
  }
  const directory = join(parent, `run-${String(process.pid)}`);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  return directory;
}

/** Milliseconds that an fdatasync of a small append takes there: the median of some. */
export function syncMedianMs(directory: string): number {
  const file = join(directory, "sync-probe");
  const handle = openSync(file, "w");
  const block = Buffer.alloc(4096, 1);
  const times: number[] = [];
  for (let i = 0; i < SYNCS; i += 1) {
    writeSync(handle, block);
    const begin = performance.now();
    fdatasyncSync(handle);
    times.push(performance.now() - begin);
  }
  closeSync(handle);
  rmSync(file);
  return times.sort((a, b) => a - b)[SYNCS / 2] ?? 0;
}
