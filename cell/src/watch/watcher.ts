import type { KeyRange, Revision, WatchEvent, WatchHandle, WatchSink } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { NamespaceId } from "../machine/types.ts";
import { INFINITY_KEY, IntervalIndex } from "./interval-index.ts";

/** Events that wait for a full sink: those of one publication. */
export interface PendingBatch {
  readonly events: readonly WatchEvent[];
  /** The last revision covered. */
  readonly revision: Revision;
  readonly bytes: number;
}

/**
 * Watchers of one key or of one range. A member may hold millions of watches, most of them alone on their key: then
 * the watcher stands for itself, without an array around it.
 */
export type WatcherGroup = Watcher | Watcher[];

/** Bytes as a latin1 string: its order is byte order, and it hashes once. */
export function keyString(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString("latin1");
}

export interface WatcherOptions {
  readonly namespaceId: NamespaceId;
  readonly range: KeyRange;
  readonly sink: WatchSink;
  readonly returnPrevious: boolean;
  readonly omit: "put" | "delete" | undefined;
  /** The first revision wanted. */
  readonly next: Revision;
  /** No progress is told below it. */
  readonly progressFloor: Revision;
  readonly createdRevision: Revision;
  readonly commands: WatcherCommands;
}

/** What a watch's owner may ask of the hub. */
export interface WatcherCommands {
  cancel(watcher: Watcher): void;
  resume(watcher: Watcher): void;
  requestProgress(watcher: Watcher): void;
}

/** Most watchers never have anything pending: they share this, which is never written. */
export const NOTHING_PENDING: PendingBatch[] = [];

/** One watch, as the hub keeps it, and the handle that its owner holds. */
export class Watcher implements WatchHandle {
  readonly createdRevision: Revision;
  readonly #commands: WatcherCommands;
  readonly namespaceId: NamespaceId;
  /** Key, or start of the range. */
  readonly start: string;
  /** undefined: the single key. */
  readonly end: string | undefined;
  readonly sink: WatchSink;
  readonly returnPrevious: boolean;
  readonly omit: "put" | "delete" | undefined;
  readonly progressFloor: Revision;
  /**
   * `synced`: fed by publications. `lagging`: behind, fed from ring or history. `ended`: nothing is delivered.
   */
  mode: "synced" | "lagging" | "ended" = "lagging";
  /** The sink is full: nothing but `end` until it resumes. */
  held = false;
  /** Lowest revision to deliver; while lagging: everything below it is delivered (or pending). */
  next: Revision;
  /** Oldest first; only while held. */
  pending: PendingBatch[] = NOTHING_PENDING;
  pendingBytes = 0;
  /** Matches of the publication or slice under way. */
  turn: readonly WatchEvent[] | undefined;
  /** `turn` is this watcher's own array and may grow. */
  turnOwned: WatchEvent[] | undefined;
  /** Its turn comes from publications, and has not been delivered yet. */
  owed = false;
  /** Its place in its group's array. */
  slot = 0;

  constructor(options: WatcherOptions) {
    const { key, rangeEnd } = options.range;
    this.namespaceId = options.namespaceId;
    this.start = keyString(key);
    this.end =
      rangeEnd === undefined ? undefined : rangeEnd.length === 0 ? INFINITY_KEY : keyString(rangeEnd);
    this.sink = options.sink;
    this.returnPrevious = options.returnPrevious;
    this.omit = options.omit;
    this.next = options.next;
    this.progressFloor = options.progressFloor;
    this.createdRevision = options.createdRevision;
    this.#commands = options.commands;
  }

  cancel(): void {
    this.#commands.cancel(this);
  }

  resume(): void {
    this.#commands.resume(this);
  }

  requestProgress(): void {
    this.#commands.requestProgress(this);
  }
}

/** Which watchers of one namespace want a key: a hash for single keys, an interval index for ranges. */
export class WatcherIndex {
  readonly #exact = new Map<string, WatcherGroup>();
  readonly #ranges = new IntervalIndex<Watcher[]>();

  get empty(): boolean {
    return this.#exact.size === 0 && this.#ranges.size === 0;
  }

  add(watcher: Watcher): void {
    const { start, end } = watcher;
    if (end === undefined) {
      const group = this.#exact.get(start);
      if (group === undefined) this.#exact.set(start, watcher);
      else if (Array.isArray(group)) push(group, watcher);
      else this.#exact.set(start, pair(group, watcher));
      return;
    }
    const group = this.#ranges.get(start, end);
    if (group !== undefined) {
      push(group, watcher);
      return;
    }
    watcher.slot = 0;
    this.#ranges.add(start, end, [watcher]);
  }

  /** It must be in this index. */
  delete(watcher: Watcher): void {
    const { start, end } = watcher;
    const group = end === undefined ? this.#exact.get(start) : this.#ranges.get(start, end);
    if (Array.isArray(group)) {
      remove(group, watcher);
      if (group.length > 0) return;
    } else {
      assert(group === watcher, "a watcher is in the index it is taken from");
    }
    if (end === undefined) this.#exact.delete(start);
    else this.#ranges.delete(start, end);
  }

  /** Calls back with every group that contains `key`. */
  match(key: Uint8Array, visit: (group: WatcherGroup) => void): void {
    const text = keyString(key);
    const exact = this.#exact.get(text);
    if (exact !== undefined) visit(exact);
    if (this.#ranges.size > 0) this.#ranges.stab(text, visit);
  }

  /** A copy: the index may change while it is walked. */
  all(): Watcher[] {
    return [...this.#exact.values(), ...this.#ranges.values()].flat();
  }
}

function pair(one: Watcher, other: Watcher): Watcher[] {
  one.slot = 0;
  other.slot = 1;
  return [one, other];
}

function push(group: Watcher[], watcher: Watcher): void {
  watcher.slot = group.push(watcher) - 1;
}

/** The last one takes its place: order within a group means nothing. */
function remove(group: Watcher[], watcher: Watcher): void {
  assert(group[watcher.slot] === watcher, "a watcher is in the index it is taken from");
  const last = group.pop();
  if (last === undefined || last === watcher) return;
  group[watcher.slot] = last;
  last.slot = watcher.slot;
}
