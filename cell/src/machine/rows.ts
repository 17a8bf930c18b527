/** Values of the rows of `index` and `history` (FORMAT.md). */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { Cause, LeaseId } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import { copyInto } from "./bytes.ts";
import { ByteReader, DecodeError, getUint32, getUint64, putLeaseId, putVarint } from "./codec/primitives.ts";

/** What `index` says about a key. A tombstone has only revision, sub and size. */
export interface IndexRow {
  readonly modRevision: number;
  readonly sub: number;
  /** Bytes of the history row. */
  readonly size: number;
  readonly createRevision: number;
  readonly version: number;
  readonly leaseId: LeaseId;
}

const INDEX_LEASED = 1;
export const INDEX_VALUE_BYTES_MAX: number = 1 + 5 * 8 + 8;

export function writeIndexRow(buffer: Uint8Array, at: number, row: IndexRow): number {
  const leased = row.leaseId !== NO_LEASE;
  buffer[at] = leased ? INDEX_LEASED : 0;
  let end = putVarint(buffer, at + 1, row.modRevision);
  end = putVarint(buffer, end, row.sub);
  end = putVarint(buffer, end, row.size);
  end = putVarint(buffer, end, row.modRevision - row.createRevision);
  end = putVarint(buffer, end, row.version);
  if (!leased) return end;
  putLeaseId(buffer, end, row.leaseId);
  return end + 8;
}

export function readIndexRow(value: Uint8Array): IndexRow {
  const reader = new ByteReader(value);
  const flags = reader.flags(INDEX_LEASED);
  const modRevision = reader.varint();
  const sub = reader.varint();
  const size = reader.varint();
  const createRevision = modRevision - reader.varint();
  const version = reader.varint();
  return {
    modRevision,
    sub,
    size,
    createRevision,
    version,
    leaseId: flags === INDEX_LEASED ? reader.leaseId() : NO_LEASE,
  };
}

/** One change of one key. */
export interface HistoryChange {
  readonly deletion: boolean;
  readonly cause: Cause;
  /** The key's row before this one, 0: none that a read may still reach. */
  readonly previousRevision: number;
  readonly previousSub: number;
  /** That row is a deletion. */
  readonly previousDeleted: boolean;
  readonly createRevision: number;
  readonly version: number;
  readonly leaseId: LeaseId;
  /** Replicated time. */
  readonly timeMs: number;
  /** Namespace totals at this row: bytes of superseded rows (with what this row supersedes)... */
  readonly superseded: number;
  /** ...and bytes of the deletions before this row. What compaction frees is their difference between two points. */
  readonly tombstones: number;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

export interface HistoryRow extends HistoryChange {
  readonly revision: number;
  readonly sub: number;
  readonly size: number;
}

/** Positions are the causes in bytes: append only. */
export const CAUSES: readonly Cause[] = ["client", "lease-expired", "lease-revoked", "forced", "moved"];

const DELETION = 1;
const PREVIOUS_DELETED = 2;
const LEASED = 4;
const CAUSE_SHIFT = 4;
const HISTORY_VALUE_HEADER_MAX = 1 + 9 * 8 + 8;

export function historyValueBytesMax(change: HistoryChange): number {
  return HISTORY_VALUE_HEADER_MAX + change.key.length + change.value.length;
}

/** @returns the position after it. `revision` is in the row's key. */
export function writeHistoryValue(
  buffer: Uint8Array,
  at: number,
  revision: number,
  change: HistoryChange,
): number {
  const leased = change.leaseId !== NO_LEASE;
  buffer[at] =
    (change.deletion ? DELETION : 0) |
    (change.previousDeleted ? PREVIOUS_DELETED : 0) |
    (leased ? LEASED : 0) |
    (CAUSES.indexOf(change.cause) << CAUSE_SHIFT);
  let end = putVarint(buffer, at + 1, change.previousRevision);
  end = putVarint(buffer, end, change.previousSub);
  end = putVarint(buffer, end, revision - change.createRevision);
  end = putVarint(buffer, end, change.version);
  end = putVarint(buffer, end, change.timeMs);
  end = putVarint(buffer, end, change.superseded);
  end = putVarint(buffer, end, change.tombstones);
  if (leased) {
    putLeaseId(buffer, end, change.leaseId);
    end += 8;
  }
  end = putVarint(buffer, end, change.key.length);
  end = copyInto(buffer, end, change.key);
  return copyInto(buffer, end, change.value);
}

/** Key and value are views of the row. */
export function readHistoryRow(rowKey: Uint8Array, rowValue: Uint8Array): HistoryRow {
  assert(rowKey.length === 16, "history key has 16 bytes", { length: rowKey.length });
  const revision = getUint64(rowKey, 4);
  const reader = new ByteReader(rowValue);
  const flags = reader.byte();
  const cause = CAUSES[flags >>> CAUSE_SHIFT];
  if (cause === undefined || (flags & 8) !== 0) throw new DecodeError("unknown history row");
  return {
    revision,
    sub: getUint32(rowKey, 12),
    size: rowKey.length + rowValue.length,
    deletion: (flags & DELETION) !== 0,
    cause,
    previousRevision: reader.varint(),
    previousSub: reader.varint(),
    previousDeleted: (flags & PREVIOUS_DELETED) !== 0,
    createRevision: revision - reader.varint(),
    version: reader.varint(),
    timeMs: reader.varint(),
    superseded: reader.varint(),
    tombstones: reader.varint(),
    leaseId: (flags & LEASED) !== 0 ? reader.leaseId() : NO_LEASE,
    key: reader.bytes(),
    value: reader.rest(),
  };
}
