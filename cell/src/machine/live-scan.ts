/**
 * Walks keys in order over the store's `index` and the present batch's changes as one. A changed record replaces
 * what the store still says about its key.
 */
import type { KeyRange } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { Row, StoreReader } from "../store/types.ts";
import { compareBytes, EMPTY, equalBytes, keyAfter } from "./bytes.ts";
import type { KeyStates } from "./key-states.ts";
import { INDEX_PREFIX_BYTES, indexKey, LIVE, TOMBSTONE } from "./keys.ts";
import type { KeyRecord } from "./records.ts";
import type { IndexRow } from "./rows.ts";
import { readIndexRow } from "./rows.ts";
import { SMALL_RANGE_KEYS_MAX } from "./small-ranges.ts";
import type { BoundedSpan } from "./small-ranges.ts";

const PAGE_ROWS_MAX = 2048;
const PAGE_ROWS_FIRST = 64;

/** A half-open range of keys; `to` undefined: to the end. */
export interface KeySpan {
  readonly from: Uint8Array;
  readonly to: Uint8Array | undefined;
}

/** undefined: the range is empty whatever is stored. */
export function spanOf(range: KeyRange): KeySpan | undefined {
  const { key, rangeEnd } = range;
  if (rangeEnd === undefined) return { from: key, to: keyAfter(key) };
  if (rangeEnd.length === 0) return { from: key, to: undefined };
  return compareBytes(key, rangeEnd) < 0 ? { from: key, to: rangeEnd } : undefined;
}

/** One key met by a scan: a cached or changed record, or a row of the store. Deleted keys have `live` false. */
export interface Met {
  readonly key: Uint8Array;
  readonly live: boolean;
  readonly record: KeyRecord | undefined;
  readonly row: IndexRow | undefined;
}

export interface ScanRequest {
  readonly namespaceId: number;
  readonly span: KeySpan;
  readonly reverse: boolean;
  /** Also deleted keys whose tombstones are kept: for reads in the past. */
  readonly deleted: boolean;
}

/** One after the other, in key order. */
export class KeyScan {
  private readonly sources: KeySource[];
  private readonly changed: readonly KeyRecord[];
  private readonly keys: KeyStates;
  private readonly request: ScanRequest;
  private nextChanged: number;
  /** When set, the callers need no metadata: records are not looked up and rows not decoded. */
  countingOnly = false;

  constructor(keys: KeyStates, request: ScanRequest, reader: StoreReader) {
    this.keys = keys;
    this.request = request;
    const { namespaceId, span, deleted } = request;
    const known = deleted ? undefined : knownKeys(keys, request, reader);
    if (known !== undefined) {
      // What the batch changed is in it already.
      this.changed = [];
      this.sources = [new ListedSource(known, request, reader)];
    } else {
      this.changed = keys.pendingIn(namespaceId, span.from, span.to);
      const live = new IndexSource(request, LIVE, reader);
      this.sources = [live];
      if (deleted) this.sources.push(new IndexSource(request, TOMBSTONE, reader));
      else this.learn(live);
    }
    this.nextChanged = request.reverse ? this.changed.length - 1 : 0;
  }

  /** undefined: the end. Without `deleted` only live keys come. */
  next(): Met | undefined {
    for (;;) {
      const met = this.step();
      if (met === undefined || met.live || this.request.deleted) return met;
    }
  }

  /** How many live keys follow, counting no further than `max`. */
  count(max: number): number {
    this.countingOnly = true;
    for (const source of this.sources) source.keysOnly = true;
    let count = 0;
    while (count < max && this.next() !== undefined) count += 1;
    return count;
  }

  /** Keeps the keys of a range that one page told whole. */
  private learn(live: IndexSource): void {
    const { namespaceId, span, reverse } = this.request;
    const { whole } = live;
    if (whole === undefined || span.to === undefined) return;
    const keys = merged(reverse ? whole.toReversed() : whole, this.changed);
    this.keys.smallRanges.learn(namespaceId, { from: span.from, to: span.to }, keys);
  }

  private step(): Met | undefined {
    const stored = this.closest();
    const changed = this.changed[this.nextChanged];
    if (changed === undefined) return stored === undefined ? undefined : this.take(stored);
    const order = stored === undefined ? -1 : this.order(changed.key, stored.key as Uint8Array);
    if (order > 0 && stored !== undefined) return this.take(stored);
    if (order === 0) {
      for (const source of this.sources) {
        if (source.key !== undefined && equalBytes(source.key, changed.key)) source.advance();
      }
    }
    this.nextChanged += this.request.reverse ? -1 : 1;
    return { key: changed.key, live: changed.status === "live", record: changed, row: undefined };
  }

  private closest(): KeySource | undefined {
    let best: KeySource | undefined;
    for (const source of this.sources) {
      if (source.key === undefined) continue;
      if (best === undefined || this.order(source.key, best.key ?? EMPTY) < 0) best = source;
    }
    return best;
  }

  private order(a: Uint8Array, b: Uint8Array): number {
    return this.request.reverse ? compareBytes(b, a) : compareBytes(a, b);
  }

  private take(source: KeySource): Met {
    const key = source.key as Uint8Array;
    const live = source.section === LIVE;
    let record: KeyRecord | undefined;
    let row: IndexRow | undefined;
    if (!this.countingOnly) {
      const cached = this.keys.cache.peek(this.request.namespaceId, key);
      if (cached !== undefined && cached.status !== "unknown") record = cached;
      else row = readIndexRow(source.value);
    }
    source.advance();
    return { key, live, record, row };
  }
}

/** Live keys with the changes of the present batch, ascending; both lists are. */
function merged(stored: readonly Uint8Array[], changed: readonly KeyRecord[]): Uint8Array[] {
  const keys: Uint8Array[] = [];
  let at = 0;
  for (const record of changed) {
    const { key } = record;
    for (; at < stored.length && compareBytes(stored[at] as Uint8Array, key) < 0; at += 1) {
      keys.push(stored[at] as Uint8Array);
    }
    if (at < stored.length && equalBytes(stored[at] as Uint8Array, key)) at += 1;
    if (record.status === "live") keys.push(key);
  }
  for (; at < stored.length; at += 1) keys.push(stored[at] as Uint8Array);
  return keys;
}

/** The live keys of a small range that is known already, or whose beginning is. */
function knownKeys(
  keys: KeyStates,
  { namespaceId, span }: ScanRequest,
  reader: StoreReader,
): readonly Uint8Array[] | undefined {
  const { from, to } = span;
  if (to === undefined) return undefined;
  return keys.smallRanges.find(namespaceId, { from, to }, (rest: BoundedSpan) => {
    const rows = reader.scan("index", {
      from: indexKey(namespaceId, LIVE, rest.from),
      to: indexKey(namespaceId, LIVE, rest.to),
      limit: SMALL_RANGE_KEYS_MAX + 1,
      keysOnly: true,
    });
    if (rows.length > SMALL_RANGE_KEYS_MAX) return undefined;
    const stored = rows.map(({ key }) => key.subarray(INDEX_PREFIX_BYTES));
    return merged(stored, keys.pendingIn(namespaceId, rest.from, rest.to));
  });
}

/** Where a scan takes its keys from. */
interface KeySource {
  readonly section: number;
  keysOnly: boolean;
  /** undefined: the end. */
  readonly key: Uint8Array | undefined;
  /** The row of `index` of the key. */
  readonly value: Uint8Array;
  advance(): void;
}

/** Keys that are known, in the order of the scan. */
class ListedSource implements KeySource {
  readonly section = LIVE;
  keysOnly = false;
  private readonly keys: readonly Uint8Array[];
  private readonly request: ScanRequest;
  private readonly reader: StoreReader;
  private at = -1;

  constructor(ascending: readonly Uint8Array[], request: ScanRequest, reader: StoreReader) {
    this.keys = request.reverse ? ascending.toReversed() : ascending;
    this.request = request;
    this.reader = reader;
    this.advance();
  }

  get key(): Uint8Array | undefined {
    return this.keys[this.at];
  }

  /** Only of a key that the cache lost: then nothing of it waits to be written. */
  get value(): Uint8Array {
    const key = this.keys[this.at] as Uint8Array;
    const row = this.reader.get("index", indexKey(this.request.namespaceId, LIVE, key));
    assert(row !== undefined, "a key of a small range is live");
    return row;
  }

  advance(): void {
    this.at += 1;
  }
}

/** The rows of one section of `index`, page by page. */
class IndexSource implements KeySource {
  readonly section: number;
  /** Leaves values empty from the next page on. */
  keysOnly = false;
  key: Uint8Array | undefined;
  value: Uint8Array = EMPTY;
  private readonly request: ScanRequest;
  private readonly reader: StoreReader;
  private rows: readonly Row[] = [];
  private at = 0;
  private from: Uint8Array;
  private to: Uint8Array;
  private pageRows = PAGE_ROWS_FIRST;
  private exhausted = false;

  constructor(request: ScanRequest, section: number, reader: StoreReader) {
    const { namespaceId, span } = request;
    this.section = section;
    this.request = request;
    this.reader = reader;
    this.from = indexKey(namespaceId, section, span.from);
    this.to =
      span.to === undefined
        ? indexKey(namespaceId, section + 1, EMPTY)
        : indexKey(namespaceId, section, span.to);
    this.advance();
  }

  /** All its keys in the order of the scan, if the first page told them; only before the first step. */
  get whole(): readonly Uint8Array[] | undefined {
    return this.exhausted ? this.rows.map(({ key }) => key.subarray(INDEX_PREFIX_BYTES)) : undefined;
  }

  advance(): void {
    if (this.at >= this.rows.length) this.page();
    const row = this.rows[this.at];
    this.at += 1;
    this.key = row?.key.subarray(INDEX_PREFIX_BYTES);
    this.value = row?.value ?? EMPTY;
  }

  private page(): void {
    this.rows = [];
    this.at = 0;
    if (this.exhausted) return;
    this.rows = this.reader.scan("index", {
      from: this.from,
      to: this.to,
      reverse: this.request.reverse,
      limit: this.pageRows,
      keysOnly: this.keysOnly,
    });
    const last = this.rows.at(-1);
    if (last === undefined || this.rows.length < this.pageRows) this.exhausted = true;
    else if (this.request.reverse) this.to = last.key;
    else this.from = keyAfter(last.key);
    this.pageRows = Math.min(PAGE_ROWS_MAX, this.pageRows * 4);
  }
}
