import type { Failure } from "@lockstep/gateway/coordinator";
import type { LogIndex } from "../raft/types.ts";
import { failures } from "./failures.ts";

/** A read that waits for its point in the log. */
export interface PendingRead {
  /** Called once the state covers the read; reads it synchronously and answers. */
  readonly serve: () => void;
  readonly fail: (failure: Failure) => void;
  readonly deadlineMs: number;
}

/** Rounds under way at once. What arrives meanwhile shares the next round, which starts after it arrived (R48). */
const ROUNDS_IN_FLIGHT_MAX = 4;

export interface ReadOptions {
  /** Starts a read-index round in the consensus core. */
  readonly readIndex: (request: number) => void;
  readonly hasLeader: () => boolean;
  readonly appliedIndex: () => LogIndex;
  readonly schedule: (task: () => void) => void;
  readonly pump: () => void;
}

/**
 * Linearizable reads: all reads of a turn join the next read-index round; one quorum heartbeat serves them all. They
 * are answered once the applied index covers the round's commit index (thesis 6.4). Without a leader they wait for
 * one until their deadlines.
 */
export class ReadRounds {
  readonly #options: ReadOptions;
  #collecting: PendingRead[] = [];
  readonly #rounds = new Map<number, readonly PendingRead[]>();
  readonly #confirmed: { readonly index: LogIndex; reads: readonly PendingRead[] }[] = [];
  #nextRequest = 1;
  #scheduled = false;

  constructor(options: ReadOptions) {
    this.#options = options;
  }

  get pending(): number {
    let count = this.#collecting.length;
    for (const reads of this.#rounds.values()) count += reads.length;
    for (const { reads } of this.#confirmed) count += reads.length;
    return count;
  }

  add(read: PendingRead): void {
    this.#collecting.push(read);
    this.#scheduleFlush();
  }

  /** Room came free, a leader appeared, or a turn ended. */
  flush(): void {
    if (this.#collecting.length === 0) return;
    if (this.#rounds.size >= ROUNDS_IN_FLIGHT_MAX || !this.#options.hasLeader()) return;
    const request = this.#nextRequest;
    this.#nextRequest += 1;
    this.#rounds.set(request, this.#collecting);
    this.#collecting = [];
    this.#options.readIndex(request);
    this.#options.pump();
  }

  confirmed(request: number, index: LogIndex): void {
    const reads = this.#rounds.get(request);
    if (reads === undefined) return;
    this.#rounds.delete(request);
    if (index <= this.#options.appliedIndex()) serveAll(reads);
    else this.#confirmed.push({ index, reads });
    this.#scheduleFlush();
  }

  /** The core gave the round up (leader lost): its reads join a later round. */
  dropped(request: number): void {
    const reads = this.#rounds.get(request);
    if (reads === undefined) return;
    this.#rounds.delete(request);
    this.#collecting = [...reads, ...this.#collecting];
    this.#scheduleFlush();
  }

  appliedTo(index: LogIndex): void {
    while (true) {
      const head = this.#confirmed[0];
      if (head === undefined || head.index > index) return;
      this.#confirmed.shift();
      serveAll(head.reads);
    }
  }

  /** Gives up the rounds under way: their reads ask again, with a new number (R48). */
  askAgain(): void {
    for (const request of [...this.#rounds.keys()]) this.dropped(request);
  }

  /** Fails reads past their deadline. */
  expire(nowMs: number): void {
    this.#collecting = failLate(this.#collecting, nowMs);
    for (const [request, reads] of this.#rounds) {
      if (reads.some((read) => read.deadlineMs <= nowMs)) this.#rounds.set(request, failLate(reads, nowMs));
    }
    // Confirmed, and the apply does not get there: a state transfer may take minutes.
    for (const batch of this.#confirmed) batch.reads = failLate(batch.reads, nowMs);
    this.#scheduleFlush();
  }

  close(): void {
    const all = [...this.#collecting, ...[...this.#rounds.values()].flat()];
    for (const { reads } of this.#confirmed) all.push(...reads);
    this.#collecting = [];
    this.#rounds.clear();
    this.#confirmed.length = 0;
    for (const read of all) read.fail(failures.shuttingDown("not-applied"));
  }

  #scheduleFlush(): void {
    if (this.#scheduled || this.#collecting.length === 0) return;
    this.#scheduled = true;
    this.#options.schedule(() => {
      this.#scheduled = false;
      this.flush();
    });
  }
}

function serveAll(reads: readonly PendingRead[]): void {
  for (const read of reads) read.serve();
}

function failLate(reads: readonly PendingRead[], nowMs: number): PendingRead[] {
  const kept: PendingRead[] = [];
  for (const read of reads) {
    if (read.deadlineMs > nowMs) kept.push(read);
    else read.fail(failures.deadline("not-applied"));
  }
  return kept;
}
