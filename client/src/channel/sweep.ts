import type { Runtime } from "../runtime.ts";

/** Deadlines are looked at no more often than this. */
const SWEEP_MS_MIN = 10;

const DEADLINE_MS_MAX = 2 ** 31 - 1;

/** When it is over. What is no number, or less than nothing, is over at once; for ever ends after 24 days. */
export function deadlineIn(deadlineMs: number, now: number): number {
  return now + (deadlineMs > 0 ? Math.min(deadlineMs, DEADLINE_MS_MAX) : 0);
}

/** One timer for the deadlines of all requests. */
export class Sweep {
  readonly #runtime: Runtime;
  readonly #expire: (now: number) => number;
  #nextAt = Infinity;
  #cancel: (() => void) | undefined;

  /** @param expire ends what is due, and gives the next deadline; Infinity: there is none */
  constructor(runtime: Runtime, expire: (now: number) => number) {
    this.#runtime = runtime;
    this.#expire = expire;
  }

  /** Something is due then. */
  at(deadlineAt: number): void {
    if (deadlineAt >= this.#nextAt) return;
    this.#nextAt = deadlineAt;
    this.#cancel?.();
    const delayMs = Math.max(SWEEP_MS_MIN, deadlineAt - this.#runtime.now());
    this.#cancel = this.#runtime.schedule(() => {
      this.#nextAt = Infinity;
      this.at(this.#expire(this.#runtime.now()));
    }, delayMs);
  }

  close(): void {
    this.#cancel?.();
  }
}
