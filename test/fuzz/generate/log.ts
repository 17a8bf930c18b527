/** Write-ahead logs as a member writes them, and damage that disks do to them. */
import { crc32 } from "node:zlib";
import {
  BATCH_HEADER_BYTES,
  BATCH_MAGIC,
  BATCH_OVERHEAD_BYTES,
  countZeroSectors,
  HEADER,
  headBytes,
  RELEASE_BYTES,
  SECTOR_BYTES,
  seedAt,
  segmentSeeds,
  TRAILER_MAGIC,
} from "../../../cell/src/wal/format.ts";
import { BatchEncoder, scratchBytes } from "../../../cell/src/wal/batch-encoder.ts";
import { at, entry, hardState, IDENTITY } from "../../../cell/src/wal/testing/fixture.ts";
import type { HardState } from "../../../cell/src/raft/types.ts";
import type { LogPosition, WalWrite } from "../../../cell/src/wal/types.ts";
import { damage } from "./mutate.ts";
import type { Dice } from "./dice.ts";

export const SEGMENT_BYTES = 2048;
const SEGMENTS_MAX = 3;

/** What the next record may say so that the log stays one. */
class LogState {
  /** Terms by index; the entries before `start` are gone. */
  readonly terms: number[] = [0];
  start: LogPosition = at(0, 0);
  hardState: HardState = hardState(1, 0, 0);

  get last(): LogPosition {
    const index = this.terms.length - 1;
    return at(index, this.terms[index] ?? 0);
  }

  write(dice: Dice): WalWrite {
    if (dice.once(25)) return this.#snapshot(dice);
    const count = dice.below(4);
    const term = Math.max(this.hardState.term, this.last.term) + (dice.once(4) ? 1 : 0);
    // Only what is not committed may be superseded.
    const overwritten = count > 0 && dice.once(5) ? dice.below(3) : 0;
    const from = Math.max(this.hardState.commit, this.start.index, this.last.index - overwritten) + 1;
    this.terms.length = from;
    const entries = Array.from({ length: count }, (_, i) => {
      this.terms.push(term);
      return entry(from + i, term, dice.bytes(dice.length(120)));
    });
    return { entries, hardState: this.#promise(dice, term) };
  }

  #promise(dice: Dice, term: number): HardState {
    const { commit } = this.hardState;
    const vote = term === this.hardState.term ? this.hardState.vote : dice.below(4);
    this.hardState = hardState(term, vote, dice.between(commit, Math.max(commit, this.last.index)));
    return this.hardState;
  }

  #snapshot(dice: Dice): WalWrite {
    const index = this.last.index + dice.between(1, 10);
    const term = Math.max(this.hardState.term, this.last.term);
    while (this.terms.length < index) this.terms.push(0);
    this.terms.push(term);
    this.start = at(index, term);
    this.hardState = hardState(term, this.hardState.term === term ? this.hardState.vote : 0, index);
    return { snapshot: this.start, entries: [], hardState: this.hardState };
  }

  /** undefined: nothing may be released. */
  release(dice: Dice): LogPosition | undefined {
    const { commit } = this.hardState;
    if (commit <= this.start.index) return undefined;
    const index = dice.between(this.start.index + 1, commit);
    this.start = at(index, this.terms[index] ?? 0);
    return this.start;
  }
}

const encoder = new BatchEncoder();

/** One to three segments of {@link SEGMENT_BYTES}, one after the other. */
export function log(dice: Dice): Buffer {
  const segments = dice.between(1, SEGMENTS_MAX);
  const bytes = Buffer.alloc(segments * SEGMENT_BYTES);
  const state = new LogState();
  let chain = 0;
  for (let segment = 1; segment <= segments; segment++) {
    const into = bytes.subarray((segment - 1) * SEGMENT_BYTES, segment * SEGMENT_BYTES);
    chain = fillSegment(dice, { into, segment, chain, state });
  }
  return bytes;
}

interface Filling {
  readonly into: Buffer;
  readonly segment: number;
  readonly chain: number;
  readonly state: LogState;
}

/** @returns the chain after the segment. */
function fillSegment(dice: Dice, { into, segment, chain: before, state }: Filling): number {
  const seeds = segmentSeeds(segment, IDENTITY);
  let offset = 0;
  let chain = before;
  const put = (): void => {
    const batch = encoder.finish({ offset, seed: seedAt(seeds, offset), chain });
    Buffer.concat(batch.buffers).copy(into, offset);
    offset += batch.bytes;
    ({ chain } = batch);
  };
  encoder.begin(headBytes(IDENTITY));
  encoder.head({ identity: IDENTITY, segment, last: state.last, logStart: state.start });
  put();
  for (let batches = dice.below(8); batches > 0 && offset < SEGMENT_BYTES - 900; batches--) {
    const released = dice.once(10) ? state.release(dice) : undefined;
    if (released !== undefined) {
      encoder.begin(RELEASE_BYTES);
      encoder.release(released);
    } else {
      const write = state.write(dice);
      encoder.begin(scratchBytes(write));
      encoder.write(write);
    }
    put();
  }
  return chain;
}

/** Damage that leaves files and batches where they are: sectors lost, swapped or made stale, fields changed. */
export function damageDisk(dice: Dice, bytes: Buffer): Buffer {
  const damaged = Buffer.from(bytes);
  const sectors = Math.floor(damaged.length / SECTOR_BYTES);
  if (sectors === 0) return damaged;
  const sector = dice.below(sectors) * SECTOR_BYTES;
  switch (dice.below(6)) {
    case 0:
      return damaged.fill(0, sector, sector + SECTOR_BYTES);
    case 1: {
      const end = Math.ceil((sector + 1) / SEGMENT_BYTES) * SEGMENT_BYTES;
      return damaged.fill(0, sector, Math.min(end, damaged.length));
    }
    case 2:
      bytes.copy(damaged, sector, dice.below(sectors) * SECTOR_BYTES, damaged.length);
      return damaged;
    case 3:
      dice.bytes(SECTOR_BYTES).copy(damaged, sector);
      return damaged;
    default: {
      const changed = damage(dice, damaged.subarray(sector, sector + SECTOR_BYTES), () => dice.bytes(64));
      changed.copy(damaged, sector, 0, SECTOR_BYTES);
      return damaged;
    }
  }
}

/** Makes the checksums and the chain of all batches right, where their lengths still lead from one to the next. */
export function resealLog(bytes: Buffer): Buffer {
  const sealed = Buffer.from(bytes);
  let chain = 0;
  for (let at = 0, segment = 1; at < sealed.length; at += SEGMENT_BYTES, segment++) {
    chain = resealSegment(sealed.subarray(at, at + SEGMENT_BYTES), segment, chain);
  }
  return sealed;
}

function resealSegment(bytes: Buffer, segment: number, before: number): number {
  const seeds = segmentSeeds(segment, IDENTITY);
  let chain = before;
  for (let offset = 0; offset + BATCH_OVERHEAD_BYTES <= bytes.length;) {
    const bodyBytes = bytes.readUInt32LE(offset + HEADER.bodyBytes);
    const trailer = offset + BATCH_HEADER_BYTES + bodyBytes;
    if (bytes.readUInt32LE(offset) !== BATCH_MAGIC || bodyBytes % 8 !== 0 || trailer + 8 > bytes.length)
      break;
    bytes.writeUInt32LE(chain, offset + HEADER.chain);
    bytes.writeUInt32LE(crc32(bytes.subarray(offset + BATCH_HEADER_BYTES, trailer)), offset + HEADER.bodyCrc);
    bytes.writeUInt32LE(
      countZeroSectors([bytes.subarray(offset, trailer + 8)], offset),
      offset + HEADER.zeroSectors,
    );
    chain = crc32(bytes.subarray(offset, offset + HEADER.headerCrc), seedAt(seeds, offset));
    bytes.writeUInt32LE(chain, offset + HEADER.headerCrc);
    bytes.writeUInt32LE(TRAILER_MAGIC, trailer);
    bytes.writeUInt32LE(chain, trailer + 4);
    offset = trailer + 8;
  }
  return chain;
}
