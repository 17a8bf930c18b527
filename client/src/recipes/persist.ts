import { Backoff } from "../backoff.ts";
import type { Client } from "../client.ts";
import { isTransient, LockstepError } from "../errors.ts";
import type { CallOptions } from "../types.ts";

/** Failures that say nothing but that no answer can be had now. */
export function isPassing(error: unknown): error is LockstepError {
  if (!(error instanceof LockstepError)) return false;
  const { code } = error;
  return (
    isTransient(code) ||
    code === "unavailable" ||
    code === "deadline-exceeded" ||
    code === "connection-lost" ||
    code === "too-many-watches"
  );
}

/**
 * Asks until there is an answer, with growing pauses, for whoever waits anyway: an outage is not the end of it.
 * Rejects with the reason of `stop`, and with failures that will not pass by themselves. For calls that may be
 * repeated.
 */
export async function persist<T>(
  client: Client,
  stop: AbortSignal,
  call: (options: CallOptions) => Promise<T>,
): Promise<T> {
  const backoff = new Backoff(client.runtime);
  for (;;) {
    stop.throwIfAborted();
    try {
      return await call({ signal: stop });
    } catch (error) {
      stop.throwIfAborted();
      if (!isPassing(error)) throw error;
      await pauseUntil(client, stop, backoff.nextMs(error.retryAfterMs));
    }
  }
}

/** Resolves after `delayMs`, or when `stop` fires. */
export function pauseUntil(client: Client, stop: AbortSignal, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    if (stop.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      cancelTimer();
      stop.removeEventListener("abort", end);
      resolve();
    };
    const cancelTimer = client.runtime.schedule(end, delayMs);
    stop.addEventListener("abort", end, { once: true });
  });
}
