import type { KeyRange, Revision, WatchEvent, WatchHandle, WatchSink } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { NamespaceId } from "../machine/types.ts";
import { INFINITY_KEY, IntervalIndex } from "./interval-index.ts";
import { KeyTable } from "./key-table.ts";

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
  readonly scope: WatcherScope;
  readonly range: KeyRange;
  readonly sink: WatchSink;
  readonly returnPrevious: boolean;
  readonly omit: "put" | "delete" | undefined;
  /** The first revision wanted. */
  readonly next: Revision;
  /** It was asked for a revision that is not there yet: no progress is told below `next`. */
  readonly beginsLater: boolean;
  readonly createdRevision: Revision;
}

/** What a watch's owner may ask of the hub. */
export interface WatcherCommands {
  cancel(watcher: Watcher): void;
  resume(watcher: Watcher): void;
  requestProgress(watcher: Watcher): void;
}

/** What all watchers of a namespace share. */
export interface WatcherScope {
  readonly id: NamespaceId;
  readonly commands: WatcherCommands;
}

/** Events that wait for a full sink, oldest first. */
export interface Backlog {
  batches: PendingBatch[];
  bytes: number;
}

/** A range that is watched; shared by all who watch it. */
interface Span {
  readonly start: string;
  readonly end: string;
}

// All that is yes or no about a watcher stands in one word, with its place in its group above.
const SYNCED = 1;
const ENDED = 2;
const HELD = 4;
const OWED = 8;
const OWNS_TURN = 16;
const RETURNS_PREVIOUS = 32;
const OMITS_PUTS = 64;
const OMITS_DELETIONS = 128;
const BEGINS_LATER = 256;
const PLACE_SHIFT = 9;
const FLAGS = 2 ** PLACE_SHIFT - 1;
/** Places in a group: V8 keeps integers of 32 bits without an object around them. */
export const GROUP_MAX: number = 2 ** (32 - PLACE_SHIFT);

/**
 * One watch, as the hub keeps it, and the handle that its owner holds. There may be millions: eight fields, 88 bytes, and
 * what identical watches have in common is shared.
 */
export class Watcher implements WatchHandle {
  readonly createdRevision: Revision;
  readonly sink: WatchSink;
  readonly scope: WatcherScope;
  /** The single key, or the range. */
  key: string | Span;
  /** Lowest revision to deliver; while lagging: everything below it is delivered (or pending). */
  next: Revision;
  /** undefined: nothing waits, as with most watchers all the time. */
  backlog: Backlog | undefined;
  /** Matches of the publication or slice under way. See {@link Watcher.ownsTurn}. */
  turn: readonly WatchEvent[] | undefined;
  #bits: number;

  constructor(options: WatcherOptions) {
    const { range, next, createdRevision, omit } = options;
    this.createdRevision = createdRevision;
    this.sink = options.sink;
    this.scope = options.scope;
    this.key = keyOf(range);
    this.next = next;
    this.backlog = undefined;
    this.turn = undefined;
    this.#bits =
      (options.returnPrevious ? RETURNS_PREVIOUS : 0) |
      (omit === "put" ? OMITS_PUTS : omit === "delete" ? OMITS_DELETIONS : 0) |
      (options.beginsLater ? BEGINS_LATER : 0);
  }

  get namespaceId(): NamespaceId {
    return this.scope.id;
  }

  /**
   * `synced`: fed by publications. `lagging`: behind, fed from ring or history. `ended`: nothing is delivered.
   */
  get mode(): "synced" | "lagging" | "ended" {
    const bits = this.#bits;
    return (bits & SYNCED) !== 0 ? "synced" : (bits & ENDED) !== 0 ? "ended" : "lagging";
  }

  set mode(mode: "synced" | "lagging" | "ended") {
    const bits = this.#bits & ~(SYNCED | ENDED);
    this.#bits = bits | (mode === "synced" ? SYNCED : mode === "ended" ? ENDED : 0);
  }

  /** The sink is full: nothing but `end` until it resumes. */
  get held(): boolean {
    return (this.#bits & HELD) !== 0;
  }

  set held(held: boolean) {
    this.#set(HELD, held);
  }

  /** Its turn comes from publications, and has not been delivered yet. */
  get owed(): boolean {
    return (this.#bits & OWED) !== 0;
  }

  set owed(owed: boolean) {
    this.#set(OWED, owed);
  }

  /** `turn` is this watcher's own array and may grow. */
  get ownsTurn(): boolean {
    return (this.#bits & OWNS_TURN) !== 0;
  }

  set ownsTurn(owns: boolean) {
    this.#set(OWNS_TURN, owns);
  }

  get returnPrevious(): boolean {
    return (this.#bits & RETURNS_PREVIOUS) !== 0;
  }

  omits(kind: "put" | "delete"): boolean {
    return (this.#bits & (kind === "put" ? OMITS_PUTS : OMITS_DELETIONS)) !== 0;
  }

  /** No progress is told below it. */
  get progressFloor(): Revision {
    return (this.#bits & BEGINS_LATER) !== 0 ? this.next : this.createdRevision;
  }

  /** Its place in its group's array. */
  get place(): number {
    return this.#bits >>> PLACE_SHIFT;
  }

  set place(place: number) {
    this.#bits = (this.#bits & FLAGS) | (place << PLACE_SHIFT);
  }

  get pendingBytes(): number {
    return this.backlog?.bytes ?? 0;
  }

  dropTurn(): void {
    this.turn = undefined;
    this.ownsTurn = false;
  }

  /** The revision it was to begin at was reached. */
  begun(): void {
    this.#set(BEGINS_LATER, false);
  }

  cancel(): void {
    this.scope.commands.cancel(this);
  }

  resume(): void {
    this.scope.commands.resume(this);
  }

  requestProgress(): void {
    this.scope.commands.requestProgress(this);
  }

  #set(bit: number, on: boolean): void {
    this.#bits = on ? this.#bits | bit : this.#bits & ~bit;
  }
}

function keyOf({ key, rangeEnd }: KeyRange): string | Span {
  const start = keyString(key);
  if (rangeEnd === undefined) return start;
  return { start, end: rangeEnd.length === 0 ? INFINITY_KEY : keyString(rangeEnd) };
}

/** Which watchers of one namespace want a key: a hash for single keys, an interval index for ranges. */
export class WatcherIndex {
  readonly #exact: KeyTable;
  readonly #ranges = new IntervalIndex<Watcher[]>();

  /** @param hashSeed any number that clients do not know */
  constructor(hashSeed: number) {
    this.#exact = new KeyTable(hashSeed);
  }

  get empty(): boolean {
    return this.#exact.size === 0 && this.#ranges.size === 0;
  }

  add(watcher: Watcher): void {
    const { key } = watcher;
    if (typeof key === "string") {
      const group = this.#exact.get(key);
      if (group === undefined) this.#exact.set(key, watcher);
      else if (Array.isArray(group)) push(group, watcher);
      else this.#exact.set(key, pair(group, watcher));
      return;
    }
    const group = this.#ranges.get(key.start, key.end);
    if (group !== undefined) {
      push(group, watcher);
      return;
    }
    watcher.place = 0;
    this.#ranges.add(key.start, key.end, [watcher]);
  }

  /** It must be in this index. */
  delete(watcher: Watcher): void {
    const { key } = watcher;
    const group = typeof key === "string" ? this.#exact.get(key) : this.#ranges.get(key.start, key.end);
    if (Array.isArray(group) && group.length > 1) {
      remove(group, watcher);
      return;
    }
    const last = Array.isArray(group) ? group[0] : group;
    assert(last === watcher, "a watcher is in the index it is taken from");
    if (typeof key === "string") this.#exact.delete(key);
    else this.#ranges.delete(key.start, key.end);
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
  one.place = 0;
  other.place = 1;
  other.key = one.key;
  return [one, other];
}

function push(group: Watcher[], watcher: Watcher): void {
  const [first] = group;
  if (first !== undefined) watcher.key = first.key;
  watcher.place = group.push(watcher) - 1;
}

/** The last one takes its place: order within a group means nothing. */
function remove(group: Watcher[], watcher: Watcher): void {
  assert(group[watcher.place] === watcher, "a watcher is in the index it is taken from");
  const last = group.pop();
  if (last === undefined || last === watcher) return;
  group[watcher.place] = last;
  last.place = watcher.place;
}
