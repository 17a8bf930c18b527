import { crc32 } from "node:zlib";
import { type LogIndex, type MemberId, type Term } from "../raft/types.ts";
import { WalError } from "./error.ts";
import {
  BATCH_HEADER_BYTES,
  BATCH_MAGIC,
  BATCH_OVERHEAD_BYTES,
  BATCH_TRAILER_BYTES,
  BODY_BYTES_MAX,
  countZeroSectors,
  endOfData,
  ENTRY_HEADER_BYTES,
  entryKindOf,
  firstSeed,
  FORMAT_VERSION,
  getInteger,
  HARD_STATE_BYTES,
  HEAD_FIXED_BYTES,
  HEADER,
  padded,
  RECORD,
  RECORD_HEADER_BYTES,
  RELEASE_BYTES,
  SECTOR_BYTES,
  seedAt,
  type SegmentHead,
  segmentName,
  type SegmentSeeds,
  segmentSeeds,
  SNAPSHOT_BYTES,
  TRAILER_MAGIC,
  type WalRecord,
} from "./format.ts";
import type { LogPosition, WalIdentity } from "./types.ts";

/** One group commit as it lies in a segment. */
export interface Batch {
  readonly offset: number;
  readonly bytes: number;
  readonly records: readonly WalRecord[];
  /** Checksum of the batch before it, as this one has it. */
  readonly chain: number;
  /** Checksum of this batch. */
  readonly crc: number;
}

/**
 * How the readable part of a segment ends:
 *
 * - `clean`: nothing but zeros from `offset` on.
 * - `torn`: a write that did not reach the disk as a whole, by the rules of W2. Harmless at the very end of the log only.
 * - `corrupt`: bytes that were once whole. Never repaired.
 */
export interface SegmentEnd {
  readonly kind: "clean" | "torn" | "corrupt";
  readonly offset: number;
  /** A clause for people. */
  readonly reason: string;
  /** The next batch after the damage, when there is one. */
  readonly resume: number | undefined;
}

/** What a segment holds. */
export interface SegmentContent {
  /** Absent when the first batch cannot be read. */
  readonly head: SegmentHead | undefined;
  /** The chain value the segment says it continues; `undefined` without a head. */
  readonly continues: number | undefined;
  readonly batches: readonly Batch[];
  /** The chain value after the last batch. */
  readonly chain: number;
  readonly end: SegmentEnd;
  /** Where the last non-zero byte ends. */
  readonly dataEnd: number;
}

const MAGIC_BYTES: Buffer = Buffer.alloc(4);
MAGIC_BYTES.writeUInt32LE(BATCH_MAGIC);

interface HeaderFields {
  readonly bodyBytes: number;
  readonly chain: number;
  readonly zeroSectors: number;
  readonly records: number;
  readonly bodyCrc: number;
  readonly headerCrc: number;
}

/** What a reader of a segment starts from. */
export interface ReadSegmentOptions {
  readonly segment: number;
  /** Whose log this should be: later batches are then recognised even when the head of the segment is damaged. */
  readonly expected: WalIdentity | undefined;
  /** Begin at this batch and take its chain on trust; default: the head. */
  readonly from?: number;
}

/**
 * Reads a segment up to its end or its first damage.
 *
 * @param bytes the whole file; payloads of the result point into it
 * @throws {WalError} `unsupported-version` when a newer format wrote it
 */
export function readSegment(bytes: Buffer, options: ReadSegmentOptions): SegmentContent {
  const reader = new SegmentReader(bytes, options.segment, options.expected);
  return reader.read(options.from ?? 0);
}

class SegmentReader {
  readonly #bytes: Buffer;
  readonly #view: DataView;
  readonly #segment: number;
  readonly #dataEnd: number;
  #seeds: SegmentSeeds;

  constructor(bytes: Buffer, segment: number, expected: WalIdentity | undefined) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#segment = segment;
    this.#dataEnd = endOfData(bytes, 0);
    this.#seeds =
      expected === undefined ? { first: firstSeed(segment), others: 0 } : segmentSeeds(segment, expected);
  }

  read(from: number): SegmentContent {
    const batches: Batch[] = [];
    let chain: number | undefined;
    let continues: number | undefined;
    let offset = from;
    for (;;) {
      const batch = this.#batch(offset, chain);
      if ("kind" in batch) {
        const first = batches[0]?.records[0];
        const head = first?.kind === "head" ? first.head : undefined;
        return { head, continues, batches, chain: chain ?? 0, end: batch, dataEnd: this.#dataEnd };
      }
      batches.push(batch);
      continues ??= batch.chain;
      chain = batch.crc;
      offset += batch.bytes;
    }
  }

  /** The header of the batch at `offset` when the whole batch verifies. */
  #header(offset: number, chain: number | undefined): HeaderFields | SegmentEnd {
    if (offset >= this.#dataEnd)
      return { kind: "clean", offset, reason: "nothing follows", resume: undefined };
    const header = this.#parseHeader(offset);
    if (header === undefined) return this.#judgeHeader(offset);
    const damage = this.#verifyBody(offset, header);
    if (damage !== undefined) return damage;
    if (chain === undefined || header.chain === chain) return header;
    return this.#corrupt(offset, "the batch does not continue the one before");
  }

  /** The batch at `offset`, or why there is none. */
  #batch(offset: number, chain: number | undefined): Batch | SegmentEnd {
    const header = this.#header(offset, chain);
    if ("kind" in header) return header;
    const records = this.#records(offset, header);
    if (typeof records === "string") return this.#corrupt(offset, records);
    if (offset === 0) {
      const first = records[0];
      if (first?.kind !== "head")
        return this.#corrupt(offset, "the first record of the segment is not its head");
      this.#seeds = segmentSeeds(this.#segment, first.head.identity);
    }
    const bytes = header.bodyBytes + BATCH_OVERHEAD_BYTES;
    return { offset, bytes, records, chain: header.chain, crc: header.headerCrc };
  }

  #parseHeader(offset: number): HeaderFields | undefined {
    if (offset + BATCH_HEADER_BYTES > this.#bytes.length) return undefined;
    const view = this.#view;
    if (view.getUint32(offset + HEADER.magic, true) !== BATCH_MAGIC) return undefined;
    const headerCrc = view.getUint32(offset + HEADER.headerCrc, true);
    const covered = this.#bytes.subarray(offset, offset + HEADER.headerCrc);
    if (crc32(covered, seedAt(this.#seeds, offset)) !== headerCrc) return undefined;
    const version = view.getUint32(offset + HEADER.version, true);
    if (version !== FORMAT_VERSION) {
      throw new WalError(
        "unsupported-version",
        `format version ${version}, this program reads ${FORMAT_VERSION}`,
        {
          position: { segment: segmentName(this.#segment), offset },
        },
      );
    }
    return {
      bodyBytes: view.getUint32(offset + HEADER.bodyBytes, true),
      chain: view.getUint32(offset + HEADER.chain, true),
      zeroSectors: view.getUint32(offset + HEADER.zeroSectors, true),
      records: view.getUint32(offset + HEADER.records, true),
      bodyCrc: view.getUint32(offset + HEADER.bodyCrc, true),
      headerCrc,
    };
  }

  /** The header does not verify: was its sector never written, or is it damaged? */
  #judgeHeader(offset: number): SegmentEnd {
    const size = this.#bytes.length;
    if (offset + BATCH_HEADER_BYTES > size) {
      return this.#torn(offset, "the file ends inside a header");
    }
    const sectorEnd = offset - (offset % SECTOR_BYTES) + SECTOR_BYTES;
    const lost =
      this.#isZero(offset, Math.min(sectorEnd, size)) ||
      (sectorEnd < offset + BATCH_HEADER_BYTES &&
        this.#isZero(sectorEnd, Math.min(sectorEnd + SECTOR_BYTES, size)));
    if (lost) return this.#torn(offset, "a sector of the header was never written");
    return this.#corrupt(offset, "the header does not verify although its sectors were written");
  }

  /** `undefined`: the batch is whole. */
  #verifyBody(offset: number, header: HeaderFields): SegmentEnd | undefined {
    const { bodyBytes } = header;
    if (bodyBytes % 8 !== 0 || bodyBytes > BODY_BYTES_MAX) {
      return this.#corrupt(offset, `impossible length ${bodyBytes}`);
    }
    const trailer = offset + BATCH_HEADER_BYTES + bodyBytes;
    const end = trailer + BATCH_TRAILER_BYTES;
    if (end > this.#bytes.length) return this.#torn(offset, "the file ends inside a batch");
    const body = this.#bytes.subarray(offset + BATCH_HEADER_BYTES, trailer);
    const whole =
      this.#view.getUint32(trailer, true) === TRAILER_MAGIC &&
      this.#view.getUint32(trailer + 4, true) === header.headerCrc &&
      crc32(body) === header.bodyCrc;
    if (whole) return undefined;
    if (countZeroSectors([this.#bytes.subarray(offset, end)], offset) > header.zeroSectors) {
      return this.#torn(offset, "a sector of the batch was never written");
    }
    return this.#corrupt(offset, "the checksum is wrong although every sector was written");
  }

  /**
   * One write is under way at a time, so a later batch proves that the damaged one was once whole: no torn tail (W2).
   * Its header is proof enough.
   */
  #torn(offset: number, reason: string): SegmentEnd {
    const resume = this.#nextHeader(offset + 8);
    if (resume === undefined) return { kind: "torn", offset, reason, resume };
    return this.#corrupt(offset, `${reason}, yet a later batch follows at offset ${resume}`);
  }

  #corrupt(offset: number, reason: string): SegmentEnd {
    return { kind: "corrupt", offset, reason, resume: this.#nextHeader(offset + 8) };
  }

  /** Offset of the first batch header at or after `from`. */
  #nextHeader(from: number): number | undefined {
    let at = this.#bytes.indexOf(MAGIC_BYTES, from);
    while (at !== -1) {
      if (at % 8 === 0 && this.#parseHeader(at) !== undefined) return at;
      at = this.#bytes.indexOf(MAGIC_BYTES, at + 1);
    }
    return undefined;
  }

  #isZero(from: number, to: number): boolean {
    return endOfData(this.#bytes.subarray(from, to), 0) === 0;
  }

  /** The records of a batch whose checksum holds; a string says what is wrong with them. */
  #records(offset: number, header: HeaderFields): readonly WalRecord[] | string {
    const records: WalRecord[] = [];
    let at = offset + BATCH_HEADER_BYTES;
    const end = at + header.bodyBytes;
    while (at < end) {
      const record = at + RECORD_HEADER_BYTES <= end ? this.#record(at, end) : undefined;
      if (record === undefined || at + record.bytes > end) return `unreadable record at offset ${at}`;
      records.push(record);
      at += record.bytes;
    }
    if (records.length !== header.records) return `${records.length} records instead of ${header.records}`;
    return records;
  }

  #record(at: number, end: number): WalRecord | undefined {
    const kind = this.#bytes[at];
    switch (kind) {
      case RECORD.entry:
        return at + ENTRY_HEADER_BYTES <= end ? this.#entry(at, end) : undefined;
      case RECORD.hardState:
        if (at + HARD_STATE_BYTES > end) return undefined;
        return {
          kind: "hard-state",
          offset: at,
          bytes: HARD_STATE_BYTES,
          hardState: {
            term: this.#integer(at + 8) as Term,
            vote: this.#integer(at + 16) as MemberId,
            commit: this.#integer(at + 24) as LogIndex,
          },
        };
      case RECORD.snapshot:
        if (at + SNAPSHOT_BYTES > end) return undefined;
        return { kind: "snapshot", offset: at, bytes: SNAPSHOT_BYTES, at: this.#position(at + 8) };
      case RECORD.release:
        if (at + RELEASE_BYTES > end) return undefined;
        return { kind: "release", offset: at, bytes: RELEASE_BYTES, at: this.#position(at + 8) };
      case RECORD.head:
        return at + HEAD_FIXED_BYTES <= end ? this.#head(at, end) : undefined;
      default:
        return undefined;
    }
  }

  #entry(at: number, end: number): WalRecord | undefined {
    const kind = entryKindOf(this.#bytes[at + 1] ?? 0xff);
    const dataBytes = this.#view.getUint32(at + 4, true);
    const bytes = ENTRY_HEADER_BYTES + padded(dataBytes);
    if (kind === undefined || dataBytes > end - at - ENTRY_HEADER_BYTES) return undefined;
    const data = this.#bytes.subarray(at + ENTRY_HEADER_BYTES, at + ENTRY_HEADER_BYTES + dataBytes);
    const { index, term } = this.#position(at + 8);
    return { kind: "entry", offset: at, bytes, entry: { term, index, kind, data } };
  }

  #head(at: number, end: number): WalRecord | undefined {
    const cellIdBytes = this.#view.getUint16(at + 56, true);
    const incarnationBytes = this.#view.getUint16(at + 58, true);
    const bytes = padded(HEAD_FIXED_BYTES + cellIdBytes + incarnationBytes);
    if (at + bytes > end || this.#view.getUint32(at + 60, true) !== FORMAT_VERSION) return undefined;
    const text = at + HEAD_FIXED_BYTES;
    const head: SegmentHead = {
      segment: this.#integer(at + 8),
      last: this.#position(at + 16),
      logStart: this.#position(at + 32),
      identity: {
        memberId: this.#integer(at + 48),
        cellId: this.#bytes.toString("utf8", text, text + cellIdBytes),
        incarnation: this.#bytes.toString("utf8", text + cellIdBytes, text + cellIdBytes + incarnationBytes),
      },
    };
    return { kind: "head", offset: at, bytes, head };
  }

  #position(at: number): LogPosition {
    return { index: this.#integer(at) as LogIndex, term: this.#integer(at + 8) as Term };
  }

  #integer(at: number): number {
    return getInteger(this.#view, at);
  }
}
