import type { Runtime } from "./runtime.ts";

const BASE_MS = 25;
const CAP_MS = 2_000;

/** Exponential backoff with full jitter: 25 ms doubling to 2 s, a uniform draw below it. */
export class Backoff {
  readonly #runtime: Runtime;
  #attempt = 0;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** The next delay; never less than what the server asked for. */
  nextMs(retryAfterMs = 0): number {
    const ceiling = backoffCeilingMs(this.#attempt);
    this.#attempt += 1;
    return retryAfterMs + this.#runtime.random() * ceiling;
  }

  reset(): void {
    this.#attempt = 0;
  }
}

export function backoffCeilingMs(attempt: number): number {
  return Math.min(CAP_MS, BASE_MS * 2 ** Math.min(attempt, 16));
}
