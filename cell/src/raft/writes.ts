import { assert } from "../invariant.ts";
import type { LogIndex, VoteResponse } from "./types.ts";

/** One append that the host is making durable. */
export interface Write {
  readonly token: number;
  /** Once it is durable, the log as it is *now* is durable up to here. Lowered when the log is cut below it. */
  stableIndex: LogIndex;
  /** Index of the snapshot it installs, 0 for none. */
  readonly snapshotIndex: LogIndex;
  /** Votes for this member itself: they count once term and vote are durable (R3). */
  readonly ownVotes: readonly VoteResponse[];
}

/**
 * The appends under way, in the one order in which they become durable (R5).
 *
 * It also solves the ABA problem (R6): an append carried 1/12, the log was cut and 12 was written anew by terms 2 and
 * 3; when that first append completes it must not make 3/12 look durable. Since the lane is first in, first out, an
 * append that completes has left on disk exactly the log of the moment it was handed out. What the present log still
 * shares with that one ends below every later cut, so a cut lowers `stableIndex` of all appends under way.
 */
export class WriteQueue {
  #queue: Write[] = [];
  #head = 0;
  #lastToken = 0;

  get empty(): boolean {
    return this.#head === this.#queue.length;
  }

  nextToken(): number {
    return this.#lastToken + 1;
  }

  begin(write: Write): void {
    assert(write.token === this.#lastToken + 1, "tokens ascend by one", { token: write.token });
    this.#lastToken = write.token;
    this.#queue.push(write);
  }

  /** The oldest append is durable. */
  finish(token: number): Write {
    const write = this.#queue[this.#head];
    assert(write?.token === token, "appends are reported durable in hand-out order", {
      expected: write?.token,
      token,
    });
    this.#head++;
    if (this.#head === this.#queue.length) {
      this.#queue = [];
      this.#head = 0;
    } else if (this.#head >= 64 && this.#head * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
    return write;
  }

  /** The log was cut behind `index`. */
  clamp(index: LogIndex): void {
    for (let at = this.#head; at < this.#queue.length; at++) {
      const write = this.#queue[at] as Write;
      if (write.stableIndex > index) write.stableIndex = index;
    }
  }
}
