import type { LogIndex, MemberId, ReadState } from "./types.ts";

/** Reads that may wait on the leader at once; more are given up at once. A host asks once for all reads of a turn. */
const WAITING_MAX = 65_536;

/** `from` is who asked: the leader's own host, or a follower. */
export interface WaitingRead {
  readonly from: MemberId;
  readonly request: number;
}

interface Batch {
  readonly round: number;
  readonly index: LogIndex;
  readonly reads: readonly WaitingRead[];
}

/**
 * The leader's side of reads (thesis section 6.4). Heartbeats leave in numbered rounds. A read joins the next round
 * after its arrival, takes the commit index of that moment, and is confirmed when a quorum has answered that round or
 * a later one. Rounds are the leader's own numbers, never the asker's, so a late answer to an old round confirms
 * nothing newer (R47, R48).
 */
export class ReadRounds {
  /** The newest round that left; 0 before the first of a term. */
  round = 0;
  /** Value of the tick counter when the newest round left that a quorum has answered; -1 for none. */
  contactTick = -1;
  #waiting: WaitingRead[] = [];
  #batches: Batch[] = [];
  /** The first round of each tick that is not confirmed yet, so that a confirmed round finds its tick. */
  #marks: { readonly round: number; readonly tick: number }[] = [];

  /** Some read needs a round to leave. */
  get waiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** @returns false when too many wait already */
  enqueue(read: WaitingRead): boolean {
    if (this.#waiting.length >= WAITING_MAX) return false;
    this.#waiting.push(read);
    return true;
  }

  /**
   * A round of heartbeats leaves now, with all reads that wait.
   *
   * @param index the commit index, or undefined while no entry of this term is committed: reads go on waiting (R46)
   * @returns its number
   */
  startRound(tick: number, index: LogIndex | undefined): number {
    this.round++;
    const lastMark = this.#marks.at(-1);
    if (lastMark?.tick !== tick) this.#marks.push({ round: this.round, tick });
    if (index !== undefined && this.#waiting.length > 0) {
      this.#batches.push({ round: this.round, index, reads: this.#waiting });
      this.#waiting = [];
    }
    return this.round;
  }

  /** A quorum has answered `round`. @returns batches of reads now confirmed */
  confirm(round: number): readonly Batch[] {
    let passed = 0;
    while (passed < this.#marks.length && (this.#marks[passed] as { round: number }).round <= round) passed++;
    if (passed > 0) {
      this.contactTick = (this.#marks[passed - 1] as { tick: number }).tick;
      // The last one passed stays: later rounds of its tick may be under way.
      this.#marks.splice(0, passed - 1);
    }
    const open = this.#batches.findIndex((batch) => batch.round > round);
    return this.#batches.splice(0, open === -1 ? this.#batches.length : open);
  }

  /** Everything that waits, for a leader that needs nobody's confirmation. */
  takeWaiting(): readonly WaitingRead[] {
    const waiting = this.#waiting;
    this.#waiting = [];
    return waiting;
  }

  /** The term is over. @returns every read that is given up */
  reset(): readonly WaitingRead[] {
    const lost = [...this.#batches.flatMap((batch) => batch.reads), ...this.#waiting];
    this.round = 0;
    this.contactTick = -1;
    this.#waiting = [];
    this.#batches = [];
    this.#marks = [];
    return lost;
  }
}

/**
 * The follower's side: requests on their way to the leader. Their wire numbers start at a random point, so that an
 * answer meant for this member before a restart is not taken for the answer to a later read.
 */
export class ForwardedReads {
  readonly #open = new Map<number, { readonly request: number; readonly tick: number }>();
  #wireNumber: number;

  constructor(random: () => number) {
    this.#wireNumber = Math.floor(random() * 2 ** 31) * 2 ** 21;
  }

  get size(): number {
    return this.#open.size;
  }

  /** @returns the number to send, or undefined when too many are open */
  add(request: number, tick: number): number | undefined {
    if (this.#open.size >= WAITING_MAX) return undefined;
    this.#wireNumber++;
    this.#open.set(this.#wireNumber, { request, tick });
    return this.#wireNumber;
  }

  /** The leader answered. @returns the read, or undefined when it is not open (any more) */
  answer(wireNumber: number, index: LogIndex): ReadState | undefined {
    const open = this.#open.get(wireNumber);
    if (open === undefined) return undefined;
    this.#open.delete(wireNumber);
    return { request: open.request, index };
  }

  /** Gives up requests sent before `tick`: the message or its answer was lost. */
  expire(tick: number): readonly number[] {
    const expired: number[] = [];
    for (const [wireNumber, open] of this.#open) {
      if (open.tick >= tick) break;
      expired.push(open.request);
      this.#open.delete(wireNumber);
    }
    return expired;
  }

  /** The leader they were sent to is gone. */
  reset(): readonly number[] {
    const lost = Array.from(this.#open.values(), (open) => open.request);
    this.#open.clear();
    return lost;
  }
}
