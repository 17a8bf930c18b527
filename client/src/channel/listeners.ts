import type { Runtime } from "../runtime.ts";

/**
 * What a caller's function throws must not break the stream that it was called from: it surfaces as an uncaught exception,
 * in a turn of its own.
 */
export function surface(runtime: Runtime, thrown: unknown): void {
  runtime.afterTurn(() => {
    throw thrown;
  });
}

/** Tells all of them; one that throws keeps it from nobody else. */
export function tellAll<T>(runtime: Runtime, listeners: ReadonlySet<(value: T) => void>, value: T): void {
  for (const listener of listeners) {
    try {
      listener(value);
    } catch (thrown) {
      surface(runtime, thrown);
    }
  }
}
