import type { Runtime } from "../runtime.ts";

const FAREWELL_MS_MAX = 1_000;

/**
 * The last second of whoever gives up. What was begun is taken back in it; what takes longer goes on by itself. It is
 * one second for all that there is to take back.
 */
export class Farewell {
  readonly #runtime: Runtime;
  readonly #over = new AbortController();
  #cancelTimer: (() => void) | undefined;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** @param reason why it was given up. The first one counts. */
  begin(reason: unknown): void {
    this.#cancelTimer ??= this.#runtime.schedule(() => this.#over.abort(reason), FAREWELL_MS_MAX);
  }

  /** What `work` says. Rejects with the reason when the second has passed; until it begins there is no bound. */
  async orOver<T>(work: Promise<T>): Promise<T> {
    const { signal } = this.#over;
    let onOver: () => void = () => undefined;
    const over = new Promise<never>((_, reject) => {
      onOver = () => reject(signal.reason as Error);
      if (signal.aborted) onOver();
      else signal.addEventListener("abort", onOver, { once: true });
    });
    try {
      return await Promise.race([work, over]);
    } finally {
      signal.removeEventListener("abort", onOver);
    }
  }

  /** Resolves when `work`, which never rejects, is done, or when the second has passed. */
  async waitFor(work: Promise<void>): Promise<void> {
    await this.orOver(work).catch(() => undefined);
  }

  /** Nobody waits any more. */
  end(): void {
    this.#cancelTimer?.();
  }
}
