import type { Entry, HardState, LogIndex, MemberId, Term } from "../../raft/types.ts";
import { openWal } from "../open.ts";
import type { Disk, LogPosition, Wal, WalIdentity, WalOptions, WalRecovery, WalWrite } from "../types.ts";

/** What the tests of the log share. */
export const DIRECTORY = "/data/wal";
export const IDENTITY: WalIdentity = {
  cellId: "cell-a",
  memberId: 7,
  incarnation: "0c9a7e3e-59a1-4ad0-a9a8-6f0e3c1d2b4f",
};

/** A small seeded generator (mulberry32), uniform in [0, 1). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

export function entry(index: number, term: number, data: string | Uint8Array = `entry ${index}`): Entry {
  return {
    index: index as LogIndex,
    term: term as Term,
    kind: index % 5 === 0 ? "configuration" : "normal",
    data: typeof data === "string" ? Buffer.from(data) : data,
  };
}

export function hardState(term: number, vote: number, commit: number): HardState {
  return { term: term as Term, vote: vote as MemberId, commit: commit as LogIndex };
}

export function at(index: number, term: number): LogPosition {
  return { index: index as LogIndex, term: term as Term };
}

/** Options of a small log; a fatal error that the test did not ask for fails it. */
export function optionsOn(disk: Disk, changed: Partial<WalOptions> = {}): WalOptions {
  return {
    disk,
    directory: DIRECTORY,
    identity: IDENTITY,
    segmentBytesMax: 1024,
    onFatal: (error) => {
      throw error;
    },
    now: () => 0,
    ...changed,
  };
}

export function openOn(
  disk: Disk,
  changed: Partial<WalOptions> = {},
): Promise<{ wal: Wal; recovery: WalRecovery }> {
  return openWal(optionsOn(disk, changed));
}

/** Resolves when the write is durable. */
export function appended(wal: Wal, write: WalWrite): Promise<void> {
  return new Promise((resolve) => wal.append(write, resolve));
}

/** Lets everything that completes in microtasks complete. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Indexes and terms, as `term/index`. */
export function shape(entries: readonly Entry[]): string[] {
  return entries.map(({ term, index }) => `${term}/${index}`);
}
