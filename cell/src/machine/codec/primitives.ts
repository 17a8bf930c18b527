import type { LeaseId } from "@lockstep/gateway/coordinator";
import { copyInto, EMPTY } from "../bytes.ts";
import { decodeText, encodeText } from "../text.ts";

/** Bytes that are not what this version writes. Nothing else is thrown for bad input, whatever the bytes. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
  readonly code = "undecodable";
}

const TWO_28 = 0x10000000;
const TWO_32 = 0x100000000;
/** Longest varint: 53 bits. */
export const VARINT_BYTES_MAX = 8;
const LEASE_DIGITS_SAFE = 15;
const LEASE_PATTERN = /^[1-9][0-9]{0,18}$/;
const LEASE_MAX = 0x7fffffffffffffffn;

/** Base-128, low group first. @returns the position after it. */
export function putVarint(buffer: Uint8Array, position: number, value: number): number {
  let at = position;
  let rest = value;
  if (rest >= TWO_28) {
    const low = rest % TWO_28;
    buffer[at++] = (low & 0x7f) | 0x80;
    buffer[at++] = ((low >>> 7) & 0x7f) | 0x80;
    buffer[at++] = ((low >>> 14) & 0x7f) | 0x80;
    buffer[at++] = (low >>> 21) | 0x80;
    rest = (rest - low) / TWO_28;
  }
  while (rest >= 0x80) {
    buffer[at++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  buffer[at++] = rest;
  return at;
}

export function putUint32(buffer: Uint8Array, at: number, value: number): void {
  buffer[at] = value >>> 24;
  buffer[at + 1] = value >>> 16;
  buffer[at + 2] = value >>> 8;
  buffer[at + 3] = value;
}

export function getUint32(buffer: Uint8Array, at: number): number {
  return (
    (((buffer[at] as number) << 24) |
      ((buffer[at + 1] as number) << 16) |
      ((buffer[at + 2] as number) << 8) |
      (buffer[at + 3] as number)) >>>
    0
  );
}

/** A safe integer as 8 bytes, big-endian: sorts like the number. */
export function putUint64(buffer: Uint8Array, at: number, value: number): void {
  const low = value % TWO_32;
  putUint32(buffer, at, (value - low) / TWO_32);
  putUint32(buffer, at + 4, low);
}

/** Only for values written by {@link putUint64}. */
export function getUint64(buffer: Uint8Array, at: number): number {
  return getUint32(buffer, at) * TWO_32 + getUint32(buffer, at + 4);
}

/** A lease id is a positive int63 in decimal: the surface's form is checked here, on its way into bytes. */
export function isLeaseId(id: string): boolean {
  return LEASE_PATTERN.test(id) && (id.length < 19 || BigInt(id) <= LEASE_MAX);
}

/** 8 bytes, big-endian. Throws TypeError unless {@link isLeaseId} (or `"0"`). */
export function putLeaseId(buffer: Uint8Array, at: number, id: string): void {
  if (id.length <= LEASE_DIGITS_SAFE) {
    const value = Number(id);
    if (!Number.isInteger(value) || value < 0) throw new TypeError(`not a lease id: ${id}`);
    putUint64(buffer, at, value);
    return;
  }
  if (!isLeaseId(id)) throw new TypeError(`not a lease id: ${id}`);
  const value = BigInt(id);
  putUint32(buffer, at, Number(value >> 32n));
  putUint32(buffer, at + 4, Number(value & 0xffffffffn));
}

export function getLeaseId(buffer: Uint8Array, at: number): LeaseId {
  const high = getUint32(buffer, at);
  const low = getUint32(buffer, at + 4);
  if (high < 0x200000) return String(high * TWO_32 + low) as LeaseId;
  return String((BigInt(high) << 32n) | BigInt(low)) as LeaseId;
}

/**
 * Appends to a buffer that grows. {@link ByteWriter.take} hands the bytes out without copying and goes on behind
 * them in the same chunk.
 */
export class ByteWriter {
  buffer: Uint8Array = EMPTY;
  position = 0;
  private start = 0;
  private readonly chunkBytes: number;

  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes;
  }

  /** Bytes since the last take. */
  get length(): number {
    return this.position - this.start;
  }

  ensure(bytes: number): void {
    if (this.position + bytes > this.buffer.length) this.grow(bytes);
  }

  private grow(bytes: number): void {
    const used = this.length;
    const wanted = used + bytes;
    const next = new Uint8Array(wanted * 2 > this.chunkBytes ? wanted * 2 : this.chunkBytes);
    next.set(this.buffer.subarray(this.start, this.position));
    this.buffer = next;
    this.start = 0;
    this.position = used;
  }

  byte(value: number): void {
    if (this.position >= this.buffer.length) this.grow(1);
    this.buffer[this.position++] = value;
  }

  /** A safe integer that is not negative. Throws TypeError for anything else. */
  varint(value: number): void {
    if (!(value >= 0) || !Number.isSafeInteger(value)) throw new TypeError(`not a safe integer: ${value}`);
    this.ensure(VARINT_BYTES_MAX);
    this.position = putVarint(this.buffer, this.position, value);
  }

  bytes(value: Uint8Array): void {
    const length = value.length;
    this.ensure(length + VARINT_BYTES_MAX);
    this.position = copyInto(this.buffer, putVarint(this.buffer, this.position, length), value);
  }

  text(value: string): void {
    const { length } = value;
    this.ensure(length + VARINT_BYTES_MAX);
    const { buffer, position } = this;
    const from = putVarint(buffer, position, length);
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      // Not a byte a character: written anew, from where it began.
      if (code >= 0x80) return this.bytes(encodeText(value));
      buffer[from + i] = code;
    }
    this.position = from + length;
  }

  leaseId(id: string): void {
    this.ensure(8);
    putLeaseId(this.buffer, this.position, id);
    this.position += 8;
  }

  /** Forgets everything after `length` bytes. */
  rewind(length: number): void {
    this.position = this.start + length;
  }

  take(): Uint8Array {
    const taken = new Uint8Array(this.buffer.buffer, this.buffer.byteOffset + this.start, this.length);
    this.start = this.position;
    return taken;
  }
}

/** Reads what {@link ByteWriter} wrote; every byte string is a view, not a copy. */
export class ByteReader {
  readonly data: Uint8Array;
  position = 0;

  constructor(data: Uint8Array) {
    this.data = data;
  }

  get left(): number {
    return this.data.length - this.position;
  }

  byte(): number {
    if (this.position >= this.data.length) throw new DecodeError("cut short");
    return this.data[this.position++] as number;
  }

  varint(): number {
    const data = this.data;
    let at = this.position;
    let value = 0;
    let scale = 1;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (at >= data.length) throw new DecodeError("cut short");
      const byte = data[at++] as number;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        if (value > Number.MAX_SAFE_INTEGER) break;
        this.position = at;
        return value;
      }
      scale *= 0x80;
    }
    throw new DecodeError("number beyond 53 bits");
  }

  /** A count of items that take at least `bytesEach` bytes: refused when they cannot follow. */
  count(bytesEach: number): number {
    const count = this.varint();
    if (count * bytesEach > this.left) throw new DecodeError("cut short");
    return count;
  }

  bytes(): Uint8Array {
    const length = this.varint();
    if (length > this.left) throw new DecodeError("cut short");
    const data = this.data;
    const view = new Uint8Array(data.buffer, data.byteOffset + this.position, length);
    this.position += length;
    return view;
  }

  rest(): Uint8Array {
    const data = this.data;
    const view = new Uint8Array(data.buffer, data.byteOffset + this.position, this.left);
    this.position = data.length;
    return view;
  }

  text(): string {
    return decodeText(this.bytes());
  }

  /** `"0"` is possible: {@link NO_LEASE}. */
  leaseId(): LeaseId {
    if (this.left < 8) throw new DecodeError("cut short");
    if ((this.data[this.position] as number) > 0x7f) throw new DecodeError("lease id beyond 63 bits");
    const id = getLeaseId(this.data, this.position);
    this.position += 8;
    return id;
  }

  /** Flag bits outside `known` come from a newer version (R58). */
  flags(known: number): number {
    const flags = this.byte();
    if ((flags & ~known) !== 0) throw new DecodeError(`unknown flags ${flags}`);
    return flags;
  }

  end(): void {
    if (this.left !== 0) throw new DecodeError("bytes left over");
  }
}
