import type { WireRange } from "../bytes.ts";
import type { LockstepError } from "../errors.ts";
import type { WatchBatch } from "../types.ts";

/** What a watch is to see. */
export interface WatchSpec {
  readonly range: WireRange;
  /** First revision wanted; 0: the one after the current revision. */
  readonly startRevision: number;
  readonly returnPrevious: boolean;
  readonly omit: "put" | "delete" | undefined;
}

/** Where a watch delivers; nothing comes after `ended`. */
export interface WatchListener {
  /** The watch covers everything after `revision`; told once. */
  created(revision: number): void;
  /** @returns false when the consumer is full: the watch then stops until {@link ChannelWatch.resume}. */
  events(batch: WatchBatch): boolean;
  /** Everything up to `revision` has been delivered. */
  progress(revision: number): void;
  /** It is over, and why. */
  ended(error: LockstepError): void;
}

/** Who keeps a watch on the stream. */
export interface WatchHolder {
  cancel(watch: ChannelWatch): void;
  resume(watch: ChannelWatch): void;
  requestProgress(watch: ChannelWatch): void;
}

/** A watch that its channel carries over from stream to stream. */
export class ChannelWatch {
  readonly spec: WatchSpec;
  readonly listener: WatchListener;
  /** On the current stream; 0: not there (new, or held back by its consumer). */
  id = 0;
  /** The first revision not yet delivered; 0: not known yet. */
  nextRevision: number;
  created = false;
  held = false;
  cancelled = false;
  readonly #holder: WatchHolder;

  /** @internal */
  constructor(holder: WatchHolder, spec: WatchSpec, listener: WatchListener) {
    this.#holder = holder;
    this.spec = spec;
    this.listener = listener;
    this.nextRevision = spec.startRevision;
  }

  /** Ends the watch without a word to its listener. */
  cancel(): void {
    this.#holder.cancel(this);
  }

  /** The consumer drained. */
  resume(): void {
    this.#holder.resume(this);
  }

  /** Ask for one progress answer. */
  requestProgress(): void {
    this.#holder.requestProgress(this);
  }
}
