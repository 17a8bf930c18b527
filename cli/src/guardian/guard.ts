/** When a command has to be stopped: pure, the clocks are handed in. */

import type { Clocks } from "./clocks.ts";

/** What the command line tells its guardian, one JSON object a line. */
export type GuardianMessage =
  /** COMMAND runs. */
  | { readonly kind: "started"; readonly pid: number }
  /** The session certainly lasts until then, by both clocks, in milliseconds. */
  | { readonly kind: "deadline"; readonly monotonicMs: number; readonly wallMs: number }
  /** The lock is lost: stop now. */
  | { readonly kind: "stop" }
  /** COMMAND has ended. */
  | { readonly kind: "ended" };

export type Step = "wait" | "term" | "kill";

/**
 * TERM at the deadline, when told to, and when the command line is gone; KILL a grace period later. A deadline that was
 * passed by more than the grace period (the machine slept) is KILL at once.
 */
export class Guard {
  readonly #graceMs: number;
  #deadline: Clocks | undefined;
  #termAt: number | undefined;

  constructor(graceMs: number) {
    this.#graceMs = graceMs;
  }

  /** Later than the one before. */
  lastsUntil(deadline: Clocks): void {
    this.#deadline = deadline;
  }

  stop(now: Clocks): void {
    this.#termAt ??= now.monotonicMs;
  }

  /** What is due now. Once it was `term` it never waits again. */
  look(now: Clocks): Step {
    const overMs = this.#overMs(now);
    if (this.#termAt === undefined) {
      if (overMs < 0) return "wait";
      this.#termAt = now.monotonicMs;
    }
    const isKill = now.monotonicMs - this.#termAt >= this.#graceMs || overMs >= this.#graceMs;
    return isKill ? "kill" : "term";
  }

  #overMs(now: Clocks): number {
    if (this.#deadline === undefined) return -Infinity;
    return Math.max(now.monotonicMs - this.#deadline.monotonicMs, now.wallMs - this.#deadline.wallMs);
  }
}
