import type {
  Failure,
  Revision,
  WatchEnd,
  WatchEvent,
  WatchHandle,
  WatchSink,
} from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { NamespaceId, RevisionEvents } from "../machine/types.ts";
import { EventRing, SharedRevision, eventBytes } from "./ring.ts";
import type { StateBefore } from "./ring.ts";
import { readStretch } from "./stretch.ts";
import type { Stretch } from "./stretch.ts";
import { Turn } from "./turn.ts";
import type { HubWatchRequest, WatchHub, WatchHubOptions } from "./types.ts";
import { GROUP_MAX, Watcher, WatcherIndex } from "./watcher.ts";
import type { WatcherCommands, WatcherScope } from "./watcher.ts";

/** One slice of catch-up aims at no more than this many events, bytes and deliveries. */
const SLICE_EVENTS_MAX = 1_024;
const SLICE_EVENTS_MIN = 8;
const SLICE_BYTES = 1024 * 1024;
const SLICE_MATCHES = 20_000;
const SLICE_ENDS = 1_024;
const FANOUT_SLICE = 8_192;
const FANOUT_BACKLOG_MAX = 1_000_000;
/** Live watchers have everything up to the present publication. */
const NOTHING_MISSING = 0 as Revision;

/** The watchers of one namespace. Each is in exactly one of `synced`, `lagging` with `runnable`, and `parked`. */
interface NamespaceWatchers extends WatcherScope {
  readonly synced: WatcherIndex;
  /** Those that a slice may feed, in turn. */
  readonly lagging: WatcherIndex;
  readonly runnable: Set<Watcher>;
  /** Behind, and their sinks are full. */
  readonly parked: Set<Watcher>;
  count: number;
  /** It was deleted: nothing is read for its watchers any more. */
  deleted: boolean;
}

/** The watches of a deleted namespace, to be ended. */
interface Deletion {
  readonly watchers: Watcher[];
  readonly end: WatchEnd;
}

/** @returns a hub in step with the source's present revision. */
export function createWatchHub(options: WatchHubOptions): WatchHub {
  return new Hub(options);
}

class Hub implements WatchHub {
  readonly #options: WatchHubOptions;
  readonly #ring: EventRing;
  readonly #namespaces = new Map<NamespaceId, NamespaceWatchers>();
  /** Everything up to here was published (or is in the state, after a reset). */
  #revision: Revision;
  #watchers = 0;
  #pendingBytes = 0;
  #slowConsumerCuts = 0;
  #closed = false;
  /** Full sinks. */
  readonly #held = new Set<Watcher>();
  readonly #progressWanted = new Set<Watcher>();
  /** Registered below the compaction point: told in the next slice. */
  #doomed: Watcher[] = [];
  readonly #deletions: Deletion[] = [];
  #sliceDue = false;
  #sliceEvents = SLICE_EVENTS_MAX / 4;
  /** What a slice of catch-up gives out; empty between slices. */
  readonly #turn: Turn;
  /** What publications give out. */
  readonly #live: Turn;
  /** Synced watchers with a turn that was not delivered yet, in the order in which they got it. */
  #owed: Watcher[] = [];
  readonly #fanoutSlice: number;
  readonly #fanoutBacklogMax: number;
  #owedFrom = 0;
  /** Namespaces with watchers to catch up, taking turns. */
  readonly #behind = new Set<NamespaceWatchers>();

  readonly #commands: WatcherCommands = {
    cancel: (watcher) => this.#remove(watcher),
    resume: (watcher) => this.#resume(watcher),
    requestProgress: (watcher) => {
      if (watcher.mode === "ended") return;
      this.#progressWanted.add(watcher);
      this.#schedule();
    },
  };

  constructor(options: WatchHubOptions) {
    this.#options = options;
    this.#fanoutSlice = options.fanoutSlice ?? FANOUT_SLICE;
    this.#fanoutBacklogMax = options.fanoutBacklogMax ?? FANOUT_BACKLOG_MAX;
    this.#revision = options.source.revision();
    this.#ring = new EventRing(options.ringBytesMax, this.#revision);
    const { source } = options;
    const stateBefore: StateBefore = (namespaceId, key, revision) =>
      source.stateAt(namespaceId, key, (revision - 1) as Revision);
    this.#turn = new Turn(stateBefore);
    this.#live = new Turn(stateBefore);
  }

  get watchers(): number {
    return this.#watchers;
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  get slowConsumerCuts(): number {
    return this.#slowConsumerCuts;
  }

  watch(request: HubWatchRequest, sink: WatchSink): WatchHandle | undefined {
    if (this.#closed || this.#watchers >= Math.min(this.#options.watchesMax, GROUP_MAX)) return undefined;
    const { source } = this.#options;
    const createdRevision = source.revision();
    const { namespaceId, range, startRevision, returnPrevious, omit } = request;
    const next = startRevision ?? ((createdRevision + 1) as Revision);
    const namespace = this.#namespace(namespaceId);
    const watcher = new Watcher({
      ...{ scope: namespace, range, sink, returnPrevious, omit, next, createdRevision },
      beginsLater: startRevision !== undefined && startRevision > createdRevision,
    });
    this.#watchers += 1;
    namespace.count += 1;
    if (next < source.compactRevision(namespaceId)) {
      namespace.parked.add(watcher);
      this.#doomed.push(watcher);
      this.#schedule();
    } else if (next > this.#revision) {
      this.#enterSynced(namespace, watcher);
    } else {
      this.#enterLagging(namespace, watcher);
    }
    return watcher;
  }

  publish(events: readonly RevisionEvents[], revision: Revision): void {
    assert(revision >= this.#revision, "published revision >= the hub's", {
      published: revision,
      hub: this.#revision,
    });
    if (this.#watchers === 0) {
      // Events that nobody watches are not kept: whoever comes later and starts earlier reads history.
      this.#ring.skipTo(revision);
      this.#revision = revision;
      return;
    }
    for (const revisionEvents of events) {
      const shared = new SharedRevision(revisionEvents);
      // A revision that a reset already covered is in the state; whoever needs it reads history.
      if (shared.revision <= this.#revision) continue;
      this.#ring.append(shared);
      const namespace = this.#namespaces.get(shared.namespaceId);
      if (namespace !== undefined && !namespace.synced.empty) {
        this.#live.match(namespace.synced, shared, NOTHING_MISSING);
      }
    }
    this.#revision = revision;
    if (!this.#live.empty) this.#owe();
    if (this.#owed.length > 0) this.#deliverOwed(this.#fanoutSlice);
    if (this.#progressWanted.size > 0) this.#answerProgress();
    if (this.#pendingBytes > this.#options.totalPendingBytesMax) this.#cutLargest();
  }

  compacted(namespaceId: NamespaceId, compactRevision: Revision): void {
    const namespace = this.#namespaces.get(namespaceId);
    if (namespace === undefined) return;
    for (const watchers of [namespace.runnable, namespace.parked]) {
      for (const watcher of [...watchers]) {
        if (this.#lost(watcher, compactRevision)) this.#end(watcher, { kind: "compacted", compactRevision });
      }
    }
  }

  deleted(namespaceId: NamespaceId, name: string): void {
    const namespace = this.#namespaces.get(namespaceId);
    if (namespace === undefined) return;
    namespace.deleted = true;
    this.#behind.delete(namespace);
    const watchers = [...namespace.synced.all(), ...namespace.runnable, ...namespace.parked];
    const message = `The namespace ${JSON.stringify(name)} was deleted.`;
    const failure: Failure = { code: "namespace-not-found", outcome: "not-applied", message };
    this.#deletions.push({ watchers, end: { kind: "cancelled", failure } });
    this.#schedule();
  }

  reset(): void {
    const revision = this.#options.source.revision();
    assert(revision >= this.#revision, "a snapshot does not go back", { revision, hub: this.#revision });
    // What was matched is delivered before anything that the new state leads to.
    this.#deliverOwed(Infinity);
    const reached = (this.#revision + 1) as Revision;
    this.#revision = revision;
    this.#ring.clear(revision);
    for (const namespace of this.#namespaces.values()) {
      for (const watcher of namespace.synced.all()) {
        if (watcher.next < reached) {
          watcher.next = reached;
          watcher.begun();
        }
        if (watcher.next > revision) continue;
        namespace.synced.delete(watcher);
        this.#enterLagging(namespace, watcher);
      }
    }
  }

  close(reason: string): void {
    this.#closed = true;
    const failure: Failure = { code: "shutting-down", outcome: "not-applied", message: reason };
    for (const namespace of [...this.#namespaces.values()]) {
      const all = [...namespace.synced.all(), ...namespace.runnable, ...namespace.parked];
      for (const watcher of all) this.#end(watcher, { kind: "cancelled", failure });
    }
  }

  #namespace(id: NamespaceId): NamespaceWatchers {
    const known = this.#namespaces.get(id);
    if (known !== undefined) return known;
    const made: NamespaceWatchers = {
      id,
      commands: this.#commands,
      synced: new WatcherIndex(this.#options.hashSeed ?? 0),
      lagging: new WatcherIndex(this.#options.hashSeed ?? 0),
      runnable: new Set(),
      parked: new Set(),
      count: 0,
      deleted: false,
    };
    this.#namespaces.set(id, made);
    return made;
  }

  #enterSynced(namespace: NamespaceWatchers, watcher: Watcher): void {
    watcher.mode = "synced";
    namespace.synced.add(watcher);
  }

  #enterLagging(namespace: NamespaceWatchers, watcher: Watcher): void {
    watcher.mode = "lagging";
    watcher.begun();
    if (watcher.held || namespace.deleted) {
      namespace.parked.add(watcher);
    } else {
      namespace.lagging.add(watcher);
      namespace.runnable.add(watcher);
      this.#behind.add(namespace);
      this.#schedule();
    }
  }

  /** Takes it out of wherever it stands. */
  #leave(namespace: NamespaceWatchers, watcher: Watcher): void {
    if (watcher.mode === "synced") namespace.synced.delete(watcher);
    else if (namespace.runnable.delete(watcher)) namespace.lagging.delete(watcher);
    else namespace.parked.delete(watcher);
  }

  /** No delivery after this. */
  #remove(watcher: Watcher): void {
    if (watcher.mode === "ended") return;
    const namespace = this.#namespace(watcher.namespaceId);
    this.#leave(namespace, watcher);
    watcher.mode = "ended";
    if (watcher.owed) this.#live.forget(watcher);
    watcher.dropTurn();
    this.#dropPending(watcher);
    this.#held.delete(watcher);
    this.#progressWanted.delete(watcher);
    this.#watchers -= 1;
    namespace.count -= 1;
    if (namespace.count > 0) return;
    this.#namespaces.delete(namespace.id);
    this.#behind.delete(namespace);
  }

  #end(watcher: Watcher, end: WatchEnd): void {
    if (watcher.mode === "ended") return;
    this.#remove(watcher);
    try {
      watcher.sink.end(end);
    } catch {
      // It is gone already; a sink that cannot even take its end has nobody left to tell.
    }
  }

  /** A sink threw: that watch ends, the others go on. */
  #broken(watcher: Watcher, error: unknown): void {
    const message = `the watch's consumer failed: ${error instanceof Error ? error.message : String(error)}`;
    this.#end(watcher, { kind: "cancelled", failure: { code: "internal", outcome: "not-applied", message } });
  }

  #dropPending(watcher: Watcher): void {
    this.#pendingBytes -= watcher.pendingBytes;
    watcher.backlog = undefined;
  }

  /** @returns how many watchers were looked at. */
  #deliverTurn(revision: Revision): number {
    const { watchers, matches } = this.#turn.take();
    for (const watcher of watchers) this.#giveTurn(watcher, revision);
    return matches;
  }

  #giveTurn(watcher: Watcher, revision: Revision): void {
    const events = watcher.turn;
    // It was cancelled by another sink meanwhile.
    if (events === undefined) return;
    watcher.dropTurn();
    if (watcher.held) this.#queue(watcher, events, revision);
    else this.#deliver(watcher, events, revision);
  }

  // Live fan-out -----------------------------------------------------------------------------------------------

  /** Those whose turn began with this publication stand behind those who still wait for theirs. */
  #owe(): void {
    const { watchers } = this.#live.take();
    for (const watcher of watchers) watcher.owed = true;
    if (this.#owed.length === 0) {
      this.#owed = watchers;
    } else {
      for (const watcher of watchers) this.#owed.push(watcher);
    }
  }

  /** Delivers to the first `most`; the others follow in slices of their own. */
  #deliverOwed(most: number): void {
    const owed = this.#owed;
    const end = Math.min(owed.length, this.#owedFrom + most);
    const behind = this.#live.collected > this.#fanoutBacklogMax && most !== Infinity;
    while (this.#owedFrom < end) {
      const watcher = owed[this.#owedFrom] as Watcher;
      this.#owedFrom += 1;
      // It was cancelled meanwhile.
      if (!watcher.owed) continue;
      this.#live.forget(watcher);
      if (this.#deletions.length > 0 && this.#namespace(watcher.namespaceId).deleted) watcher.dropTurn();
      else if (behind) this.#fallBehind(watcher);
      else this.#giveTurn(watcher, this.#revision);
    }
    if (this.#owedFrom < owed.length) {
      this.#schedule();
      return;
    }
    this.#owed = [];
    this.#owedFrom = 0;
  }

  /** Gives its turn up: it reads on from the first event that it did not get. */
  #fallBehind(watcher: Watcher): void {
    const first = watcher.turn?.[0];
    assert(first !== undefined, "a watcher whose turn waits has events in it");
    watcher.dropTurn();
    // One that is held has its events in a queue of its own, with a bound.
    watcher.next = first.kv.modRevision;
    const namespace = this.#namespace(watcher.namespaceId);
    this.#leave(namespace, watcher);
    this.#enterLagging(namespace, watcher);
  }

  /** @returns whether the watch lives and its sink takes more. */
  #deliver(watcher: Watcher, events: readonly WatchEvent[], revision: Revision): boolean {
    try {
      if (watcher.sink.events(events, revision)) return watcher.mode !== "ended";
    } catch (error) {
      this.#broken(watcher, error);
      return false;
    }
    this.#hold(watcher);
    return false;
  }

  #hold(watcher: Watcher): void {
    if (watcher.mode === "ended") return;
    watcher.held = true;
    this.#held.add(watcher);
    if (watcher.mode === "synced") return;
    const namespace = this.#namespace(watcher.namespaceId);
    this.#leave(namespace, watcher);
    namespace.parked.add(watcher);
  }

  #queue(watcher: Watcher, events: readonly WatchEvent[], revision: Revision): void {
    let bytes = 0;
    for (const event of events) bytes += eventBytes(event);
    const backlog = (watcher.backlog ??= { batches: [], bytes: 0 });
    backlog.batches.push({ events, revision, bytes });
    backlog.bytes += bytes;
    this.#pendingBytes += bytes;
    if (backlog.bytes > this.#options.pendingBytesMax) this.#cut(watcher);
  }

  /** Ends a watch whose consumer does not drain; it can go on from its first undelivered revision. */
  #cut(watcher: Watcher): void {
    const first = watcher.backlog?.batches[0]?.events[0];
    assert(first !== undefined, "only a watch with pending events is cut");
    this.#slowConsumerCuts += 1;
    this.#end(watcher, { kind: "slow-consumer", resumeRevision: first.kv.modRevision });
  }

  #cutLargest(): void {
    while (this.#pendingBytes > this.#options.totalPendingBytesMax) {
      let largest: Watcher | undefined;
      for (const watcher of this.#held) {
        if (watcher.pendingBytes > (largest?.pendingBytes ?? 0)) largest = watcher;
      }
      assert(largest !== undefined, "pending bytes belong to a held watch", { bytes: this.#pendingBytes });
      this.#cut(largest);
    }
  }

  #resume(watcher: Watcher): void {
    if (!watcher.held || watcher.mode === "ended") return;
    watcher.held = false;
    this.#held.delete(watcher);
    if (!this.#drain(watcher)) return;
    const namespace = this.#namespace(watcher.namespaceId);
    if (namespace.parked.delete(watcher)) this.#enterLagging(namespace, watcher);
    if (this.#progressWanted.has(watcher)) this.#schedule();
  }

  /** @returns whether everything pending was delivered and the sink takes more. */
  #drain(watcher: Watcher): boolean {
    const { backlog } = watcher;
    if (backlog === undefined) return true;
    const { batches } = backlog;
    for (let i = 0; i < batches.length; i++) {
      const batch = batches[i];
      if (batch === undefined) continue;
      backlog.bytes -= batch.bytes;
      this.#pendingBytes -= batch.bytes;
      if (this.#deliver(watcher, batch.events, batch.revision)) continue;
      // What the sink did not take yet is still owed, unless the watch is over.
      if (watcher.held) backlog.batches = batches.slice(i + 1);
      return false;
    }
    watcher.backlog = undefined;
    return true;
  }

  // Catching up ------------------------------------------------------------------------------------------------

  #schedule(): void {
    if (this.#sliceDue) return;
    this.#sliceDue = true;
    this.#options.schedule(() => {
      this.#sliceDue = false;
      this.#slice();
    });
  }

  /** A bounded piece of work: one stretch of history for the watchers of one namespace. */
  #slice(): void {
    const doomed = this.#doomed;
    this.#doomed = [];
    for (const watcher of doomed) {
      const compactRevision = this.#options.source.compactRevision(watcher.namespaceId);
      this.#end(watcher, { kind: "compacted", compactRevision });
    }
    this.#endDeleted();
    if (this.#owed.length > 0) this.#deliverOwed(this.#fanoutSlice);
    for (const namespace of this.#behind) {
      this.#behind.delete(namespace);
      if (namespace.runnable.size === 0) continue;
      this.#catchUp(namespace);
      // To the back: namespaces take turns.
      if (namespace.runnable.size > 0) this.#behind.add(namespace);
      break;
    }
    if (this.#progressWanted.size > 0) this.#answerProgress();
    if (this.#behind.size > 0 || this.#deletions.length > 0) this.#schedule();
  }

  #endDeleted(): void {
    const [deletion] = this.#deletions;
    if (deletion === undefined) return;
    const { watchers, end } = deletion;
    for (const watcher of watchers.splice(-SLICE_ENDS)) this.#end(watcher, end);
    if (watchers.length === 0) this.#deletions.shift();
  }

  /** Reads on for the watcher whose turn it is, and feeds every other that is in the same stretch. */
  #catchUp(namespace: NamespaceWatchers): void {
    const [first] = namespace.runnable;
    if (first === undefined) return;
    const { source } = this.#options;
    const compactRevision = source.compactRevision(namespace.id);
    if (this.#lost(first, compactRevision)) {
      this.#end(first, { kind: "compacted", compactRevision });
      return;
    }
    const from = first.next;
    const stretch = readStretch(this.#ring, source, {
      namespaceId: namespace.id,
      from,
      to: this.#revision,
      eventsMax: this.#sliceEvents,
      bytesMax: SLICE_BYTES,
    });
    for (const shared of stretch.revisions) this.#turn.match(namespace.lagging, shared, from);
    this.#advance(namespace, from, stretch.next);
    if (namespace.runnable.delete(first)) namespace.runnable.add(first);
    const matches = this.#deliverTurn((stretch.next - 1) as Revision);
    this.#adapt(stretch, matches);
  }

  /** Whoever stood within the stretch now stands behind it, or is in step. */
  #advance(namespace: NamespaceWatchers, from: Revision, next: Revision): void {
    for (const watcher of namespace.runnable) {
      if (watcher.next < from || watcher.next >= next) continue;
      watcher.next = next;
      if (next <= this.#revision) continue;
      this.#leave(namespace, watcher);
      this.#enterSynced(namespace, watcher);
    }
  }

  /** Keeps slices short whatever the size of values and the number of watchers. */
  #adapt(stretch: Stretch, matches: number): void {
    if (stretch.bytes > SLICE_BYTES || matches > SLICE_MATCHES) {
      this.#sliceEvents = Math.max(SLICE_EVENTS_MIN, this.#sliceEvents >>> 1);
    } else if (stretch.bytes < SLICE_BYTES / 4 && matches < SLICE_MATCHES / 4) {
      this.#sliceEvents = Math.min(SLICE_EVENTS_MAX, this.#sliceEvents * 2);
    }
  }

  /** What it needs next is neither in the ring nor in history any more. */
  #lost(watcher: Watcher, compactRevision: Revision): boolean {
    return watcher.next < compactRevision && watcher.next <= this.#ring.floor;
  }

  /** After all deliveries of the turn: in step means that nothing at or below the revision is outstanding (B6). */
  #answerProgress(): void {
    const revision = this.#revision;
    for (const watcher of this.#progressWanted) {
      if (watcher.mode !== "synced" || watcher.owed || watcher.held || revision < watcher.progressFloor)
        continue;
      this.#progressWanted.delete(watcher);
      try {
        watcher.sink.progress(revision);
      } catch (error) {
        this.#broken(watcher, error);
      }
    }
  }
}
