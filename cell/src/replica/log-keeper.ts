import { assert } from "../invariant.ts";
import type { LogIndex, RaftNode } from "../raft/types.ts";
import type { Wal } from "../wal/types.ts";
import type { CellState } from "./state.ts";

export interface LogKeeperOptions {
  readonly raft: RaftNode;
  readonly wal: Wal;
  readonly state: CellState;
  readonly fatal: (error: Error) => void;
  /** Entries kept behind the barrier for members that lag a little. Default 16 MiB. */
  readonly keepBytes: number;
  /** A snapshot being sent needs the log after this index (R33); undefined: none is. */
  readonly pinned: () => LogIndex | undefined;
  /** The log after this index would spare a member that is expected back a stream of the state; undefined: none. */
  readonly awaited: () => LogIndex | undefined;
}

/**
 * Beyond this many times the kept bytes nothing holds the log back any longer: a snapshot's receiver then starts over,
 * and a member that was away gets the state.
 */
const PIN_BYTES_FACTOR = 8;
/** Marks in the bytes that are kept: a cell with little to write must not collect one a second for days. */
const MARKS_IN_KEPT_BYTES = 64;

interface Mark {
  readonly index: LogIndex;
  readonly totalBytes: number;
}

/**
 * Moves the barrier (the applied index that survives a power cut) and releases the log behind it. W9: the log is
 * never truncated beyond the barrier, because the store is written without fsync and may fall back to it.
 */
export class LogKeeper {
  readonly #options: LogKeeperOptions;
  #barrierIndex: LogIndex;
  #running = false;
  /** How many log bytes had been applied up to an index, oldest first; some of them may lie before the barrier. */
  readonly #marks: Mark[] = [];
  #totalBytes = 0;

  constructor(options: LogKeeperOptions) {
    this.#options = options;
    // What the store holds at start has survived already, or came from a recovery that did.
    this.#barrierIndex = options.state.appliedIndex;
  }

  get barrierIndex(): LogIndex {
    return this.#barrierIndex;
  }

  /** Counts applied bytes; called for every entry, in order. */
  applied(index: LogIndex, bytes: number): void {
    this.#totalBytes += bytes;
    const newest = this.#marks.at(-1);
    const stepBytes = this.#options.keepBytes / MARKS_IN_KEPT_BYTES;
    if (newest === undefined || this.#keptBehind(newest) >= stepBytes) {
      this.#marks.push({ index, totalBytes: this.#totalBytes });
    }
  }

  /** A snapshot was installed durably. */
  installed(index: LogIndex): void {
    this.#barrierIndex = index;
    this.#marks.length = 0;
  }

  /** Call about once a second. */
  tick(): void {
    const { state } = this.#options;
    if (this.#running) return;
    if (state.appliedIndex === this.#barrierIndex) {
      // Nothing new to make durable; but what was held for another member may not be any more.
      this.#release();
      return;
    }
    this.#running = true;
    const index = state.appliedIndex;
    const store = state.store;
    store.barrier().then(
      () => {
        this.#running = false;
        // A snapshot may have replaced the store meanwhile; its own installation set the barrier.
        if (state.store !== store || index <= this.#barrierIndex) return;
        this.#barrierIndex = index;
        this.#release();
      },
      (error: unknown) => {
        this.#running = false;
        if (state.store !== store) return;
        this.#options.fatal(new Error("the store's barrier failed", { cause: error }));
      },
    );
  }

  /** Fixes everything applied so far; for a clean stop. */
  async settle(): Promise<void> {
    await this.#options.state.store.barrier();
  }

  #release(): void {
    const target = this.#releasable();
    if (target === undefined) return;
    const { raft, wal } = this.#options;
    assert(target <= this.#barrierIndex, "the log is released only behind the barrier", {
      target,
      barrier: this.#barrierIndex,
    });
    const term = raft.termAt(target);
    if (term === undefined || target < raft.firstIndex) return;
    raft.compact(target);
    wal.release(target, term);
  }

  #releasable(): LogIndex | undefined {
    const { keepBytes, pinned, awaited, state } = this.#options;
    const [first] = this.#marks;
    if (first === undefined || this.#keptBehind(first) < keepBytes) return undefined;
    const heldBytesMax = keepBytes * PIN_BYTES_FACTOR;
    const holds = [
      { after: pinned(), bytesMax: heldBytesMax },
      // More log than there is state would not spare anybody anything.
      { after: awaited(), bytesMax: Math.min(heldBytesMax, Math.max(keepBytes, state.logicalBytes)) },
    ];
    let released = 0;
    for (const mark of this.#marks) {
      const bytes = this.#keptBehind(mark);
      if (mark.index > this.#barrierIndex || bytes < keepBytes) break;
      const isHeld = holds.some(
        ({ after, bytesMax }) => after !== undefined && mark.index > after && bytes <= bytesMax,
      );
      if (isHeld) break;
      released += 1;
    }
    return this.#marks.splice(0, released).at(-1)?.index;
  }

  /** How much log stays when it is released up to a mark. */
  #keptBehind(mark: Mark): number {
    return this.#totalBytes - mark.totalBytes;
  }
}
