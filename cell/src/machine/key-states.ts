/**
 * The newest state of every key: records from the cache, from the present batch's changes and from the store, seen
 * as one. Loading fills records; {@link KeyStates.pendingIn} lists what a scan of the store cannot see.
 */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { KeyValue, Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import { Arena, compareBytes, EMPTY } from "./bytes.ts";
import { HistoryReads } from "./history-reads.ts";
import { indexKeys, LIVE, TOMBSTONE } from "./keys.ts";
import { ReadAhead } from "./read-ahead.ts";
import type { RecordCache } from "./records.ts";
import { CACHED_VALUE_BYTES_MAX, type KeyRecord, type KeyStatus } from "./records.ts";
import type { HistoryRow, IndexRow } from "./rows.ts";
import { readIndexRow } from "./rows.ts";
import type { RowSink } from "./sink.ts";
import { SmallRanges } from "./small-ranges.ts";

const ANSWER_CHUNK_BYTES = 32 * 1024;
/** A history row of this size holds a value that is too large for the cache. */
const CACHED_ROW_BYTES_MAX = CACHED_VALUE_BYTES_MAX + 4096 + 128;

export class KeyStates {
  readonly cache: RecordCache;
  readonly history: HistoryReads;
  readonly smallRanges: SmallRanges = new SmallRanges();
  readonly readAhead: ReadAhead = new ReadAhead(this);
  /** Records changed by the present batch. */
  readonly dirty: KeyRecord[] = [];
  /** The same, by (namespace, key), as far as `sortedUpTo` of `dirty`; brought up to date when a range is read. */
  private readonly sorted: KeyRecord[] = [];
  private sortedUpTo = 0;
  private readonly sink: RowSink;
  private readonly neverDeleted: (namespaceId: number) => boolean;
  private readonly answers = new Arena(ANSWER_CHUNK_BYTES);

  /** @param neverDeleted whether no key of the namespace was ever deleted: then there is no tombstone to look for */
  constructor(cache: RecordCache, sink: RowSink, neverDeleted: (namespaceId: number) => boolean) {
    this.cache = cache;
    this.sink = sink;
    this.neverDeleted = neverDeleted;
    this.history = new HistoryReads(sink);
  }

  /** The loaded record of a key. */
  state(namespaceId: number, key: Uint8Array, reader: StoreReader): KeyRecord {
    const record = this.cache.obtain(namespaceId, key);
    if (record.status === "unknown") {
      this.readAhead.fetch(reader);
      // It may have been among those.
      if ((record.status as KeyStatus) === "unknown") this.load([record], reader);
    }
    return record;
  }

  /** Fills records of the status `unknown`: one look-up for the live rows, a second one for the tombstones of the rest. */
  load(records: readonly KeyRecord[], reader: StoreReader): void {
    const missing = this.loadSection(records, LIVE, reader);
    const perhapsDeleted: KeyRecord[] = [];
    for (const record of missing) {
      if (this.neverDeleted(record.namespaceId)) record.status = "absent";
      else perhapsDeleted.push(record);
    }
    if (perhapsDeleted.length === 0) return;
    for (const record of this.loadSection(perhapsDeleted, TOMBSTONE, reader)) record.status = "absent";
  }

  private loadSection(records: readonly KeyRecord[], section: number, reader: StoreReader): KeyRecord[] {
    const rows = reader.getMany("index", indexKeys(section, records));
    const missing: KeyRecord[] = [];
    for (const [i, record] of records.entries()) {
      const row = rows[i];
      if (row === undefined) missing.push(record);
      else fill(record, section, readIndexRow(row));
    }
    return missing;
  }

  /** Fetches small values of live records that lack theirs, in one look-up for each namespace. */
  loadValues(records: readonly KeyRecord[], reader: StoreReader): void {
    const byNamespace = new Map<number, KeyRecord[]>();
    for (const record of records) {
      if (record.status !== "live" || hasValue(record) || record.size > CACHED_ROW_BYTES_MAX) continue;
      const list = byNamespace.get(record.namespaceId);
      if (list === undefined) byNamespace.set(record.namespaceId, [record]);
      else list.push(record);
    }
    for (const [namespaceId, wanting] of byNamespace) {
      const places = wanting.map((record) => ({ revision: record.modRevision, sub: record.sub }));
      const rows = this.history.getMany(namespaceId, places, reader);
      for (const [i, record] of wanting.entries()) this.cache.keep(record, expectRow(rows[i], record).value);
    }
  }

  /** The value of a live record; valid until the record changes. */
  value(record: KeyRecord, reader: StoreReader): Uint8Array {
    if (record.pending !== undefined) return record.pending;
    if (record.valueLength >= 0) return record.roomValue;
    const place = { revision: record.modRevision, sub: record.sub };
    const row = expectRow(this.history.get(record.namespaceId, place, reader), record);
    this.cache.keep(record, row.value);
    return row.value;
  }

  /** A live record's state as an answer that stays as it is. */
  answer(record: KeyRecord, reader: StoreReader): KeyValue {
    return keyValue(record, this.answerValue(record, reader), record.key);
  }

  answerValue(record: KeyRecord, reader: StoreReader): Uint8Array {
    const value = this.value(record, reader);
    return value.buffer === record.roomChunk.buffer ? this.answers.copy(value) : value;
  }

  /** Another state is read from now on. */
  clear(): void {
    this.cache.clear();
    this.smallRanges.clear();
    this.readAhead.clear();
  }

  /** Notes that a record differs from the store. */
  touch(record: KeyRecord): void {
    if (record.dirty) return;
    record.dirty = true;
    this.dirty.push(record);
  }

  /** Changed records of [from, to) in ascending key order; `to` undefined: to the end of the namespace. */
  pendingIn(namespaceId: number, from: Uint8Array, to: Uint8Array | undefined): readonly KeyRecord[] {
    if (this.dirty.length === 0) return NONE;
    for (; this.sortedUpTo < this.dirty.length; this.sortedUpTo++) {
      const record = this.dirty[this.sortedUpTo] as KeyRecord;
      this.sorted.splice(this.rank(record.namespaceId, record.key), 0, record);
    }
    const begin = this.rank(namespaceId, from);
    const end = to === undefined ? this.rank(namespaceId + 1, EMPTY) : this.rank(namespaceId, to);
    return begin < end ? this.sorted.slice(begin, end) : NONE;
  }

  private rank(namespaceId: number, key: Uint8Array): number {
    let low = 0;
    let high = this.sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const record = this.sorted[middle] as KeyRecord;
      const order = record.namespaceId - namespaceId || compareBytes(record.key, key);
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * A larger value that nobody has read is not worth a copy at each write: the first read fetches and keeps it, and
   * from then on writes refresh it.
   */
  private keepWritten(record: KeyRecord, value: Uint8Array): void {
    if (record.roomLength > 0 || value.length <= WRITTEN_VALUE_BYTES_MAX) this.cache.keep(record, value);
    else record.valueLength = -1;
  }

  /** End of a batch: emits the index rows, keeps small values, and lets the cache shrink. */
  settle(): void {
    for (const record of this.dirty) {
      this.sink.index(record);
      if (record.pending !== undefined) {
        this.keepWritten(record, record.pending);
        record.pending = undefined;
      }
      record.dirty = false;
    }
    this.dirty.length = 0;
    this.sorted.length = 0;
    this.sortedUpTo = 0;
    this.cache.trim();
  }
}

const NONE: readonly KeyRecord[] = [];
/** A written value up to this size is kept at once: owners of locks, members of groups. */
const WRITTEN_VALUE_BYTES_MAX = 64;

function hasValue(record: KeyRecord): boolean {
  return record.pending !== undefined || record.valueLength >= 0;
}

function fill(record: KeyRecord, section: number, row: IndexRow): void {
  const live = section === LIVE;
  record.status = live ? "live" : "absent";
  record.modRevision = row.modRevision;
  record.sub = row.sub;
  record.size = row.size;
  record.createRevision = live ? row.createRevision : 0;
  record.version = live ? row.version : 0;
  record.leaseId = live ? row.leaseId : NO_LEASE;
  record.liveRow = live;
  record.tombstoneRow = !live;
}

function expectRow(row: HistoryRow | undefined, record: KeyRecord): HistoryRow {
  assert(row !== undefined && !row.deletion, "index names a put in history", {
    revision: record.modRevision,
    sub: record.sub,
  });
  return row;
}

/** What the newest state and the rows of history have in common. */
export interface KeyMetadata {
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly leaseId: KeyValue["leaseId"];
}

export function keyValue(from: KeyMetadata, value: Uint8Array, key: Uint8Array): KeyValue {
  return {
    key,
    value,
    createRevision: from.createRevision as Revision,
    modRevision: from.modRevision as Revision,
    version: from.version,
    leaseId: from.leaseId,
  };
}

/** A row of history as the state that it made. */
export function rowKeyValue(row: HistoryRow, value: Uint8Array): KeyValue {
  return {
    key: row.key,
    value,
    createRevision: row.createRevision as Revision,
    modRevision: row.revision as Revision,
    version: row.version,
    leaseId: row.leaseId,
  };
}
