import type {
  KeyRange,
  KeyValue,
  LeaseId,
  Revision,
  WatchEnd,
  WatchEvent,
  WatchHandle,
  WatchSink,
} from "@lockstep/gateway/coordinator";
import type { MachineEvent, NamespaceId, RevisionEvents } from "../../machine/types.ts";
import { createWatchHub } from "../index.ts";
import type { HistorySource, HubWatchRequest, WatchHub, WatchHubOptions } from "../index.ts";

export interface Change {
  readonly kind: "put" | "delete";
  readonly key: string;
  readonly value?: string;
}

/** A state with its whole history in a list: the dumb twin of store and machine. */
export class World implements HistorySource {
  readonly log: RevisionEvents[] = [];
  readonly hub: WatchHub;
  stateLookups = 0;
  historyReads = 0;
  #compacted = new Map<NamespaceId, Revision>();
  #slices: (() => void)[] = [];
  #unpublished: RevisionEvents[] = [];

  constructor(options: Partial<WatchHubOptions> = {}) {
    this.hub = createWatchHub({
      source: this,
      schedule: (slice) => this.#slices.push(slice),
      ringBytesMax: 32 * 1024 * 1024,
      pendingBytesMax: 4 * 1024 * 1024,
      totalPendingBytesMax: 256 * 1024 * 1024,
      watchesMax: 1_000_000,
      ...options,
    });
  }

  revision(): Revision {
    return (this.log.length + 1) as Revision;
  }

  compactRevision(namespaceId: NamespaceId): Revision {
    return this.#compacted.get(namespaceId) ?? (0 as Revision);
  }

  history(request: { namespaceId: NamespaceId; from: Revision; to: Revision; limit: number }): {
    readonly events: readonly RevisionEvents[];
    readonly next: Revision;
  } {
    this.historyReads += 1;
    const { namespaceId, from, to, limit } = request;
    if (from < this.compactRevision(namespaceId))
      throw new Error("history below the compaction point was read");
    const events: RevisionEvents[] = [];
    let count = 0;
    for (const one of this.log) {
      if (one.revision < from || one.revision > to || one.namespaceId !== namespaceId) continue;
      if (count >= limit) return { events, next: one.revision };
      events.push(one);
      count += one.events.length;
    }
    return { events, next: (to + 1) as Revision };
  }

  stateAt(namespaceId: NamespaceId, key: Uint8Array, revision: Revision): KeyValue | undefined {
    this.stateLookups += 1;
    if (revision < this.compactRevision(namespaceId)) return undefined;
    const event = this.#lastChange(namespaceId, Buffer.from(key).toString("latin1"), revision);
    return event?.kind === "put" ? event.kv : undefined;
  }

  /** One revision; applied and not yet published. */
  apply(namespaceId: NamespaceId, changes: readonly Change[]): Revision {
    const revision = (this.revision() + 1) as Revision;
    const events = changes.map((change): MachineEvent => {
      const old = this.#lastChange(namespaceId, change.key, this.revision());
      const previous = old?.kind === "put" ? old.kv : undefined;
      const put = change.kind === "put";
      return {
        kind: change.kind,
        kv: {
          key: Buffer.from(change.key, "latin1"),
          value: Buffer.from(put ? (change.value ?? "v") : "", "latin1"),
          createRevision: put ? (previous?.createRevision ?? revision) : (0 as Revision),
          modRevision: revision,
          version: put ? (previous?.version ?? 0) + 1 : 0,
          leaseId: "0" as LeaseId,
        },
        previousRevision: previous?.modRevision ?? 0,
        cause: "client",
      };
    });
    const one = { namespaceId, revision, events };
    this.log.push(one);
    this.#unpublished.push(one);
    return revision;
  }

  publish(): void {
    const events = this.#unpublished;
    this.#unpublished = [];
    this.hub.publish(events, this.revision());
  }

  /** Applies and publishes one revision. */
  put(key: string, value = "v", namespaceId = 1): Revision {
    const revision = this.apply(namespaceId, [{ kind: "put", key, value }]);
    this.publish();
    return revision;
  }

  delete(key: string, namespaceId = 1): Revision {
    const revision = this.apply(namespaceId, [{ kind: "delete", key }]);
    this.publish();
    return revision;
  }

  /** What was applied since the last publication came with a snapshot: nobody publishes it. */
  installSnapshot(): void {
    this.#unpublished = [];
    this.hub.reset();
  }

  compact(revision: number, namespaceId = 1): void {
    this.#compacted.set(namespaceId, revision as Revision);
    this.hub.compacted(namespaceId, revision as Revision);
  }

  /** Runs one slice of what the hub scheduled. @returns whether there was one. */
  slice(): boolean {
    const slice = this.#slices.shift();
    slice?.();
    return slice !== undefined;
  }

  settle(): void {
    for (let i = 0; this.slice(); i++) if (i > 100_000) throw new Error("catch-up never ends");
  }

  watch(range: KeyRange | string, request: Partial<HubWatchRequest> = {}, sink: Sink = new Sink()): Sink {
    const handle = this.hub.watch(
      {
        namespaceId: 1,
        range: typeof range === "string" ? { key: Buffer.from(range, "latin1") } : range,
        returnPrevious: false,
        ...request,
      },
      sink,
    );
    if (handle === undefined) throw new Error("no room for a watch");
    sink.handle = handle;
    return sink;
  }

  #lastChange(namespaceId: NamespaceId, key: string, revision: number): MachineEvent | undefined {
    for (let i = this.log.length - 1; i >= 0; i--) {
      const one = this.log[i];
      if (one === undefined || one.revision > revision || one.namespaceId !== namespaceId) continue;
      const found = one.events.findLast((event) => Buffer.from(event.kv.key).toString("latin1") === key);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

export function prefix(start: string, end = ""): KeyRange {
  return { key: Buffer.from(start, "latin1"), rangeEnd: Buffer.from(end, "latin1") };
}

/** Remembers what it got. */
export class Sink implements WatchSink {
  readonly calls: { readonly events: readonly WatchEvent[]; readonly revision: Revision }[] = [];
  readonly progressed: Revision[] = [];
  readonly ends: WatchEnd[] = [];
  /** Everything in the order it came. */
  readonly order: string[] = [];
  full = false;
  handle: WatchHandle | undefined;
  onEvents: () => void = () => undefined;

  events(events: readonly WatchEvent[], revision: Revision): boolean {
    if (this.handle === undefined) throw new Error("a delivery before watch() returned");
    this.calls.push({ events, revision });
    this.order.push(`events ${revision}`);
    this.onEvents();
    return !this.full;
  }
  progress(revision: Revision): void {
    if (this.handle === undefined) throw new Error("progress before watch() returned");
    this.progressed.push(revision);
    this.order.push(`progress ${revision}`);
  }
  end(end: WatchEnd): void {
    if (this.handle === undefined) throw new Error("an end before watch() returned");
    this.ends.push(end);
    this.order.push(`end ${end.kind}`);
  }

  get received(): readonly WatchEvent[] {
    return this.calls.flatMap((call) => call.events);
  }

  /** `kind key@revision` of all events. */
  get texts(): readonly string[] {
    return this.received.map(describe);
  }

  drain(): void {
    this.full = false;
    this.handle?.resume();
  }
}

export function describe({ kind, kv }: WatchEvent): string {
  return `${kind} ${Buffer.from(kv.key).toString("latin1")}@${kv.modRevision}`;
}
