// What the load needs of a cell. The client library stands behind it (client-store.ts); in tests a store that lies.

/** What an acknowledged write was told. */
export interface WriteResult {
  readonly revision: number;
  readonly createRevision: number;
  /** 1 at creation, +1 for each write. */
  readonly version: number;
}

/** One key as it was read. Every value of the load is a number that grows with each attempt on its key. */
export interface Stored {
  readonly key: string;
  readonly value: number;
  readonly revision: number;
  readonly createRevision: number;
  readonly version: number;
}

/** One key at a revision. */
export interface Reading {
  /** The revision that the answer reflects. */
  readonly revision: number;
  /** Absent: there is no such key. */
  readonly stored?: Stored;
}

export type CompareResult =
  | { readonly kind: "written"; readonly result: WriteResult }
  /** The comparison failed; this was there. */
  | { readonly kind: "refused"; readonly reading: Reading };

export interface StoreEvent {
  readonly kind: "put" | "delete";
  readonly key: string;
  /** Of a deletion: 0. */
  readonly value: number;
  readonly revision: number;
  /** Of a deletion: 0. */
  readonly version: number;
}

/** All events of whole revisions up to and including `revision`. */
export interface StoreBatch {
  readonly revision: number;
  readonly events: readonly StoreEvent[];
}

export interface StoreSession {
  /** False once it is over, or may be, by this process's own clocks read now. */
  isAlive(): boolean;
  /** Never throws. */
  close(): Promise<void>;
}

export interface StoreLock {
  readonly token: number;
  /** True only while it is certainly held, by this process's own clocks read now. */
  isHeld(): boolean;
  release(): Promise<void>;
}

/**
 * All of them reject with the client library's LockstepError, whose outcome says whether a write took effect.
 */
export interface Store {
  put(key: string, value: number): Promise<WriteResult>;
  /** Writes if the key's revision is `revision`; 0: if there is no such key. */
  compareAndPut(key: string, value: number, revision: number): Promise<CompareResult>;
  /** Linearizable; or as of the revision `at`. */
  get(key: string, at?: number): Promise<Reading>;
  /** All keys below a prefix, linearizable and at one revision. */
  list(prefix: string): Promise<{ readonly revision: number; readonly stored: readonly Stored[] }>;
  /** Changes below a prefix from a revision on; ends quietly when the signal fires. */
  watch(prefix: string, startRevision: number, signal: AbortSignal): AsyncIterable<StoreBatch>;
  session(owner: string): Promise<StoreSession>;
  /** Waits for the lock, at most `waitMs`. */
  lock(name: string, session: StoreSession, waitMs: number): Promise<StoreLock>;
}
