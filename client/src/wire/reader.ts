import { LockstepError } from "../errors.ts";

function truncated(): LockstepError {
  return new LockstepError("protocol-error", "unknown", "a frame from the member is cut short");
}

/** Protobuf out of a received frame, without copies. */
export class Reader {
  readonly buffer: Buffer;
  position: number;
  end: number;

  constructor(buffer: Buffer, position = 0, end: number = buffer.length) {
    this.buffer = buffer;
    this.position = position;
    this.end = end;
  }

  /** A varint as a number; exact up to 2^53. */
  varint(): number {
    const buffer = this.buffer;
    let byte = buffer[this.position++];
    if (byte === undefined || this.position > this.end) throw truncated();
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 128;
    do {
      byte = buffer[this.position++];
      if (byte === undefined || this.position > this.end || scale > 2 ** 63) throw truncated();
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    return value;
  }

  /** A non-negative int64 as a decimal string. */
  decimal(): string {
    const start = this.position;
    const value = this.varint();
    if (value <= Number.MAX_SAFE_INTEGER) return value === 0 ? "0" : String(value);
    this.position = start;
    let exact = 0n;
    let shift = 0n;
    let byte = 0x80;
    while (byte >= 0x80) {
      byte = this.buffer[this.position++] ?? 0;
      exact |= BigInt(byte & 0x7f) << shift;
      shift += 7n;
    }
    return BigInt.asIntN(64, exact).toString();
  }

  /** The end of the length-delimited field that starts here. */
  fieldEnd(): number {
    const length = this.varint();
    const end = this.position + length;
    if (end > this.end) throw truncated();
    return end;
  }

  bytes(): Buffer {
    const end = this.fieldEnd();
    const view = this.buffer.subarray(this.position, end);
    this.position = end;
    return view;
  }

  /** Skips the value of a field that this version does not know. */
  skip(tag: number): void {
    switch (tag & 7) {
      case 0:
        this.varint();
        return;
      case 1:
        this.position += 8;
        break;
      case 2:
        this.position = this.fieldEnd();
        return;
      case 5:
        this.position += 4;
        break;
      default:
        throw new LockstepError(
          "protocol-error",
          "unknown",
          "a frame from the member has an unknown wire type",
        );
    }
    if (this.position > this.end) throw truncated();
  }
}
