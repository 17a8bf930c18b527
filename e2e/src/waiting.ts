import { setTimeout as delay } from "node:timers/promises";
import { E2eError } from "./error.ts";

/** How `until` asks. */
export interface UntilOptions {
  /** Default: 60 s. */
  readonly timeoutMs?: number;
  /** Between two attempts. Default: 250 ms. */
  readonly everyMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Asks until the answer is neither undefined nor false, and returns it. An attempt that throws counts as "not yet".
 * Throws `timeout` naming what was waited for and the last error, `interrupted` when the signal fires.
 */
export async function until<T>(
  what: string,
  attempt: () => Promise<T | undefined | false> | T | undefined | false,
  options: UntilOptions = {},
): Promise<T> {
  const timeoutMs = options.timeoutMs ?? 60_000;
  const deadline = performance.now() + timeoutMs;
  let last = "";
  for (;;) {
    if (options.signal?.aborted === true)
      throw new E2eError("interrupted", `interrupted while waiting: ${what}`);
    try {
      const answer = await attempt();
      if (answer !== undefined && answer !== false) return answer;
      last = "";
    } catch (error) {
      last = ` (last: ${(error as Error).message})`;
    }
    if (performance.now() > deadline)
      throw new E2eError("timeout", `not within ${String(timeoutMs / 1000)} s: ${what}${last}`);
    await delay(options.everyMs ?? 250);
  }
}
