/**
 * What the machine knows about hot keys: a bounded cache in two generations, which is at the same time the overlay of
 * changes that the store does not hold yet. Apply writes it, so it is exact.
 */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { LeaseId } from "@lockstep/gateway/coordinator";
import { copyInto, EMPTY, equalAt, hashKey } from "./bytes.ts";

export type KeyStatus = "unknown" | "absent" | "live";

/** Larger values are not kept beyond the batch that wrote them. */
export const CACHED_VALUE_BYTES_MAX = 1024;
/** Rough heap cost of a record without its key and value: object and table slots. */
const RECORD_BYTES = 230;
const ARENA_CHUNK_BYTES = 64 * 1024;

/**
 * A key's newest state. Key and value lie in chunks shared by many records: a view of its own for each would weigh more
 * than what it shows.
 */
export class KeyRecord {
  readonly namespaceId: number;
  /** Signed, so that it stays a small integer, which needs no box. */
  readonly hash: number;
  status: KeyStatus = "unknown";
  /** Of an absent key: its tombstone's revision, 0 without one. */
  modRevision = 0;
  sub = 0;
  createRevision = 0;
  version = 0;
  leaseId: LeaseId = NO_LEASE;
  /** Bytes of the newest history row. */
  size = 0;
  keyChunk: Uint8Array = EMPTY;
  keyAt = 0;
  readonly keyLength: number;
  /** The value's own room in the cache; overwritten in place, so it is copied for every answer. */
  roomChunk: Uint8Array = EMPTY;
  roomAt = 0;
  /** 0: no room. */
  roomLength = 0;
  /** -1: the value is not here. */
  valueLength = -1;
  /** The value written by the present batch: a view of the entry. */
  pending: Uint8Array | undefined = undefined;
  /** Changed by the present batch: the store's rows are older than this record. */
  dirty = false;
  /** What the store holds of this key in `index`. */
  liveRow = false;
  tombstoneRow = false;

  constructor(namespaceId: number, hash: number, keyLength: number) {
    this.namespaceId = namespaceId;
    this.hash = hash;
    this.keyLength = keyLength;
  }

  /** A new view each time. */
  get key(): Uint8Array {
    return new Uint8Array(this.keyChunk.buffer, this.keyAt, this.keyLength);
  }

  isOf(namespaceId: number, key: Uint8Array): boolean {
    return (
      this.namespaceId === namespaceId &&
      this.keyLength === key.length &&
      equalAt(this.keyChunk, this.keyAt, key)
    );
  }

  /** A view of the room: valid until the record changes. Only when `valueLength` >= 0. */
  get roomValue(): Uint8Array {
    return new Uint8Array(this.roomChunk.buffer, this.roomAt, this.valueLength);
  }
}

/** Cuts pieces from larger chunks. A piece is `length` bytes of `chunk` at the offset that `cut` returned. */
class ChunkArena {
  chunk: Uint8Array = EMPTY;
  private used = 0;

  cut(length: number): number {
    if (this.used + length > this.chunk.length) {
      this.chunk = new Uint8Array(Math.max(ARENA_CHUNK_BYTES, length));
      this.used = 0;
    }
    const at = this.used;
    this.used += length;
    return at;
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
      if (record.hash === hash && record.isOf(namespaceId, key)) return record;
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
  private arena = new ChunkArena();
  private youngBytes = 0;
  private oldBytes = 0;
  /** Of the young generation, the one that was obtained last: a transaction names the same key several times. */
  private last: KeyRecord | undefined;
  private readonly generationBytesMax: number;

  constructor(bytesMax: number) {
    this.generationBytesMax = bytesMax / 2;
  }

  /** Bytes held, estimated. */
  get bytes(): number {
    return this.youngBytes + this.oldBytes;
  }

  find(namespaceId: number, key: Uint8Array): KeyRecord | undefined {
    const hash = hashKey(namespaceId, key) | 0;
    const record = this.young.find(namespaceId, hash, key);
    if (record !== undefined) return record;
    const older = this.old.find(namespaceId, hash, key);
    if (older !== undefined) this.promote(older);
    return older;
  }

  /** Without moving it into the young generation: for scans. */
  peek(namespaceId: number, key: Uint8Array): KeyRecord | undefined {
    const hash = hashKey(namespaceId, key) | 0;
    return this.young.find(namespaceId, hash, key) ?? this.old.find(namespaceId, hash, key);
  }

  /** The record of the key; a new one has the status `unknown` and must be loaded. */
  obtain(namespaceId: number, key: Uint8Array): KeyRecord {
    const { last } = this;
    if (last?.isOf(namespaceId, key) === true) return last;
    const record = this.lookUp(namespaceId, key);
    this.last = record;
    return record;
  }

  private lookUp(namespaceId: number, key: Uint8Array): KeyRecord {
    const hash = hashKey(namespaceId, key) | 0;
    const young = this.young.find(namespaceId, hash, key);
    if (young !== undefined) return young;
    const older = this.old.find(namespaceId, hash, key);
    if (older !== undefined) {
      this.promote(older);
      return older;
    }
    const record = new KeyRecord(namespaceId, hash, key.length);
    record.keyAt = this.arena.cut(key.length);
    record.keyChunk = this.arena.chunk;
    copyInto(record.keyChunk, record.keyAt, key);
    this.young.add(record);
    this.youngBytes += RECORD_BYTES + key.length;
    return record;
  }

  /** Keeps `value` with the record if it is small. */
  keep(record: KeyRecord, value: Uint8Array): void {
    const length = value.length;
    if (length > CACHED_VALUE_BYTES_MAX) {
      this.youngBytes -= record.roomLength;
      record.roomChunk = EMPTY;
      record.roomLength = 0;
      record.valueLength = -1;
      return;
    }
    if (length > record.roomLength || record.roomLength > 2 * length + 64) {
      const room = (length + 15) & ~15;
      this.youngBytes += room - record.roomLength;
      record.roomAt = this.arena.cut(room);
      record.roomChunk = this.arena.chunk;
      record.roomLength = room;
    }
    copyInto(record.roomChunk, record.roomAt, value);
    record.valueLength = length;
  }

  /** Frees what is over the bound. Only when no record is dirty: a record in use by a batch must stay. */
  trim(): void {
    if (this.youngBytes <= this.generationBytesMax) return;
    this.old = this.young;
    this.oldBytes = this.youngBytes;
    this.young = new KeyTable(this.old.size);
    this.arena = new ChunkArena();
    this.youngBytes = 0;
    this.last = undefined;
  }

  clear(): void {
    this.last = undefined;
    this.young = new KeyTable(0);
    this.old = new KeyTable(0);
    this.arena = new ChunkArena();
    this.youngBytes = 0;
    this.oldBytes = 0;
  }

  /** Its bytes move into the young generation's chunks, so that the old ones can go as a whole. */
  private promote(record: KeyRecord): void {
    const { key } = record;
    record.keyAt = this.arena.cut(key.length);
    record.keyChunk = this.arena.chunk;
    copyInto(record.keyChunk, record.keyAt, key);
    if (record.valueLength >= 0) {
      const value = record.roomValue;
      record.roomAt = this.arena.cut(record.roomLength);
      record.roomChunk = this.arena.chunk;
      copyInto(record.roomChunk, record.roomAt, value);
    } else {
      record.roomChunk = EMPTY;
      record.roomLength = 0;
    }
    this.young.add(record);
    this.youngBytes += RECORD_BYTES + record.keyLength + record.roomLength;
  }
}
