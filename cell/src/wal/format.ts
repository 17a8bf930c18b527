import { crc32 } from "node:zlib";
import { assert } from "../invariant.ts";
import type { Entry, EntryKind, HardState } from "../raft/types.ts";
import type { LogPosition, WalIdentity, WalWrite } from "./types.ts";

/** The bytes are described in FORMAT.md; this file holds the constants and the sizes. */
export const FORMAT_VERSION = 1;
/** The unit a disk writes whole or not at all; torn writes are recognised by it (W2). */
export const SECTOR_BYTES = 512;
/** Batches, records and payloads start at multiples of this. */
export const ALIGNMENT_BYTES = 8;

export const BATCH_MAGIC = 0xb7c35a1d;
export const TRAILER_MAGIC = 0x9de4a6f3;
export const BATCH_HEADER_BYTES = 32;
export const BATCH_TRAILER_BYTES = 8;
export const BATCH_OVERHEAD_BYTES: number = BATCH_HEADER_BYTES + BATCH_TRAILER_BYTES;
/** A longer body cannot have been written: the length is damaged (W4). */
export const BODY_BYTES_MAX = 0x4000_0000;

/** Offsets of the fields of a batch header. */
export const HEADER = {
  magic: 0,
  bodyBytes: 4,
  chain: 8,
  zeroSectors: 12,
  records: 16,
  version: 20,
  bodyCrc: 24,
  headerCrc: 28,
} as const;

export const RECORD_HEADER_BYTES = 8;
export const ENTRY_HEADER_BYTES = 24;
export const HARD_STATE_BYTES = 32;
export const SNAPSHOT_BYTES = 24;
export const RELEASE_BYTES = 24;

/** First byte of every record. Never 0: zeros are what was never written. */
export const RECORD = { head: 1, hardState: 2, snapshot: 3, release: 4, entry: 5 } as const;

const ENTRY_KINDS: readonly EntryKind[] = ["normal", "configuration"];

/** Second byte of an entry record. */
export function entryKindCode(kind: EntryKind): number {
  return kind === "normal" ? 0 : 1;
}

/** The inverse of {@link entryKindCode}; `undefined` for a byte nobody writes. */
export function entryKindOf(code: number): EntryKind | undefined {
  return ENTRY_KINDS[code];
}

/** What the head of a segment says besides who wrote it: the state of the log just before the segment. */
export interface SegmentHead {
  readonly identity: WalIdentity;
  readonly segment: number;
  /** The last entry (or snapshot) written before this segment. */
  readonly last: LogPosition;
  readonly logStart: LogPosition;
}

/** One decoded record. `offset` counts from the start of the segment; `bytes` includes header and padding. */
export type WalRecord =
  | { readonly kind: "head"; readonly offset: number; readonly bytes: number; readonly head: SegmentHead }
  | {
      readonly kind: "hard-state";
      readonly offset: number;
      readonly bytes: number;
      readonly hardState: HardState;
    }
  | { readonly kind: "snapshot"; readonly offset: number; readonly bytes: number; readonly at: LogPosition }
  | { readonly kind: "release"; readonly offset: number; readonly bytes: number; readonly at: LogPosition }
  | { readonly kind: "entry"; readonly offset: number; readonly bytes: number; readonly entry: Entry };

/** Rounds up to {@link ALIGNMENT_BYTES}. */
export function padded(bytes: number): number {
  return (bytes + 7) & ~7;
}

/** Bytes of all records of `write`. */
export function writeBytes(write: WalWrite): number {
  let bytes = write.hardState === undefined ? 0 : HARD_STATE_BYTES;
  if (write.snapshot !== undefined) bytes += SNAPSHOT_BYTES;
  for (const entry of write.entries) bytes += ENTRY_HEADER_BYTES + padded(entry.data.length);
  return bytes;
}

/** Bytes of the head record of a segment. */
export function headBytes(identity: WalIdentity): number {
  return padded(
    HEAD_FIXED_BYTES + Buffer.byteLength(identity.cellId) + Buffer.byteLength(identity.incarnation),
  );
}

/** Head record up to the two strings. */
export const HEAD_FIXED_BYTES = 64;

const SEGMENT_NAME = /^[0-9a-f]{16}\.wal$/;

export function segmentName(segment: number): string {
  assert(Number.isSafeInteger(segment) && segment > 0, "segment number is a positive integer", { segment });
  return `${segment.toString(16).padStart(16, "0")}.wal`;
}

/** The number of a segment file; `undefined` for any other file. */
export function segmentNumber(name: string): number | undefined {
  return SEGMENT_NAME.test(name) ? Number.parseInt(name.slice(0, 16), 16) : undefined;
}

/**
 * Seeds of the header checksums of one segment, so that a batch verifies only where it was written: the first batch by
 * the segment's number alone (the identity is read from it), all others also by identity and offset. Values that
 * clients store can therefore not pass for batches: nobody outside knows the incarnation.
 */
export interface SegmentSeeds {
  readonly first: number;
  readonly others: number;
}

export function segmentSeeds(segment: number, identity: WalIdentity): SegmentSeeds {
  const first = firstSeed(segment);
  const who = JSON.stringify([identity.cellId, identity.memberId, identity.incarnation]);
  return { first, others: crc32(who, first) };
}

export function firstSeed(segment: number): number {
  return crc32(segmentName(segment));
}

/** The seed of the batch at `offset`. */
export function seedAt(seeds: SegmentSeeds, offset: number): number {
  return offset === 0 ? seeds.first : (seeds.others ^ offset) >>> 0;
}

/** Integers up to 2^53 - 1 as two 32-bit halves, low half first: no BigInt on the hot path. */
export function putInteger(view: DataView, at: number, value: number): void {
  const high = Math.floor(value / 0x1_0000_0000);
  view.setUint32(at, value - high * 0x1_0000_0000, true);
  view.setUint32(at + 4, high, true);
}

export function getInteger(view: DataView, at: number): number {
  return view.getUint32(at + 4, true) * 0x1_0000_0000 + view.getUint32(at, true);
}

/**
 * How many 512-byte sectors (as the disk cuts them) of a region are nothing but zeros. A batch records the figure when it
 * is written: fewer non-zero sectors than that when read back means that some never reached the disk.
 *
 * @param buffers the region, in pieces
 * @param offset where in the segment the region begins
 */
export function countZeroSectors(buffers: readonly Uint8Array[], offset: number): number {
  let zeros = 0;
  let position = offset;
  // One sector may hold several pieces and one piece several sectors; `open` is true while the sector has only zeros.
  let open = false;
  for (const buffer of buffers) {
    let at = 0;
    while (at < buffer.length) {
      const room = SECTOR_BYTES - (position % SECTOR_BYTES);
      const end = Math.min(at + room, buffer.length);
      if (position === offset || room === SECTOR_BYTES) {
        if (open) zeros++;
        open = true;
      }
      if (open && !isZero(buffer, at, end)) open = false;
      position += end - at;
      at = end;
    }
  }
  return open ? zeros + 1 : zeros;
}

function isZero(buffer: Uint8Array, from: number, to: number): boolean {
  for (let at = from; at < to; at++) if (buffer[at] !== 0) return false;
  return true;
}

const ZEROS: Buffer = Buffer.alloc(64 * 1024);

/** Where the last non-zero byte of `bytes` at or after `from` ends; `from` when there is none. */
export function endOfData(bytes: Buffer, from: number): number {
  let end = bytes.length;
  while (end > from) {
    const start = Math.max(from, end - ZEROS.length);
    if (bytes.compare(ZEROS, 0, end - start, start, end) !== 0) break;
    end = start;
  }
  while (end > from && bytes[end - 1] === 0) end--;
  return end;
}
