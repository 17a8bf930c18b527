import type * as coordination from "@lockstep/proto/coordination";
import { isTransient, LockstepError } from "../errors.ts";
import type { WatchBatch } from "../types.ts";
import { errorFromFailure } from "../wire/mapping.ts";
import type { ReceivedEvents } from "../wire/watch-events.ts";
import { ChannelWatch, type WatchHolder, type WatchListener, type WatchSpec } from "./watches.ts";

/** What the registry needs from its channel. */
export interface WatchHost {
  /** A frame is to be made of {@link WatchRegistry.takeOutbox}. */
  flushSoon(): void;
  /** Runs the function a little later; for watches that were refused for now. */
  later(callback: () => void, retryAfterMs: number): void;
  /** A listener has thrown. */
  surface(thrown: unknown): void;
}

export interface WatchOutbox {
  readonly creates: coordination.WatchCreate[];
  readonly cancels: number[];
  readonly progress: number[];
}

/**
 * The watches of a channel. Each knows the first revision that it has not delivered, so that after a broken stream,
 * a slow consumer or a change of leader it goes on without a gap or a duplicate. Ids are never used again: what an
 * earlier stream or a cancelled watch still sends finds nothing.
 */
export class WatchRegistry implements WatchHolder {
  readonly #host: WatchHost;
  readonly #watches = new Set<ChannelWatch>();
  readonly #byId = new Map<number, ChannelWatch>();
  #nextId = 1;
  #outbox: WatchOutbox = { creates: [], cancels: [], progress: [] };
  #connected = false;

  constructor(host: WatchHost) {
    this.#host = host;
  }

  get size(): number {
    return this.#watches.size;
  }

  open(spec: WatchSpec, listener: WatchListener): ChannelWatch {
    const watch = new ChannelWatch(this, spec, listener);
    this.#watches.add(watch);
    this.#create(watch);
    return watch;
  }

  /** A new stream: every watch is created on it anew, from where it stands. */
  connected(): void {
    this.#connected = true;
    this.#byId.clear();
    this.#outbox = { creates: [], cancels: [], progress: [] };
    for (const watch of this.#watches) {
      watch.id = 0;
      this.#create(watch);
    }
  }

  disconnected(): void {
    this.#connected = false;
  }

  takeOutbox(): WatchOutbox | undefined {
    const { creates, cancels, progress } = this.#outbox;
    if (creates.length === 0 && cancels.length === 0 && progress.length === 0) return undefined;
    const outbox = this.#outbox;
    this.#outbox = { creates: [], cancels: [], progress: [] };
    return outbox;
  }

  endAll(error: LockstepError): void {
    for (const watch of [...this.#watches]) this.#end(watch, error);
  }

  cancel(watch: ChannelWatch): void {
    if (watch.cancelled) return;
    watch.cancelled = true;
    this.#watches.delete(watch);
    this.#removeFromStream(watch);
  }

  resume(watch: ChannelWatch): void {
    if (!watch.held || watch.cancelled) return;
    watch.held = false;
    this.#create(watch);
  }

  requestProgress(watch: ChannelWatch): void {
    if (watch.id === 0 || !this.#connected) return;
    this.#outbox.progress.push(watch.id);
    this.#host.flushSoon();
  }

  onCreated({ watchId, revision }: coordination.WatchCreated): void {
    const watch = this.#byId.get(watchId);
    if (watch === undefined) return;
    // A watch that asked for "from now on" now knows where that is: a later stream must not skip ahead.
    if (watch.nextRevision === 0) watch.nextRevision = revision + 1;
    if (watch.created) return;
    watch.created = true;
    this.#tell(() => watch.listener.created(revision), undefined);
  }

  /** One batch for all of the watches: they only read it. */
  onEvents({ watchIds, batch }: ReceivedEvents): void {
    for (const watchId of watchIds) this.#deliver(watchId, batch);
  }

  onProgress({ watchId, revision }: coordination.WatchProgress): void {
    const watch = this.#byId.get(watchId);
    if (watch === undefined) return;
    watch.nextRevision = Math.max(watch.nextRevision, revision + 1);
    this.#tell(() => watch.listener.progress(revision), undefined);
  }

  onEnded({ watchId, reason }: coordination.WatchEnded): void {
    const watch = this.#byId.get(watchId);
    if (watch === undefined) return;
    this.#byId.delete(watchId);
    watch.id = 0;
    switch (reason?.$case) {
      case "compactRevision":
        this.#end(watch, compacted(reason.value));
        return;
      case "resumeRevision":
        watch.nextRevision = reason.value;
        this.#create(watch);
        return;
      case "failure": {
        const error = errorFromFailure(reason.value);
        if (isTransient(error.code)) this.#host.later(() => this.#create(watch), error.retryAfterMs ?? 0);
        else this.#end(watch, error);
        return;
      }
      case undefined:
        this.#end(watch, new LockstepError("protocol-error", "unknown", "a watch ended without a reason"));
    }
  }

  #deliver(watchId: number, batch: WatchBatch): void {
    const watch = this.#byId.get(watchId);
    if (watch === undefined) return;
    watch.nextRevision = Math.max(watch.nextRevision, batch.revision + 1);
    if (this.#tell(() => watch.listener.events(batch), true)) return;
    // The server holds nothing for a consumer that is behind; what follows comes from the cell's history later.
    watch.held = true;
    this.#removeFromStream(watch);
  }

  #create(watch: ChannelWatch): void {
    if (!this.#connected || watch.cancelled || watch.held || watch.id !== 0) return;
    watch.id = this.#nextId++;
    this.#byId.set(watch.id, watch);
    const { spec } = watch;
    this.#outbox.creates.push({
      watchId: watch.id,
      range: { key: spec.range.key, rangeEnd: spec.range.rangeEnd },
      startRevision: watch.nextRevision,
      returnPrevious: spec.returnPrevious,
      omitPuts: spec.omit === "put",
      omitDeletes: spec.omit === "delete",
    });
    this.#host.flushSoon();
  }

  #removeFromStream(watch: ChannelWatch): void {
    if (watch.id === 0) return;
    this.#byId.delete(watch.id);
    if (this.#connected) {
      const { creates } = this.#outbox;
      const unsent = creates.findIndex((create) => create.watchId === watch.id);
      if (unsent >= 0) creates.splice(unsent, 1);
      else this.#outbox.cancels.push(watch.id);
      this.#host.flushSoon();
    }
    watch.id = 0;
  }

  #end(watch: ChannelWatch, error: LockstepError): void {
    if (watch.cancelled) return;
    watch.cancelled = true;
    this.#watches.delete(watch);
    this.#removeFromStream(watch);
    this.#tell(() => watch.listener.ended(error), undefined);
  }

  /** A listener's exception surfaces as an uncaught one, in a turn of its own: others are told all the same. */
  #tell<T>(tell: () => T, otherwise: T): T {
    try {
      return tell();
    } catch (thrown) {
      this.#host.surface(thrown);
      return otherwise;
    }
  }
}

function compacted(compactRevision: number): LockstepError {
  return new LockstepError(
    "compacted",
    "not-applied",
    `the history before revision ${compactRevision} was compacted: read the range, then watch from the revision of that answer + 1`,
    { compactRevision },
  );
}
