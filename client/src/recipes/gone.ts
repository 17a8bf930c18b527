import type { RangeInput } from "../bytes.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { WatchEvent } from "../types.ts";

/** From where to follow a key, and until when. */
export interface Following {
  /** Of the answer that showed the key. */
  readonly revision: number;
  readonly stop: AbortSignal;
}

/**
 * Resolves with the deletions of the first revision that has any in the range, or with undefined when the place was
 * forgotten while waiting: look again. Rejects with the reason of `stop`.
 */
export async function firstDeletions(
  client: Client,
  range: RangeInput,
  { revision, stop }: Following,
): Promise<readonly WatchEvent[] | undefined> {
  stop.throwIfAborted();
  const watch = client.watch(range, { startRevision: revision + 1, omit: "put", signal: stop });
  try {
    for await (const { events } of watch.batches()) {
      const deletions = events.filter(({ kind }) => kind === "delete");
      if (deletions.length > 0) return deletions;
    }
  } catch (error) {
    if (error instanceof LockstepError && error.code === "compacted") return undefined;
    throw error;
  }
  stop.throwIfAborted();
  return undefined;
}
