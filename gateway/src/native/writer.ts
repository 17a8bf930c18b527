const TWO_28 = 2 ** 28;
const TWO_32 = 2 ** 32;
/** Below this many bytes a loop beats the call into the runtime's copy. */
const LOOP_COPY_BYTES_MAX = 24;
const KEPT_BYTES_MAX = 4 * 1024 * 1024;

function varintBytes(value: number): number {
  if (value < 0x80) return 1;
  if (value < 0x4000) return 2;
  if (value < 0x200000) return 3;
  if (value < TWO_28) return 4;
  let bytes = 4;
  for (let rest = Math.floor(value / TWO_28); rest > 0; rest = Math.floor(rest / 128)) bytes += 1;
  return bytes;
}

/**
 * Writes protobuf wire format from the end to the front: the content of a nested message stands before its length
 * is needed, so that no size is computed twice and nothing is moved. Fields, and entries of repeated fields, are
 * therefore written in reverse order. One instance is reused for every message.
 *
 * Every field number here is below 16, so a tag is one byte.
 */
export class ReverseWriter {
  private buffer: Buffer;
  private position: number;

  constructor(capacity: number = 64 * 1024) {
    this.buffer = Buffer.allocUnsafeSlow(capacity);
    this.position = capacity;
  }

  /** Bytes written so far. */
  get length(): number {
    return this.buffer.length - this.position;
  }

  /** @returns the message, and starts a new one. */
  finish(): Buffer {
    const message = Buffer.allocUnsafe(this.length);
    this.buffer.copy(message, 0, this.position);
    // One giant frame must not pin its buffer for ever.
    if (this.buffer.length > KEPT_BYTES_MAX) this.buffer = Buffer.allocUnsafeSlow(64 * 1024);
    this.position = this.buffer.length;
    return message;
  }

  /** A field of any unsigned number; the default (0) is left out. */
  uint(tag: number, value: number): void {
    if (value === 0) return;
    this.varint(value);
    this.buffer[--this.position] = tag;
  }

  bool(tag: number, value: boolean): void {
    if (value) this.uint(tag, 1);
  }

  /** A field of bytes; empty is left out. */
  bytes(tag: number, value: Uint8Array): void {
    if (value.length !== 0) this.requiredBytes(tag, value);
  }

  /** A field of bytes that is written even when empty. */
  requiredBytes(tag: number, value: Uint8Array): void {
    const before = this.length;
    this.raw(value);
    this.close(tag, before);
  }

  string(tag: number, value: string): void {
    if (value.length === 0) return;
    const before = this.length;
    const bytes = Buffer.byteLength(value);
    this.reserve(bytes);
    this.position -= bytes;
    this.buffer.write(value, this.position, bytes, "utf8");
    this.close(tag, before);
  }

  /** An int64 field held as decimal text; `"0"` is left out. */
  int64(tag: number, value: string): void {
    if (value === "0") return;
    this.reserve(12);
    if (value.length <= 15 && value.charCodeAt(0) !== 0x2d) {
      this.varint(Number(value));
    } else {
      this.bigVarint(BigInt.asUintN(64, BigInt(value)));
    }
    this.buffer[--this.position] = tag;
  }

  /** An int64 field held as a number, possibly negative; 0 is left out. */
  signed(tag: number, value: number): void {
    if (value < 0) this.int64(tag, String(value));
    else this.uint(tag, value);
  }

  /** Bytes as they are, e.g. fields encoded elsewhere. */
  raw(value: Uint8Array): void {
    const { length } = value;
    this.reserve(length);
    const position = this.position - length;
    const { buffer } = this;
    if (length <= LOOP_COPY_BYTES_MAX) {
      for (let i = 0; i < length; i += 1) buffer[position + i] = value[i] as number;
    } else {
      buffer.set(value, position);
    }
    this.position = position;
  }

  /** A number without a tag: an entry of a packed field, or a length. */
  varint(value: number): void {
    this.reserve(12);
    if (value < 0x80) {
      this.buffer[--this.position] = value;
      return;
    }
    const bytes = varintBytes(value);
    let at = this.position - bytes;
    this.position = at;
    const { buffer } = this;
    let rest = value;
    // Division only above 32 bits; shifts below.
    while (rest >= TWO_32) {
      buffer[at++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    while (rest >= 0x80) {
      buffer[at++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    buffer[at] = rest;
  }

  /** A tag alone, before what was just written. */
  tag(tag: number): void {
    this.reserve(1);
    this.buffer[--this.position] = tag;
  }

  /** Puts length and tag before everything written since {@link length} was `before`. */
  close(tag: number, before: number): void {
    this.varint(this.length - before);
    this.buffer[--this.position] = tag;
  }

  private bigVarint(value: bigint): void {
    const bytes: number[] = [];
    for (let rest = value; ; rest >>= 7n) {
      if (rest < 0x80n) {
        bytes.push(Number(rest));
        break;
      }
      bytes.push(Number(rest & 0x7fn) | 0x80);
    }
    this.position -= bytes.length;
    this.buffer.set(bytes, this.position);
  }

  private reserve(bytes: number): void {
    if (this.position >= bytes + 16) return;
    const used = this.length;
    const grown = Buffer.allocUnsafeSlow(Math.max(this.buffer.length * 2, used + bytes + 64));
    this.buffer.copy(grown, grown.length - used, this.position);
    this.buffer = grown;
    this.position = grown.length - used;
  }
}
