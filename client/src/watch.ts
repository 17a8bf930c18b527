import type { WireRange } from "./bytes.ts";
import type { Channel } from "./channel/channel.ts";
import type { ChannelWatch, WatchListener } from "./channel/watches.ts";
import { LockstepError } from "./errors.ts";
import type { WatchBatch, WatchEvent } from "./types.ts";

const DEFAULT_BUFFER_EVENTS = 1_024;

/** What a watch is told, from when on. */
export interface WatchOptions {
  /** First revision wanted; default: the one after the current revision. */
  readonly startRevision?: number;
  /** Events carry the key's state before the change. */
  readonly returnPrevious?: boolean;
  /** Leave out puts or deletions. */
  readonly omit?: "put" | "delete";
  /**
   * Events that may wait for the consumer. When it falls behind, the watch stops at the cell and goes on from its
   * history once the consumer has caught up. Default 1,024.
   */
  readonly bufferEvents?: number;
  /** Ends the watch quietly. */
  readonly signal?: AbortSignal;
}

type Waiter = (next: IteratorResult<WatchBatch, undefined>) => void;

/**
 * An ordered stream of changes without gaps or duplicates, across reconnects and changes of leader. Iterate over it
 * (events), or over {@link batches} (whole revisions); one consumer. Ends with `LockstepError` `compacted` when its
 * place in the history was forgotten: read the range, then watch from the revision of that answer + 1.
 */
export class Watch implements AsyncIterable<WatchEvent>, AsyncDisposable {
  /** The revision that the watch starts after; settles when the cell has registered it. */
  readonly created: Promise<number>;
  readonly #watch: ChannelWatch;
  readonly #bufferEvents: number;
  readonly #queue: WatchBatch[] = [];
  #queuedEvents = 0;
  #waiter: Waiter | undefined;
  readonly #rejectCreated: (error: LockstepError) => void;
  #rejectWaiter: ((error: LockstepError) => void) | undefined;
  #error: LockstepError | undefined;
  #over = false;
  #held = false;
  #revision = 0;
  /** A signal that outlives the watch must not keep it. */
  #unsubscribe: () => void = () => undefined;

  constructor(channel: Channel, range: WireRange, options: WatchOptions) {
    this.#bufferEvents = options.bufferEvents ?? DEFAULT_BUFFER_EVENTS;
    let resolveCreated: (revision: number) => void = () => undefined;
    let rejectCreated: (error: LockstepError) => void = () => undefined;
    this.created = new Promise((resolve, reject) => {
      resolveCreated = resolve;
      rejectCreated = reject;
    });
    this.#rejectCreated = rejectCreated;
    // Whoever does not ask for it hears of the failure by iterating.
    this.created.catch(() => undefined);
    const listener: WatchListener = {
      created: resolveCreated,
      events: (batch) => this.#onEvents(batch),
      progress: (revision) => {
        if (this.#queue.length === 0) this.#revision = Math.max(this.#revision, revision);
      },
      ended: (error) => {
        rejectCreated(error);
        this.#onEnded(error);
      },
    };
    const { signal } = options;
    this.#watch = channel.watch(
      {
        range,
        startRevision: options.startRevision ?? 0,
        returnPrevious: options.returnPrevious ?? false,
        omit: options.omit,
      },
      listener,
    );
    if (signal?.aborted === true) {
      this.cancel();
    } else if (signal !== undefined) {
      const onAbort = (): void => this.cancel();
      signal.addEventListener("abort", onAbort, { once: true });
      this.#unsubscribe = () => signal.removeEventListener("abort", onAbort);
    }
  }

  /** Everything up to and including this revision was handed to the consumer; resume from it + 1. */
  get revision(): number {
    return this.#revision;
  }

  /** Ends the watch; iteration finishes. */
  cancel(): void {
    if (this.#over) return;
    this.#over = true;
    this.#unsubscribe();
    this.#rejectCreated(new LockstepError("cancelled", "not-applied", "the watch was cancelled"));
    this.#watch.cancel();
    this.#queue.length = 0;
    this.#waiter?.({ done: true, value: undefined });
    this.#waiter = undefined;
  }

  /** {@link cancel}. */
  [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
    return Promise.resolve();
  }

  /** Events one by one; leaving the loop ends the watch. */
  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent, void, undefined> {
    for await (const batch of this.batches()) yield* batch.events;
  }

  /** Whole revisions; leaving the loop ends the watch. */
  async *batches(): AsyncGenerator<WatchBatch, void, undefined> {
    try {
      for (;;) {
        const next = await this.#next();
        if (next.done === true) return;
        this.#revision = Math.max(this.#revision, next.value.revision);
        yield next.value;
      }
    } finally {
      this.cancel();
    }
  }

  #next(): Promise<IteratorResult<WatchBatch, undefined>> {
    const batch = this.#queue.shift();
    if (batch !== undefined) {
      this.#queuedEvents -= batch.events.length;
      if (this.#held && this.#queuedEvents <= this.#bufferEvents / 2) {
        this.#held = false;
        this.#watch.resume();
      }
      return Promise.resolve({ done: false, value: batch });
    }
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#over) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => {
      this.#waiter = resolve;
      this.#rejectWaiter = reject;
    });
  }

  #onEvents(batch: WatchBatch): boolean {
    const waiter = this.#waiter;
    if (waiter !== undefined) {
      this.#waiter = undefined;
      waiter({ done: false, value: batch });
      return true;
    }
    this.#queue.push(batch);
    this.#queuedEvents += batch.events.length;
    this.#held = this.#queuedEvents > this.#bufferEvents;
    return !this.#held;
  }

  #onEnded(error: LockstepError): void {
    if (this.#over) return;
    this.#unsubscribe();
    // A stream never ends silently, not even by the client's own close: only cancel() finishes it without an error.
    this.#error = error;
    if (this.#waiter !== undefined) this.#rejectWaiter?.(error);
    this.#waiter = undefined;
  }
}
