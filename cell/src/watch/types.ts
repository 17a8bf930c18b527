/**
 * The watch hub of one member: fans committed revisions out to watchers. Recent events sit in a bounded ring; older
 * ones are read back from history. One write touches only the watchers that match (hash for exact keys, interval
 * index for ranges). No watcher can hold more than its bound.
 */
import type { KeyRange, KeyValue, Revision, WatchHandle, WatchSink } from "@lockstep/gateway/coordinator";
import type { NamespaceId, RevisionEvents } from "../machine/types.ts";

/** Where the hub reads what is no longer in its ring. Synchronous and bounded; the hub slices. */
export interface HistorySource {
  revision(): Revision;
  /** 0: nothing compacted. */
  compactRevision(namespaceId: NamespaceId): Revision;
  history(request: {
    readonly namespaceId: NamespaceId;
    readonly from: Revision;
    readonly to: Revision;
    readonly limit: number;
  }): { readonly events: readonly RevisionEvents[]; readonly next: Revision };
  stateAt(namespaceId: NamespaceId, key: Uint8Array, revision: Revision): KeyValue | undefined;
}

export interface WatchHubOptions {
  readonly source: HistorySource;
  /** Runs a slice of catch-up soon, letting the event loop breathe between slices. */
  readonly schedule: (slice: () => void) => void;
  /** Bytes of recent events kept. Default 32 MiB. */
  readonly ringBytesMax: number;
  /** Bytes queued for one watcher whose sink is full; beyond it is cut as a slow consumer. Default 4 MiB. */
  readonly pendingBytesMax: number;
  /** Bytes queued for all watchers; beyond it the largest is cut. Default 256 MiB. */
  readonly totalPendingBytesMax: number;
  readonly watchesMax: number;
  /** Any number that clients do not know: where keys stand in memory must not follow from those they choose. Default 0. */
  readonly hashSeed?: number;
  /** Live deliveries in one go; the others follow in slices, so that a heartbeat comes through. Default 8,192. */
  readonly fanoutSlice?: number;
  /**
   * Events that live watchers may be behind by, all together, when there is more to deliver than can be. Beyond it
   * watchers read on from ring or history, where each event is held once for all. Default 1,000,000.
   */
  readonly fanoutBacklogMax?: number;
}

export interface HubWatchRequest {
  readonly namespaceId: NamespaceId;
  readonly range: KeyRange;
  readonly startRevision?: Revision;
  readonly returnPrevious: boolean;
  readonly omit?: "put" | "delete";
}

export interface WatchHub {
  /** Registers atomically with the present revision. undefined: `watchesMax` reached. */
  watch(request: HubWatchRequest, sink: WatchSink): WatchHandle | undefined;
  /** Everything one apply produced, in order; all events up to `revision` are covered. */
  publish(events: readonly RevisionEvents[], revision: Revision): void;
  /** A namespace's history below `compactRevision` is gone. */
  compacted(namespaceId: NamespaceId, compactRevision: Revision): void;
  /** A namespace is gone: its watches are cancelled in the following slices, and get nothing more. */
  deleted(namespaceId: NamespaceId, name: string): void;
  /**
   * A snapshot replaced the state: nothing in the ring holds any more; every watcher resumes from its own next
   * revision out of history, or ends with `compacted` (B7).
   */
  reset(): void;
  /** Ends all watches (shutdown). */
  close(reason: string): void;
  readonly watchers: number;
  readonly pendingBytes: number;
  /** Watchers cut because they did not drain, since start. */
  readonly slowConsumerCuts: number;
}
