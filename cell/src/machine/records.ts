/**
 * What the machine knows about hot keys: a bounded cache in two generations, which is at the same time the overlay of
 * changes that the store does not hold yet. Apply writes it, so it is exact.
 */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { LeaseId } from "@lockstep/gateway/coordinator";
import { Arena, EMPTY, equalBytes, hashKey } from "./bytes.ts";

export type KeyStatus = "unknown" | "absent" | "live";

/** Larger values are not kept beyond the batch that wrote them. */
export const CACHED_VALUE_BYTES_MAX = 1024;
/** Rough heap cost of a record without its key and value: object, two views, table slots. */
const RECORD_BYTES = 320;
const ARENA_CHUNK_BYTES = 64 * 1024;

export class KeyRecord {
  readonly namespaceId: number;
  readonly hash: number;
  key: Uint8Array;
  status: KeyStatus = "unknown";
  /** Of an absent key: its tombstone's revision, 0 without one. */
  modRevision = 0;
  sub = 0;
  createRevision = 0;
  version = 0;
  leaseId: LeaseId = NO_LEASE;
  /** Bytes of the newest history row. */
  size = 0;
  /** The value's own room in the cache; overwritten in place, so it is copied for every answer. */
  room: Uint8Array = EMPTY;
  /** -1: the value is not here. */
  valueLength = -1;
  /** The value written by the present batch: a view of the entry. */
  pending: Uint8Array | undefined = undefined;
  /** Changed by the present batch: the store's rows are older than this record. */
  dirty = false;
  /** What the store holds of this key in `index`. */
  liveRow = false;
  tombstoneRow = false;

  constructor(namespaceId: number, hash: number, key: Uint8Array) {
    this.namespaceId = namespaceId;
    this.hash = hash;
    this.key = key;
  }
}

/** Hash table of records by (namespace, key bytes): open addressing, no string per look-up. Nothing is removed. */
export class KeyTable {
  private slots: (KeyRecord | undefined)[];
  private mask: number;
  size = 0;

  constructor(slotsMin: number) {
    let slots = 64;
    while (slots < slotsMin) slots *= 2;
    this.slots = new Array<KeyRecord | undefined>(slots).fill(undefined);
    this.mask = slots - 1;
  }

  find(namespaceId: number, hash: number, key: Uint8Array): KeyRecord | undefined {
    const { slots, mask } = this;
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const record = slots[at];
      if (record === undefined) return undefined;
      if (record.hash === hash && record.namespaceId === namespaceId && equalBytes(record.key, key)) {
        return record;
      }
    }
  }

  /** The key must not be in the table. */
  add(record: KeyRecord): void {
    if (this.size * 2 >= this.slots.length) this.grow();
    this.place(record);
    this.size += 1;
  }

  private place(record: KeyRecord): void {
    const { slots, mask } = this;
    let at = record.hash & mask;
    while (slots[at] !== undefined) at = (at + 1) & mask;
    slots[at] = record;
  }

  private grow(): void {
    const old = this.slots;
    this.slots = new Array<KeyRecord | undefined>(old.length * 2).fill(undefined);
    this.mask = this.slots.length - 1;
    for (const record of old) if (record !== undefined) this.place(record);
  }
}

export class RecordCache {
  private young = new KeyTable(0);
  private old = new KeyTable(0);
  private arena = new Arena(ARENA_CHUNK_BYTES);
  private youngBytes = 0;
  private oldBytes = 0;
  private readonly generationBytesMax: number;

  constructor(bytesMax: number) {
    this.generationBytesMax = bytesMax / 2;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.youngBytes + this.oldBytes;
  }

  find(namespaceId: number, key: Uint8Array): KeyRecord | undefined {
    const hash = hashKey(namespaceId, key);
    const record = this.young.find(namespaceId, hash, key);
    if (record !== undefined) return record;
    const older = this.old.find(namespaceId, hash, key);
    if (older !== undefined) this.promote(older);
    return older;
  }

  /** Without moving it into the young generation: for scans. */
  peek(namespaceId: number, key: Uint8Array): KeyRecord | undefined {
    const hash = hashKey(namespaceId, key);
    return this.young.find(namespaceId, hash, key) ?? this.old.find(namespaceId, hash, key);
  }

  /** The record of the key; a new one has the status `unknown` and must be loaded. */
  obtain(namespaceId: number, key: Uint8Array): KeyRecord {
    const hash = hashKey(namespaceId, key);
    const young = this.young.find(namespaceId, hash, key);
    if (young !== undefined) return young;
    const older = this.old.find(namespaceId, hash, key);
    if (older !== undefined) {
      this.promote(older);
      return older;
    }
    const record = new KeyRecord(namespaceId, hash, this.arena.copy(key));
    this.young.add(record);
    this.youngBytes += RECORD_BYTES + key.length;
    return record;
  }

  /** Keeps `value` with the record if it is small. */
  keep(record: KeyRecord, value: Uint8Array): void {
    const length = value.length;
    if (length > CACHED_VALUE_BYTES_MAX) {
      this.youngBytes -= record.room.length;
      record.room = EMPTY;
      record.valueLength = -1;
      return;
    }
    if (length > record.room.length || record.room.length > 2 * length + 64) {
      this.youngBytes += ((length + 15) & ~15) - record.room.length;
      record.room = this.arena.allocate((length + 15) & ~15);
    }
    const room = record.room;
    if (length <= 32) for (let i = 0; i < length; i++) room[i] = value[i] as number;
    else room.set(value);
    record.valueLength = length;
  }

  /** Frees what is over the bound. Only when no record is dirty: a record in use by a batch must stay. */
  trim(): void {
    if (this.youngBytes <= this.generationBytesMax) return;
    this.old = this.young;
    this.oldBytes = this.youngBytes;
    this.young = new KeyTable(this.old.size);
    this.arena = new Arena(ARENA_CHUNK_BYTES);
    this.youngBytes = 0;
  }

  clear(): void {
    this.young = new KeyTable(0);
    this.old = new KeyTable(0);
    this.arena = new Arena(ARENA_CHUNK_BYTES);
    this.youngBytes = 0;
    this.oldBytes = 0;
  }

  /** Its bytes move into the young generation's chunks, so that the old ones can go as a whole. */
  private promote(record: KeyRecord): void {
    record.key = this.arena.copy(record.key);
    if (record.room.length > 0) record.room = this.arena.copy(record.room);
    this.young.add(record);
    this.youngBytes += RECORD_BYTES + record.key.length + record.room.length;
  }
}
