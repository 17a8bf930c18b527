import type { Entry, HardState, LogIndex, Term } from "../raft/types.ts";

/**
 * The files a log needs, so that the same code runs on a real disk and in the simulator. Every failure is fatal for
 * the member (W7): callers do not retry.
 */
export interface Disk {
  /** Creates it with its parents, durably; nothing happens when it exists. */
  makeDirectory(path: string): Promise<void>;
  /** Names of entries, sorted; `undefined` when the directory does not exist. */
  list(directory: string): Promise<string[] | undefined>;
  /** The whole file; `undefined` when it does not exist. */
  read(path: string): Promise<Buffer | undefined>;
  /** Creates (or truncates) a file of `bytes` zeros whose blocks are allocated, and fsyncs it. Throws on ENOSPC. */
  createZeroed(path: string, bytes: number): Promise<void>;
  open(path: string): Promise<DiskFile>;
  /** Replaces `to` when it exists. */
  rename(from: string, to: string): Promise<void>;
  /** A file; nothing happens when it does not exist. */
  remove(path: string): Promise<void>;
  /** A file, or a directory with all it holds; nothing happens when it does not exist. */
  removeTree(path: string): Promise<void>;
  /** fsync of a directory: makes creations, renames and removals in it durable. */
  syncDirectory(path: string): Promise<void>;
  /** Bytes an unprivileged writer may still use on the volume of `path`. */
  freeBytes(path: string): Promise<number>;
  /** Size of the volume of `path`. */
  volumeBytes(path: string): Promise<number>;
}

export interface DiskFile {
  /**
   * Writes all of `buffers` at `position` and makes them durable (fdatasync semantics) before it resolves. Loops on
   * short writes.
   */
  writeDurably(buffers: readonly Uint8Array[], position: number): Promise<void>;
  close(): Promise<void>;
}

/** Who wrote the log; any difference between segments, or with the member's identity file, is fatal (W1). */
export interface WalIdentity {
  readonly cellId: string;
  readonly memberId: number;
  /** UUID of the disk. */
  readonly incarnation: string;
}

/** An entry's place in the log; {0, 0} is before the first entry. */
export interface LogPosition {
  readonly index: LogIndex;
  readonly term: Term;
}

export interface WalWrite {
  readonly hardState?: HardState;
  /** A snapshot was installed: the log restarts after `index`. Comes before `entries`. */
  readonly snapshot?: LogPosition;
  /** Everything from the first entry's index on is superseded. */
  readonly entries: readonly Entry[];
}

export interface WalRecovery {
  readonly hardState?: HardState;
  /** The log begins after this index. {0, 0} for a fresh log. */
  readonly logStart: LogPosition;
  /** Contiguous from `logStart.index + 1`. */
  readonly entries: readonly Entry[];
  /** A torn tail was cut: what was cut, for the log line. */
  readonly repaired?: { readonly segment: string; readonly offset: number; readonly bytes: number };
}

/** The write-ahead log of one member. */
export interface Wal {
  /**
   * Queues a write; `done` runs once it and everything before it is durable. Writes that queue up during one
   * fdatasync share the next (group commit).
   */
  append(write: WalWrite, done: () => void): void;
  /**
   * The log up to and including `index` (of `term`) is no longer needed: removes whole segments below it, later, off
   * the hot path. The caller keeps W9.
   */
  release(index: LogIndex, term: Term): void;
  /** Bytes of all segments on disk. */
  readonly bytes: number;
  /** Resolves once everything queued is durable and files are closed. */
  close(): Promise<void>;
}

export interface WalOptions {
  readonly disk: Disk;
  readonly directory: string;
  readonly identity: WalIdentity;
  /** Default 16 MiB. */
  readonly segmentBytesMax?: number;
  /** Called once on the first failed write or sync; the member must stop without answering (W7). */
  readonly onFatal: (error: Error) => void;
  /** Called after each group commit: how long it took and how many writes shared it. */
  readonly onSync?: (durationMs: number, writes: number, bytes: number) => void;
  /** Monotonic milliseconds, for `onSync`. */
  readonly now: () => number;
}
