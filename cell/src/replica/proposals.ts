import type { Failure } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { Command, CommandEncoder, CommandOutcome } from "../machine/types.ts";
import type { LogIndex, ProposalResult, Term } from "../raft/types.ts";
import { failures } from "./failures.ts";

/** Somebody who waits for a command's outcome. A slot, not a promise: one object an operation. */
export interface Waiter {
  readonly deliver: (outcome: CommandOutcome) => void;
  /** Monotonic; after it the answer is a failure. */
  readonly deadlineMs: number;
  /** The command never reached the log: try another way (forward, park). Absent: fail it. */
  readonly retry?: (why: Failure) => void;
  settled: boolean;
}

interface Batch {
  readonly term: Term;
  readonly waiters: readonly (Waiter | undefined)[];
}

export interface ProposalOptions {
  readonly encoder: CommandEncoder;
  readonly propose: (data: Uint8Array) => ProposalResult;
  readonly wallMs: () => number;
  /** Runs the flush at the end of this turn. */
  readonly schedule: (task: () => void) => void;
  /** After something was proposed. */
  readonly pump: () => void;
}

/** A turn's entry is closed early when it holds this much. */
const ENTRY_BYTES_MAX = 1024 * 1024;
const ENTRY_COMMANDS_MAX = 4096;
/**
 * Entries proposed and not yet applied here. While that many are under way, what arrives waits and shares the next
 * entry: under load entries grow instead of multiplying, and each costs a disk write and a round trip on every
 * member. With little load the window never fills, so it adds no delay.
 */
export const ENTRIES_IN_FLIGHT_MAX: number = 2;

/**
 * All commands of one event-loop turn become one Raft entry. Outcomes come back by index and term: if another term's
 * entry was applied at our index, ours can never be committed (log matching, thesis 3.5), so its commands were
 * certainly not applied.
 */
export class Proposals {
  readonly #options: ProposalOptions;
  /** Those of a lost leadership too, until something is applied at their indexes. */
  readonly #inFlight = new Map<LogIndex, Batch>();
  /** Entries of the present leadership: only these fill the window. */
  #windowed = 0;
  #term: Term = 0 as Term;
  #waiters: (Waiter | undefined)[] = [];
  #scheduled = false;
  #waiting = 0;

  constructor(options: ProposalOptions) {
    this.#options = options;
  }

  /** Commands taken in and not answered. */
  get pending(): number {
    return this.#waiting;
  }

  /** Entries proposed under the present leadership and not applied. */
  get entriesInFlight(): number {
    return this.#windowed;
  }

  add(command: Command, waiter: Waiter | undefined): void {
    const { encoder } = this.#options;
    encoder.add(command);
    this.#waiters.push(waiter);
    if (waiter !== undefined) this.#waiting += 1;
    if (encoder.bytes >= ENTRY_BYTES_MAX || encoder.count >= ENTRY_COMMANDS_MAX) {
      this.#proposeTurn();
      this.#options.pump();
    } else {
      this.#scheduleFlush();
    }
  }

  /** Room came free, or a turn ended. */
  flush(): void {
    if (this.#waiters.length === 0 || this.#windowed >= ENTRIES_IN_FLIGHT_MAX) return;
    this.#proposeTurn();
    this.#options.pump();
  }

  /**
   * This member does not lead any more. What is in the log may still be committed by another leader and is answered
   * when something is applied at its index; perhaps that is never, so it must not hold a later leadership's window.
   * What waited for that window goes another way now: nothing may ever be applied to let it through.
   */
  leadershipLost(): void {
    this.#windowed = 0;
    this.#term = 0 as Term;
    if (this.#waiters.length > 0) this.#proposeTurn();
  }

  /** The entry at `index` was applied; `term` is its own. */
  applied(index: LogIndex, term: Term, outcomes: readonly CommandOutcome[]): void {
    const batch = this.#take(index);
    if (batch === undefined) return;
    if (batch.term !== term) {
      this.#settleAll(batch.waiters, { ok: false, failure: failures.leaderChanged() });
      return;
    }
    assert(outcomes.length === batch.waiters.length, "one outcome for each command", {
      outcomes: outcomes.length,
      commands: batch.waiters.length,
    });
    for (let position = 0; position < outcomes.length; position += 1) {
      const waiter = batch.waiters[position];
      const outcome = outcomes[position];
      if (waiter !== undefined && outcome !== undefined) this.#settle(waiter, outcome);
    }
  }

  /** A snapshot jumped over everything up to `index`: what happened to those commands is not known here. */
  skippedTo(index: LogIndex): void {
    for (const [at, batch] of this.#inFlight) {
      if (at > index) continue;
      this.#take(at);
      this.#settleAll(batch.waiters, { ok: false, failure: failures.lostAnswer() });
    }
  }

  /** Fails whoever waited past the deadline. What is in the log, or encoded for it, may still be applied. */
  expire(nowMs: number): void {
    for (const batch of this.#inFlight.values()) this.#expireLate(batch.waiters, nowMs);
    this.#expireLate(this.#waiters, nowMs);
  }

  close(): void {
    for (const batch of this.#inFlight.values()) {
      this.#settleAll(batch.waiters, { ok: false, failure: failures.shuttingDown("unknown") });
    }
    this.#inFlight.clear();
    this.#settleAll(this.#waiters, { ok: false, failure: failures.shuttingDown("not-applied") });
    this.#waiters = [];
  }

  #scheduleFlush(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#options.schedule(() => {
      this.#scheduled = false;
      this.flush();
    });
  }

  #proposeTurn(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    const data = this.#options.encoder.finish(this.#options.wallMs());
    const proposed = this.#options.propose(data);
    if (proposed.ok) {
      this.#sent(proposed.index, { term: proposed.term, waiters });
      return;
    }
    const failure =
      proposed.reason === "too-much-uncommitted"
        ? failures.overloaded("bytes that no majority has confirmed")
        : failures.leaderChanged();
    for (const waiter of waiters) {
      if (waiter === undefined || waiter.settled) continue;
      if (proposed.reason !== "too-much-uncommitted" && waiter.retry !== undefined) {
        waiter.settled = true;
        this.#waiting -= 1;
        waiter.retry(failure);
      } else {
        this.#settle(waiter, { ok: false, failure });
      }
    }
  }

  #sent(index: LogIndex, batch: Batch): void {
    // An entry of an earlier leadership of this member was cut from its log here, but a follower that has it may still
    // become leader and commit it.
    const cut = this.#inFlight.get(index);
    if (cut !== undefined) this.#settleAll(cut.waiters, { ok: false, failure: failures.lostAnswer() });
    if (batch.term !== this.#term) this.#windowed = 0;
    this.#term = batch.term;
    this.#windowed += 1;
    this.#inFlight.set(index, batch);
  }

  #take(index: LogIndex): Batch | undefined {
    const batch = this.#inFlight.get(index);
    if (batch === undefined) return undefined;
    this.#inFlight.delete(index);
    if (batch.term === this.#term) this.#windowed -= 1;
    return batch;
  }

  #expireLate(waiters: readonly (Waiter | undefined)[], nowMs: number): void {
    for (const waiter of waiters) {
      if (waiter === undefined || waiter.settled || waiter.deadlineMs > nowMs) continue;
      this.#settle(waiter, { ok: false, failure: failures.deadline("unknown") });
    }
  }

  #settleAll(waiters: readonly (Waiter | undefined)[], outcome: CommandOutcome): void {
    for (const waiter of waiters) if (waiter !== undefined) this.#settle(waiter, outcome);
  }

  #settle(waiter: Waiter, outcome: CommandOutcome): void {
    if (waiter.settled) return;
    waiter.settled = true;
    this.#waiting -= 1;
    waiter.deliver(outcome);
  }
}
