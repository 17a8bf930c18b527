import type { RangeInput } from "../bytes.ts";
import { Backoff } from "../backoff.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { WatchBatch, WatchEvent } from "../types.ts";
import type { WatchOptions } from "../watch.ts";
import { isPassing, pauseUntil } from "./persist.ts";

/** From where to follow a key, and until when. */
export interface Following {
  /** Of the answer that showed the state before. */
  readonly revision: number;
  readonly stop: AbortSignal;
}

/**
 * The changes after `revision`, whole revisions at a time; ends quietly with `stop`. The signal may live longer than
 * thousands of watches: nothing of them stays with it.
 */
export async function* follow(
  client: Client,
  range: RangeInput,
  { revision, stop, ...options }: Following & Pick<WatchOptions, "omit" | "bufferEvents">,
): AsyncGenerator<WatchBatch, void, undefined> {
  if (stop.aborted) return;
  const watch = client.watch(range, { ...options, startRevision: revision + 1 });
  const cancel = (): void => watch.cancel();
  stop.addEventListener("abort", cancel, { once: true });
  try {
    yield* watch.batches();
  } finally {
    stop.removeEventListener("abort", cancel);
    watch.cancel();
  }
}

/** {@link follow} for whoever waits anyway: a watch that is refused for now is asked for again, from where it was. */
export async function* followOn(
  client: Client,
  range: RangeInput,
  following: Following & Pick<WatchOptions, "omit">,
): AsyncGenerator<WatchBatch, void, undefined> {
  const { stop } = following;
  const backoff = new Backoff(client.runtime);
  let { revision } = following;
  for (;;) {
    try {
      for await (const batch of follow(client, range, { ...following, revision })) {
        ({ revision } = batch);
        backoff.reset();
        yield batch;
      }
      return;
    } catch (error) {
      if (!isPassing(error)) throw error;
      await pauseUntil(client, stop, backoff.nextMs(error.retryAfterMs));
    }
  }
}

/**
 * Resolves with the deletions of the first revision that has any in the range, or with undefined when the place was
 * forgotten while waiting: look again. Rejects with the reason of `stop`.
 */
export async function firstDeletions(
  client: Client,
  range: RangeInput,
  following: Following,
): Promise<readonly WatchEvent[] | undefined> {
  const { stop } = following;
  stop.throwIfAborted();
  try {
    for await (const { events } of followOn(client, range, { ...following, omit: "put" })) {
      const deletions = events.filter(({ kind }) => kind === "delete");
      if (deletions.length > 0) return deletions;
    }
  } catch (error) {
    if (isCompacted(error)) return undefined;
    throw error;
  }
  stop.throwIfAborted();
  return undefined;
}

/** The history from there on was forgotten: read the state, then follow from the revision of that answer. */
export function isCompacted(error: unknown): boolean {
  return error instanceof LockstepError && error.code === "compacted";
}
