import type { Append, HardState, Message } from "../raft/types.ts";
import { assert } from "../invariant.ts";
import type { Wal } from "../wal/types.ts";

export interface AppendLaneOptions {
  readonly wal: Wal;
  /** Tells the core that an append is durable. */
  readonly appended: (token: number) => void;
  readonly send: (messages: readonly Message[]) => void;
  /** Installs a received state; resolves once it is durable and in use. */
  readonly install: (append: Append) => Promise<void>;
  readonly pump: () => void;
  /** Runs a task still in this turn. */
  readonly soon: (task: () => void) => void;
  readonly fatal: (error: Error) => void;
}

interface Slot {
  readonly append: Append;
  durable: boolean;
}

/**
 * The one FIFO lane of durable writes (R5): appends become durable in the order they were handed out, and only then
 * do the messages that depend on them leave (R1).
 */
export class AppendLane {
  readonly #options: AppendLaneOptions;
  readonly #slots: Slot[] = [];
  /** Appends that wait behind the installation of a snapshot. */
  #deferred: Append[] = [];
  #installing = false;
  #closed = false;
  /** Work that gives way to the write under way. */
  #waiting: (() => void) | undefined;
  /** A commit index that no write has carried yet: needs no fsync of its own (R2), so it rides with the next one. */
  #ridingHardState: HardState | undefined;

  constructor(options: AppendLaneOptions) {
    this.#options = options;
  }

  /** The log takes no more. A state that is being installed finds its marker missing at the next start (W14). */
  close(): void {
    this.#closed = true;
    this.#waiting = undefined;
  }

  /** Token of the oldest append whose write is under way; -1: none is. */
  get oldest(): number {
    return this.#slots[0]?.append.token ?? -1;
  }

  /**
   * Runs `task` when a write under way is durable and its messages have left, at the next tick if that takes longer,
   * and soon if none is under way. One task waits at most.
   */
  giveWay(task: () => void): void {
    if (this.#closed) return;
    if (this.#slots.length === 0) return this.#options.soon(task);
    assert(this.#waiting === undefined, "one task waits for the write under way");
    this.#waiting = task;
  }

  /** Runs what gave way, if something did. Call it each tick too: a disk that takes its time holds nobody up longer. */
  proceed(): void {
    const task = this.#waiting;
    this.#waiting = undefined;
    task?.();
  }

  push(append: Append): void {
    if (this.#closed) return;
    if (this.#installing) {
      this.#deferred.push(append);
    } else if (append.snapshot !== undefined) {
      this.#installing = true;
      this.#install(append, append.snapshot);
    } else {
      this.#write(append);
    }
  }

  #write(append: Append): void {
    const slot: Slot = { append, durable: false };
    this.#slots.push(slot);
    if (append.hardState !== undefined) this.#ridingHardState = append.hardState;
    if (!append.mustSync && append.entries.length === 0) {
      slot.durable = true;
      this.#drain();
      return;
    }
    const hardState = this.#ridingHardState;
    this.#ridingHardState = undefined;
    const write = { entries: append.entries, ...(hardState === undefined ? {} : { hardState }) };
    this.#options.wal.append(write, () => {
      this.#durable(slot);
    });
  }

  #durable(slot: Slot): void {
    slot.durable = true;
    this.#drain();
    this.#options.pump();
    this.proceed();
  }

  #drain(): void {
    while (true) {
      const head = this.#slots[0];
      if (head?.durable !== true) return;
      this.#slots.shift();
      this.#options.appended(head.append.token);
      if (head.append.held.length > 0) this.#options.send(head.append.held);
    }
  }

  /**
   * W14: the state is durable and current first, then the log's marker, then what follows it. A crash in between
   * leaves a store ahead of the log, which start-up recognises by the store's own note of its origin.
   */
  #install(append: Append, snapshot: NonNullable<Append["snapshot"]>): void {
    this.#options.install(append).then(
      () => {
        if (this.#closed) return;
        this.#installing = false;
        const slot: Slot = { append, durable: false };
        this.#slots.push(slot);
        const hardState = append.hardState ?? this.#ridingHardState;
        this.#ridingHardState = undefined;
        const write = {
          snapshot: { index: snapshot.index, term: snapshot.term },
          entries: append.entries,
          ...(hardState === undefined ? {} : { hardState }),
        };
        this.#options.wal.append(write, () => {
          this.#durable(slot);
        });
        const deferred = this.#deferred;
        this.#deferred = [];
        for (const next of deferred) this.push(next);
      },
      (error: unknown) => this.#options.fatal(error instanceof Error ? error : new Error(String(error))),
    );
  }
}
