/**
 * Collects the rows of an apply. Row bytes lie one after another in chunks, so that the digest takes one checksum
 * call for an entry, and its value does not depend on where chunks end or how entries were batched.
 */
import type { LeaseId } from "@lockstep/gateway/coordinator";
import type { Keyspace } from "../store/types.ts";
import { copyInto, EMPTY } from "./bytes.ts";
import { putUint32, putUint64, putVarint, VARINT_BYTES_MAX } from "./codec/primitives.ts";
import {
  HISTORY_KEY_BYTES,
  INDEX_PREFIX_BYTES,
  LEASE_KEY_BYTES,
  LIVE,
  TOMBSTONE,
  writeAttachedKey,
  writeIndexKey,
} from "./keys.ts";
import type { KeyRecord } from "./records.ts";
import type { HistoryChange } from "./rows.ts";
import { historyValueBytesMax, INDEX_VALUE_BYTES_MAX, writeHistoryValue, writeIndexRow } from "./rows.ts";
import type { RowMutation } from "./types.ts";

/** CRC-32 of `data`, continuing from `seed`; unsigned. The host passes Node's `zlib.crc32`. */
export type Crc32 = (data: Uint8Array, seed: number) => number;

const CHUNK_BYTES = 64 * 1024;

export class RowSink {
  mutations: RowMutation[] = [];
  /** Rows of history that the store does not hold yet, in ascending (revision, sub). */
  pendingHistory: RowMutation[] = [];
  private chunk: Uint8Array = EMPTY;
  private used = 0;
  /** Bytes of the chunk from here on are not in the digest yet. */
  private digestFrom = 0;
  private hash = 0;
  private readonly crc32: Crc32;

  constructor(crc32: Crc32) {
    this.crc32 = crc32;
  }

  /** Starts an entry on the digest so far. */
  beginEntry(hash: number): void {
    this.hash = hash;
    this.digestFrom = this.used;
  }

  /** @returns the digest over everything since {@link RowSink.beginEntry}. */
  endEntry(): number {
    this.absorb();
    return this.hash;
  }

  /** Takes the collected mutations out. */
  take(): readonly RowMutation[] {
    const taken = this.mutations;
    this.mutations = [];
    this.pendingHistory = [];
    return taken;
  }

  /** Numbers that are not rows but decide what a client sees: they only go into the digest. */
  note(first: number, second: number): void {
    this.reserve(2 * VARINT_BYTES_MAX);
    this.used = putVarint(this.chunk, putVarint(this.chunk, this.used, first), second);
  }

  /** @returns bytes of the row. */
  history(namespaceId: number, revision: number, sub: number, change: HistoryChange): number {
    this.reserve(HISTORY_KEY_BYTES + historyValueBytesMax(change));
    const { chunk, used } = this;
    putUint32(chunk, used, namespaceId);
    putUint64(chunk, used + 4, revision);
    putUint32(chunk, used + 12, sub);
    const valueAt = used + HISTORY_KEY_BYTES;
    const end = writeHistoryValue(chunk, valueAt, revision, change);
    this.pendingHistory.push(this.push("history", valueAt, end));
    return end - used;
  }

  /** Brings the store's rows of a key in line with its record. */
  index(record: KeyRecord): void {
    const live = record.status === "live";
    const tombstone = !live && record.modRevision > 0;
    const isNew = live ? !record.liveRow : !record.tombstoneRow;
    if (record.liveRow && !live) this.indexDeletion(record, LIVE);
    if (record.tombstoneRow && live) this.indexDeletion(record, TOMBSTONE);
    record.liveRow = live;
    record.tombstoneRow = tombstone;
    if (!live && !tombstone) return;
    this.reserve(INDEX_PREFIX_BYTES + record.keyLength + INDEX_VALUE_BYTES_MAX);
    const { chunk, used } = this;
    const { namespaceId, key } = record;
    const valueAt = writeIndexKey(chunk, used, { namespaceId, section: live ? LIVE : TOMBSTONE, key });
    this.push("index", valueAt, writeIndexRow(chunk, valueAt, record), isNew);
  }

  private indexDeletion(record: KeyRecord, section: number): void {
    this.reserve(INDEX_PREFIX_BYTES + record.keyLength);
    const { namespaceId, key } = record;
    this.push("index", writeIndexKey(this.chunk, this.used, { namespaceId, section, key }), -1);
  }

  attach(namespaceId: number, leaseId: LeaseId, key: Uint8Array): void {
    const row = this.attachedKey(namespaceId, leaseId, key);
    this.digestBytes(EMPTY);
    this.mutations.push({ keyspace: "lease-keys", key: row, value: EMPTY, isNew: true });
  }

  detach(namespaceId: number, leaseId: LeaseId, key: Uint8Array): void {
    const row = this.attachedKey(namespaceId, leaseId, key);
    this.mutations.push({ keyspace: "lease-keys", key: row, value: undefined, isNew: false });
  }

  /** Made where the digest takes it from, with its length before it as {@link RowSink.digestBytes} has it. */
  private attachedKey(namespaceId: number, leaseId: LeaseId, key: Uint8Array): Uint8Array {
    const length = LEASE_KEY_BYTES + key.length;
    this.reserve(length + VARINT_BYTES_MAX);
    const at = putVarint(this.chunk, this.used, length);
    this.used = writeAttachedKey(this.chunk, at, { namespaceId, leaseId, key });
    return new Uint8Array(this.chunk.buffer, at, length);
  }

  /** @param isNew there is no row of this key */
  put(keyspace: Keyspace, key: Uint8Array, value: Uint8Array, isNew = false): void {
    this.digestBytes(key);
    this.digestBytes(value);
    this.mutations.push({ keyspace, key, value, isNew });
  }

  delete(keyspace: Keyspace, key: Uint8Array): void {
    this.digestBytes(key);
    this.mutations.push({ keyspace, key, value: undefined, isNew: false });
  }

  private digestBytes(bytes: Uint8Array): void {
    this.reserve(bytes.length + VARINT_BYTES_MAX);
    this.used = copyInto(this.chunk, putVarint(this.chunk, this.used, bytes.length), bytes);
  }

  /** The row from `used` to `end` whose value begins at `valueAt`; `end` -1: a deletion, the key ends at `valueAt`. */
  private push(keyspace: Keyspace, valueAt: number, end: number, isNew = false): RowMutation {
    const { buffer } = this.chunk;
    const mutation: RowMutation = {
      keyspace,
      key: new Uint8Array(buffer, this.used, valueAt - this.used),
      value: end < 0 ? undefined : new Uint8Array(buffer, valueAt, end - valueAt),
      isNew,
    };
    this.mutations.push(mutation);
    this.used = end < 0 ? valueAt : end;
    return mutation;
  }

  private reserve(bytes: number): void {
    if (this.used + bytes <= this.chunk.length) return;
    this.absorb();
    this.chunk = new Uint8Array(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
    this.used = 0;
    this.digestFrom = 0;
  }

  private absorb(): void {
    if (this.used === this.digestFrom) return;
    this.hash = this.crc32(this.chunk.subarray(this.digestFrom, this.used), this.hash);
    this.digestFrom = this.used;
  }
}
