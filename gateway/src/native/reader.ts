import type { LeaseId } from "../coordinator/index.ts";

/** The bytes are not the protobuf message they should be. */
export class MalformedError extends Error {
  override readonly name: string = "MalformedError";
}

const TWO_28 = 2 ** 28;
const TWO_32 = 2 ** 32;
/** High words from here on exceed Number.MAX_SAFE_INTEGER. */
const SAFE_HIGH_WORD = 2 ** 21;
/** High words from here on make an int64 negative. */
const SIGN_HIGH_WORD = 2 ** 31;

/**
 * Reads protobuf wire format in place, without copies and without BigInt on the usual path. One instance is reused
 * for every message: {@link reset} points it at the next one. A byte past the end reads as zero, which ends a
 * varint, and the position check after it throws.
 */
export class ProtoReader {
  buffer: Buffer = Buffer.alloc(0);
  position = 0;
  /** End of the message being read. */
  limit = 0;
  private low = 0;
  private high = 0;

  reset(buffer: Buffer, start: number, end: number): void {
    this.buffer = buffer;
    this.position = start;
    this.limit = end;
  }

  /** A tag or a length: 32 bits. */
  uint32(): number {
    const first = this.buffer[this.position] as number;
    if (first < 0x80 && this.position < this.limit) {
      this.position += 1;
      return first;
    }
    this.words();
    return this.low;
  }

  bool(): boolean {
    this.words();
    return (this.low | this.high) !== 0;
  }

  /** A uint64 that must be a safe integer. */
  uint53(): number {
    const first = this.buffer[this.position] as number;
    if (first < 0x80 && this.position < this.limit) {
      this.position += 1;
      return first;
    }
    this.words();
    if (this.high >= SAFE_HIGH_WORD) throw new MalformedError("a number is above 2^53 - 1");
    return this.high * TWO_32 + this.low;
  }

  /** An int64 as a number; what no safe integer can hold becomes the nearest one that can. */
  int53(): number {
    const first = this.buffer[this.position] as number;
    if (first < 0x80 && this.position < this.limit) {
      this.position += 1;
      return first;
    }
    this.words();
    const { low, high } = this;
    if (high < SAFE_HIGH_WORD) return high * TWO_32 + low;
    if (high < SIGN_HIGH_WORD) return Number.MAX_SAFE_INTEGER;
    return Math.max(Number.MIN_SAFE_INTEGER, (high - TWO_32) * TWO_32 + low);
  }

  /** An int64 as decimal text. May be negative: validation refuses that. */
  int64(): LeaseId {
    this.words();
    const { low, high } = this;
    if (high < SAFE_HIGH_WORD) return String(high * TWO_32 + low) as LeaseId;
    const bits = (BigInt(high) << 32n) | BigInt(low);
    return BigInt.asIntN(64, bits).toString() as LeaseId;
  }

  /** Length-delimited bytes, as a view of the message. */
  bytes(): Buffer {
    const length = this.uint32();
    const start = this.position;
    if (length > this.limit - start) throw new MalformedError("a field runs past the end of its message");
    this.position = start + length;
    return this.buffer.subarray(start, start + length);
  }

  string(): string {
    const length = this.uint32();
    const start = this.position;
    if (length > this.limit - start) throw new MalformedError("a field runs past the end of its message");
    this.position = start + length;
    return this.buffer.toString("utf8", start, start + length);
  }

  /** Steps into a length-delimited message. @returns the limit to give back to {@link leave}. */
  enter(): number {
    const length = this.uint32();
    const outer = this.limit;
    if (length > outer - this.position) throw new MalformedError("a field runs past the end of its message");
    this.limit = this.position + length;
    return outer;
  }

  leave(outer: number): void {
    this.position = this.limit;
    this.limit = outer;
  }

  /** Steps over a field that is not known (a newer peer's), or known with another wire type. */
  skip(tag: number): void {
    switch (tag & 7) {
      case 0:
        this.words();
        break;
      case 1:
        this.position += 8;
        break;
      case 2: {
        // Not `position += uint32()`: the left side would be read before the length moves it.
        const length = this.uint32();
        this.position += length;
        break;
      }
      case 5:
        this.position += 4;
        break;
      default:
        throw new MalformedError("a field has an unknown wire type");
    }
    if (tag >>> 3 === 0) throw new MalformedError("a field has number zero");
    if (this.position > this.limit) throw new MalformedError("a field runs past the end of its message");
  }

  /** Reads a varint into two unsigned 32-bit words. */
  private words(): void {
    const { buffer } = this;
    let position = this.position;
    let low = 0;
    let high = 0;
    let shift = 0;
    let byte = 0;
    do {
      byte = buffer[position] ?? 0;
      position += 1;
      const seven = byte & 0x7f;
      if (shift < 28) {
        low |= seven << shift;
      } else if (shift === 28) {
        low = (low >>> 0) + (seven & 0x0f) * TWO_28;
        high = seven >>> 4;
      } else if (shift < 70) {
        high |= seven << (shift - 32);
      } else {
        throw new MalformedError("a varint has more than 10 bytes");
      }
      shift += 7;
    } while (byte >= 0x80);
    if (position > this.limit) throw new MalformedError("a field runs past the end of its message");
    this.position = position;
    this.low = low >>> 0;
    this.high = high >>> 0;
  }
}
