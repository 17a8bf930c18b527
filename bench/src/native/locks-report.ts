/** Locks that a process only holds. */
export interface IdleLocks {
  readonly locks: number;
  readonly acquiredPerSecond: number;
  /** On the main thread's heap and beside it, after a collection. */
  readonly heapBytesEach: number;
  /** Of the whole process, with the thread that renews. */
  readonly residentBytesEach: number;
  /** Of one core, by all of them together. */
  readonly idleCoreShare: number;
}

export interface HandOver {
  readonly what: string;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** The JSON line of locks-main.ts. */
export interface LocksReport {
  /** With `watchKey: false`. */
  readonly unwatched: IdleLocks;
  readonly watched: IdleLocks;
  /** A put, one at a time: to compare hand-overs with. */
  readonly roundTrip: HandOver;
  readonly handOvers: readonly HandOver[];
}
