import { toBuffer, type Bytes } from "../bytes.ts";

const INITIAL_BYTES = 64 * 1024;
const SHORT_STRING = 64;

/** Bytes that a non-negative safe integer takes as a varint. */
export function varintSize(value: number): number {
  if (value < 0x80) return 1;
  if (value < 0x4000) return 2;
  if (value < 0x200000) return 3;
  if (value < 0x10000000) return 4;
  let size = 5;
  for (let rest = value / 0x800000000; rest >= 1; rest /= 128) size += 1;
  return size;
}

/** UTF-8 length; short ASCII strings (keys) without leaving JavaScript. */
export function bytesSize(bytes: Bytes): number {
  if (typeof bytes !== "string") return bytes.length;
  const length = bytes.length;
  if (length > SHORT_STRING) return Buffer.byteLength(bytes, "utf8");
  for (let i = 0; i < length; i++) {
    if (bytes.charCodeAt(i) > 0x7f) return Buffer.byteLength(bytes, "utf8");
  }
  return length;
}

/** A decimal int63 as it goes on the wire: small ids as numbers, the others as 64-bit integers. */
export function leaseSize(leaseId: string): number {
  if (leaseId.length <= 15) return varintSize(Number(leaseId));
  return bigVarintSize(BigInt(leaseId));
}

function bigVarintSize(value: bigint): number {
  let size = 1;
  for (let rest = value >> 7n; rest > 0n; rest >>= 7n) size += 1;
  return size;
}

/**
 * Protobuf into one growing buffer that is reused from frame to frame. Sizes are computed before writing, so
 * nested messages need no patching.
 */
export class Writer {
  #buffer: Buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  #position = 0;

  get length(): number {
    return this.#position;
  }

  reset(): void {
    this.#position = 0;
  }

  /** A copy of what was written, to hand to the transport. */
  take(): Buffer {
    const copy = Buffer.allocUnsafe(this.#position);
    this.#buffer.copy(copy, 0, 0, this.#position);
    this.#position = 0;
    return copy;
  }

  /** Makes room; every write below needs it to have been called. */
  reserve(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    let capacity = this.#buffer.length;
    while (capacity < needed) capacity *= 2;
    const grown = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(grown, 0, 0, this.#position);
    this.#buffer = grown;
  }

  byte(value: number): void {
    this.#buffer[this.#position++] = value;
  }

  varint(value: number): void {
    const buffer = this.#buffer;
    let position = this.#position;
    let rest = value;
    while (rest > 0x7fffffff) {
      buffer[position++] = (rest & 0x7f) | 0x80;
      rest = Math.floor(rest / 128);
    }
    while (rest > 0x7f) {
      buffer[position++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    buffer[position++] = rest;
    this.#position = position;
  }

  lease(leaseId: string): void {
    if (leaseId.length <= 15) {
      this.varint(Number(leaseId));
      return;
    }
    let rest = BigInt(leaseId);
    while (rest > 0x7fn) {
      this.byte(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.byte(Number(rest));
  }

  /** `size` is what {@link bytesSize} said. */
  bytes(bytes: Bytes, size: number): void {
    const buffer = this.#buffer;
    const position = this.#position;
    if (typeof bytes !== "string") {
      buffer.set(bytes, position);
    } else if (size === bytes.length && size <= SHORT_STRING) {
      for (let i = 0; i < size; i++) buffer[position + i] = bytes.charCodeAt(i);
    } else {
      buffer.write(bytes, position, size, "utf8");
    }
    this.#position = position + size;
  }

  /** A length-delimited field made elsewhere. */
  field(tag: number, bytes: Bytes): void {
    const content = toBuffer(bytes);
    this.reserve(content.length + 12);
    this.varint(tag);
    this.varint(content.length);
    this.bytes(content, content.length);
  }
}
