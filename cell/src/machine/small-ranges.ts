/**
 * The live keys of small ranges that are read often: the queue of a fair lock, the members of a group, an election.
 *
 * A row that was deleted stays in a log-structured store as a mark, until a compaction reaches it, and a scan steps
 * over every mark: the queue of a busy lock has four keys and hundreds of marks before them (measured: 2 ms a scan
 * after 400 turns of one lock). So once such a range was read to its end, its keys are kept here, and kept exact by
 * every creation and deletion. Derived from the state and nothing else: no row, no digest, empty after a start.
 */
import { assert } from "../invariant.ts";
import { compareBytes, equalBytes } from "./bytes.ts";
import type { KeySpan } from "./live-scan.ts";

/** Ranges with more keys are not kept: there, stepping over marks is not what a scan takes its time with. */
export const SMALL_RANGE_KEYS_MAX = 64;
const RANGES_MAX = 4_096;
const KEYS_MAX = 65_536;

/** All live keys from `from` up to, but not with, `to`. */
interface SmallRange {
  readonly namespaceId: number;
  readonly from: Uint8Array;
  to: Uint8Array;
  /** Ascending; copies of its own. */
  readonly keys: Uint8Array[];
  usedAt: number;
}

/** A span with an end. */
export type BoundedSpan = KeySpan & { readonly to: Uint8Array };

/** The live keys of a span as the state has them now; undefined when there are more than {@link SMALL_RANGE_KEYS_MAX}. */
export type ReadLive = (span: BoundedSpan) => readonly Uint8Array[] | undefined;

export interface SmallRangesBounds {
  readonly rangesMax?: number;
  readonly keysMax?: number;
}

export class SmallRanges {
  /** Disjoint, ascending by (namespace, from). */
  private ranges: SmallRange[] = [];
  private keys = 0;
  private uses = 0;
  private readonly rangesMax: number;
  private readonly keysMax: number;

  constructor(bounds: SmallRangesBounds = {}) {
    this.rangesMax = bounds.rangesMax ?? RANGES_MAX;
    this.keysMax = bounds.keysMax ?? KEYS_MAX;
  }

  /** How many ranges are kept. */
  get size(): number {
    return this.ranges.length;
  }

  /**
   * The live keys of the span in ascending order; undefined when they are not known. A span whose beginning is known
   * is read on from there, so that whoever asks for "everything before my key" steps over no mark either.
   */
  find(namespaceId: number, span: BoundedSpan, read: ReadLive): readonly Uint8Array[] | undefined {
    const known = this.at(namespaceId, span.from);
    if (known === undefined) return undefined;
    known.usedAt = ++this.uses;
    if (compareBytes(span.to, known.to) > 0 && !this.extend(known, span.to, read)) return undefined;
    const { keys } = known;
    return keys.slice(rank(keys, span.from), rank(keys, span.to));
  }

  /** These are all live keys of the span, ascending. They are copied. */
  learn(namespaceId: number, { from, to }: BoundedSpan, keys: readonly Uint8Array[]): void {
    if (keys.length > SMALL_RANGE_KEYS_MAX) return;
    this.forgetBetween(namespaceId, from, to);
    while (this.isFull(keys.length)) this.evict();
    const range = {
      namespaceId,
      from: from.slice(),
      to: to.slice(),
      keys: keys.map((key) => key.slice()),
      usedAt: ++this.uses,
    };
    this.ranges.splice(this.firstAfter(namespaceId, from), 0, range);
    this.keys += keys.length;
  }

  /** The key became live. */
  created(namespaceId: number, key: Uint8Array): void {
    const range = this.at(namespaceId, key);
    if (range === undefined) return;
    if (range.keys.length >= SMALL_RANGE_KEYS_MAX) {
      this.drop(this.ranges.indexOf(range), 1);
      return;
    }
    const at = rank(range.keys, key);
    assert(!sits(range.keys, at, key), "a key is created when it was not there");
    range.keys.splice(at, 0, key.slice());
    this.keys += 1;
  }

  /** The key is live no more. */
  deleted(namespaceId: number, key: Uint8Array): void {
    const range = this.at(namespaceId, key);
    if (range === undefined) return;
    const at = rank(range.keys, key);
    assert(sits(range.keys, at, key), "a key that is deleted was there");
    range.keys.splice(at, 1);
    this.keys -= 1;
  }

  /** Another state is read from now on. */
  clear(): void {
    this.ranges = [];
    this.keys = 0;
  }

  private isFull(more: number): boolean {
    const { ranges, rangesMax, keysMax } = this;
    return ranges.length >= rangesMax || (ranges.length > 0 && this.keys + more > keysMax);
  }

  private extend(range: SmallRange, to: Uint8Array, read: ReadLive): boolean {
    const further = read({ from: range.to, to });
    if (further === undefined || range.keys.length + further.length > SMALL_RANGE_KEYS_MAX) return false;
    // What is known of the same keys is in `further`.
    this.forgetBetween(range.namespaceId, range.to, to);
    range.to = to.slice();
    for (const key of further) range.keys.push(key.slice());
    this.keys += further.length;
    return true;
  }

  /** The range that the key lies in. */
  private at(namespaceId: number, key: Uint8Array): SmallRange | undefined {
    if (this.ranges.length === 0) return undefined;
    const range = this.ranges[this.firstAfter(namespaceId, key) - 1];
    if (range?.namespaceId !== namespaceId || compareBytes(key, range.to) >= 0) return undefined;
    return range;
  }

  /** Position of the first range that begins after the key. */
  private firstAfter(namespaceId: number, key: Uint8Array): number {
    const { ranges } = this;
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const range = ranges[middle] as SmallRange;
      if ((range.namespaceId - namespaceId || compareBytes(range.from, key)) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Drops every range with a key in [from, to). */
  private forgetBetween(namespaceId: number, from: Uint8Array, to: Uint8Array): void {
    let first = this.firstAfter(namespaceId, from);
    if (this.at(namespaceId, from) !== undefined) first -= 1;
    let end = first;
    for (; end < this.ranges.length; end += 1) {
      const range = this.ranges[end] as SmallRange;
      if (range.namespaceId !== namespaceId || compareBytes(range.from, to) >= 0) break;
    }
    this.drop(first, end - first);
  }

  private drop(at: number, count: number): void {
    for (const range of this.ranges.splice(at, count)) this.keys -= range.keys.length;
  }

  /** Drops the half that was not used for longest, so that this is rare. */
  private evict(): void {
    const uses = this.ranges.map(({ usedAt }) => usedAt).sort((a, b) => a - b);
    const median = uses[uses.length >>> 1] ?? 0;
    this.ranges = this.ranges.filter(({ usedAt }) => usedAt > median);
    this.keys = this.ranges.reduce((sum, { keys }) => sum + keys.length, 0);
  }
}

function sits(keys: readonly Uint8Array[], at: number, key: Uint8Array): boolean {
  const there = keys[at];
  return there !== undefined && equalBytes(there, key);
}

/** How many of the keys sort before `key`. */
function rank(keys: readonly Uint8Array[], key: Uint8Array): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareBytes(keys[middle] as Uint8Array, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
