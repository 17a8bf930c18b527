import { crc32 } from "node:zlib";
import { assert } from "../invariant.ts";
import type { Entry, HardState } from "../raft/types.ts";
import {
  BATCH_HEADER_BYTES,
  BATCH_MAGIC,
  BATCH_OVERHEAD_BYTES,
  BATCH_TRAILER_BYTES,
  BODY_BYTES_MAX,
  countZeroSectors,
  ENTRY_HEADER_BYTES,
  entryKindCode,
  FORMAT_VERSION,
  HARD_STATE_BYTES,
  HEAD_FIXED_BYTES,
  HEADER,
  headBytes,
  padded,
  putInteger,
  RECORD,
  RELEASE_BYTES,
  type SegmentHead,
  SNAPSHOT_BYTES,
  TRAILER_MAGIC,
} from "./format.ts";
import type { LogPosition, WalWrite } from "./types.ts";

/**
 * Data up to this size is copied into the scratch buffer: one more piece for writev and two more checksum calls cost
 * more than the copy.
 */
export const COPIED_BYTES_MAX = 4096;
/** A scratch buffer that had to grow beyond this is not kept. */
const SCRATCH_KEPT_BYTES_MAX = 1024 * 1024;
const SCRATCH_BYTES_MIN = 64 * 1024;

/** Where a batch goes: see FORMAT.md. */
export interface BatchPlace {
  readonly offset: number;
  readonly seed: number;
  /** Header checksum of the batch before; 0 for the first of a log. */
  readonly chain: number;
}

/** An encoded batch. The pieces are valid until the next {@link BatchEncoder.begin}. */
export interface EncodedBatch {
  readonly buffers: readonly Uint8Array[];
  readonly bytes: number;
  /** The chain for the batch after. */
  readonly chain: number;
}

/** What `write` takes of the scratch buffer. */
export function scratchBytes(write: WalWrite): number {
  let bytes = HARD_STATE_BYTES + SNAPSHOT_BYTES;
  for (const entry of write.entries) {
    bytes += ENTRY_HEADER_BYTES + 8 + (entry.data.length <= COPIED_BYTES_MAX ? entry.data.length : 0);
  }
  return bytes;
}

/**
 * Lays out one batch: all headers and small payloads in one reused buffer, large payloads by reference. One batch at a
 * time; `begin`, the records, `finish`.
 */
export class BatchEncoder {
  #scratch: Buffer = Buffer.alloc(SCRATCH_BYTES_MIN);
  #view: DataView = viewOf(this.#scratch);
  #at = 0;
  #pieceStart = 0;
  #referencedBytes = 0;
  #records = 0;
  #buffers: Uint8Array[] = [];

  /** @param scratch bytes of headers and copied payloads that will follow, at most */
  begin(scratch: number): void {
    const needed = scratch + BATCH_OVERHEAD_BYTES;
    const idle = this.#scratch.length > SCRATCH_KEPT_BYTES_MAX && needed <= SCRATCH_KEPT_BYTES_MAX;
    if (needed > this.#scratch.length || idle) {
      this.#scratch = Buffer.alloc(Math.max(SCRATCH_BYTES_MIN, padded(needed)));
      this.#view = viewOf(this.#scratch);
    }
    this.#at = BATCH_HEADER_BYTES;
    this.#pieceStart = 0;
    this.#referencedBytes = 0;
    this.#records = 0;
    this.#buffers = [];
  }

  head(head: SegmentHead): void {
    const { identity } = head;
    const bytes = headBytes(identity);
    const cellIdBytes = Buffer.byteLength(identity.cellId);
    const incarnationBytes = Buffer.byteLength(identity.incarnation);
    assert(cellIdBytes <= 0xffff && incarnationBytes <= 0xffff, "identity strings fit 16 bits");
    const at = this.#record(RECORD.head, 0, bytes);
    const view = this.#view;
    putInteger(view, at + 8, head.segment);
    putInteger(view, at + 16, head.last.index);
    putInteger(view, at + 24, head.last.term);
    putInteger(view, at + 32, head.logStart.index);
    putInteger(view, at + 40, head.logStart.term);
    putInteger(view, at + 48, identity.memberId);
    view.setUint16(at + 56, cellIdBytes, true);
    view.setUint16(at + 58, incarnationBytes, true);
    view.setUint32(at + 60, FORMAT_VERSION, true);
    this.#scratch.fill(0, at + HEAD_FIXED_BYTES, at + bytes);
    this.#scratch.write(identity.cellId, at + HEAD_FIXED_BYTES);
    this.#scratch.write(identity.incarnation, at + HEAD_FIXED_BYTES + cellIdBytes);
  }

  hardState(hardState: HardState): void {
    const at = this.#record(RECORD.hardState, 0, HARD_STATE_BYTES);
    putInteger(this.#view, at + 8, hardState.term);
    putInteger(this.#view, at + 16, hardState.vote);
    putInteger(this.#view, at + 24, hardState.commit);
  }

  snapshot(position: LogPosition): void {
    const at = this.#record(RECORD.snapshot, 0, SNAPSHOT_BYTES);
    putInteger(this.#view, at + 8, position.index);
    putInteger(this.#view, at + 16, position.term);
  }

  release(position: LogPosition): void {
    const at = this.#record(RECORD.release, 0, RELEASE_BYTES);
    putInteger(this.#view, at + 8, position.index);
    putInteger(this.#view, at + 16, position.term);
  }

  entry(entry: Entry): void {
    const { data } = entry;
    const at = this.#record(RECORD.entry, entryKindCode(entry.kind), ENTRY_HEADER_BYTES);
    this.#view.setUint32(at + 4, data.length, true);
    putInteger(this.#view, at + 8, entry.index);
    putInteger(this.#view, at + 16, entry.term);
    if (data.length <= COPIED_BYTES_MAX) {
      this.#scratch.set(data, this.#at);
      this.#at += data.length;
    } else {
      this.#closePiece();
      this.#buffers.push(data);
      this.#referencedBytes += data.length;
    }
    for (let padding = padded(data.length) - data.length; padding > 0; padding--) {
      this.#scratch[this.#at++] = 0;
    }
  }

  /** The write's records in the order they take effect in: snapshot, entries, hard state. */
  write(write: WalWrite): void {
    if (write.snapshot !== undefined) this.snapshot(write.snapshot);
    for (const entry of write.entries) this.entry(entry);
    if (write.hardState !== undefined) this.hardState(write.hardState);
  }

  /** Seals the batch: one checksum over all its records, so that it is there wholly or not at all (W4). */
  finish(place: BatchPlace): EncodedBatch {
    assert(this.#at + BATCH_TRAILER_BYTES <= this.#scratch.length, "the records fit the scratch announced");
    const trailer = this.#at;
    this.#at += BATCH_TRAILER_BYTES;
    this.#closePiece();
    const bytes = this.#at + this.#referencedBytes;
    const bodyBytes = bytes - BATCH_OVERHEAD_BYTES;
    assert(bodyBytes % 8 === 0 && bodyBytes <= BODY_BYTES_MAX, "body is aligned and bounded", { bodyBytes });
    const view = this.#view;
    view.setUint32(HEADER.magic, BATCH_MAGIC, true);
    view.setUint32(HEADER.bodyBytes, bodyBytes, true);
    view.setUint32(HEADER.chain, place.chain, true);
    view.setUint32(HEADER.records, this.#records, true);
    view.setUint32(HEADER.version, FORMAT_VERSION, true);
    // The trailer is not zero whatever its checksum half will be, so the sectors can be counted before it is known.
    view.setUint32(trailer, TRAILER_MAGIC, true);
    view.setUint32(HEADER.zeroSectors, countZeroSectors(this.#buffers, place.offset), true);
    view.setUint32(HEADER.bodyCrc, this.#bodyCrc(trailer), true);
    const chain = crc32(this.#scratch.subarray(0, HEADER.headerCrc), place.seed);
    view.setUint32(HEADER.headerCrc, chain, true);
    view.setUint32(trailer + 4, chain, true);
    return { buffers: this.#buffers, bytes, chain };
  }

  #bodyCrc(trailer: number): number {
    const buffers = this.#buffers;
    if (buffers.length === 1) return crc32(this.#scratch.subarray(BATCH_HEADER_BYTES, trailer));
    let crc = 0;
    for (let i = 0; i < buffers.length; i++) {
      const buffer = buffers[i];
      assert(buffer !== undefined, "pieces are dense");
      const from = i === 0 ? BATCH_HEADER_BYTES : 0;
      const to = i === buffers.length - 1 ? buffer.length - BATCH_TRAILER_BYTES : buffer.length;
      crc = crc32(buffer.subarray(from, to), crc);
    }
    return crc;
  }

  #record(kind: number, detail: number, bytes: number): number {
    const at = this.#at;
    this.#at += bytes;
    this.#records++;
    // The last 4 bytes are the length for entries, set by them; for fixed records they stay 0.
    this.#view.setUint32(at, kind | (detail << 8), true);
    this.#view.setUint32(at + 4, 0, true);
    return at;
  }

  #closePiece(): void {
    if (this.#at > this.#pieceStart) this.#buffers.push(this.#scratch.subarray(this.#pieceStart, this.#at));
    this.#pieceStart = this.#at;
  }
}

function viewOf(buffer: Buffer): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.length);
}
