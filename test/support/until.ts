/**
 * Polls until `look` gives something: for conditions of other processes that nobody announces. Fails with what was
 * last seen. Never a substitute for an event that can be waited for.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined> | T | undefined,
  timeoutMs = 30_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  let lastError: unknown;
  while (performance.now() < deadline) {
    try {
      const found = await look();
      if (found !== undefined) return found;
    } catch (error) {
      lastError = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`not within ${String(timeoutMs / 1000)} s: ${what}`, { cause: lastError });
}
