import { crc32 } from "node:zlib";
import { ProtocolError } from "./errors.ts";

/** u32 length of kind and body, u32 CRC-32 of kind and body, u8 kind (FORMAT.md). */
export const FRAME_HEADER_BYTES = 9;

/** What a frame carries. Numbers are wire format: never reuse one. */
export const FRAME = {
  hello: 1,
  welcome: 2,
  ping: 3,
  pong: 4,
  messages: 16,
  notice: 17,
  request: 32,
  answer: 33,
  offer: 48,
  accept: 49,
  chunk: 50,
  taken: 51,
  finish: 52,
  done: 53,
  abort: 54,
} as const;

/** One finished frame: its buffers go out in order, by reference. */
export interface Frame {
  readonly parts: readonly Buffer[];
  readonly bytes: number;
}

const SLAB_BYTES = 64 * 1024;
/** Smaller payloads are copied into the slab: one more iovec costs more than the copy. */
const REFERENCE_BYTES_MIN = 2 * 1024;

/**
 * Writes frames into slabs; big payloads are taken by reference. A region of a slab that was handed out is never
 * written again, so a frame may wait in a socket's queue while the next ones are built.
 */
export class FrameWriter {
  #slab: Buffer = Buffer.allocUnsafeSlow(SLAB_BYTES);
  /** Where the part that is being written begins. */
  #start = 0;
  #position = 0;
  #parts: Buffer[] = [];
  #finishedBytes = 0;

  begin(kind: number): void {
    if (this.#slab.length - this.#position < 256) this.#newSlab();
    this.#start = this.#position;
    this.#position += FRAME_HEADER_BYTES - 1;
    this.#slab[this.#position++] = kind;
  }

  byte(value: number): void {
    if (this.#position === this.#slab.length) this.#turnOver();
    this.#slab[this.#position++] = value;
  }

  /** A safe non-negative integer, 1 to 8 bytes, seven bits each, lowest first. */
  varint(value: number): void {
    if (this.#slab.length - this.#position < 8) this.#turnOver();
    const slab = this.#slab;
    let position = this.#position;
    let rest = value;
    while (rest >= 0x8000_0000) {
      slab[position++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    while (rest >= 0x80) {
      slab[position++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    slab[position++] = rest;
    this.#position = position;
  }

  /** Length, then the bytes. */
  bytes(data: Uint8Array): void {
    this.varint(data.length);
    this.raw(data);
  }

  string(text: string): void {
    this.bytes(Buffer.from(text, "utf8"));
  }

  /** Bytes without a length: the reader knows where they end. */
  raw(data: Uint8Array): void {
    const length = data.length;
    if (length >= REFERENCE_BYTES_MIN) {
      this.#cut();
      this.#parts.push(
        Buffer.isBuffer(data) ? data : Buffer.from(data.buffer, data.byteOffset, data.byteLength),
      );
      this.#finishedBytes += length;
      return;
    }
    if (this.#slab.length - this.#position < length) this.#turnOver();
    this.#slab.set(data, this.#position);
    this.#position += length;
  }

  finish(): Frame {
    this.#cut();
    const parts = this.#parts;
    const bytes = this.#finishedBytes;
    this.#parts = [];
    this.#finishedBytes = 0;
    const head = parts[0];
    if (head === undefined) throw new TypeError("finish() without begin()");
    let checksum = crc32(head.subarray(FRAME_HEADER_BYTES - 1));
    for (let i = 1; i < parts.length; i++) checksum = crc32(parts[i] ?? head, checksum);
    head.writeUInt32LE(bytes - (FRAME_HEADER_BYTES - 1), 0);
    head.writeUInt32LE(checksum, 4);
    return { parts, bytes };
  }

  /** Ends the part that is being written. */
  #cut(): void {
    if (this.#position === this.#start) return;
    this.#parts.push(this.#slab.subarray(this.#start, this.#position));
    this.#finishedBytes += this.#position - this.#start;
    this.#start = this.#position;
  }

  #turnOver(): void {
    this.#cut();
    this.#newSlab();
  }

  #newSlab(): void {
    this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    this.#start = 0;
    this.#position = 0;
  }
}

const EMPTY = Buffer.alloc(0);
const LENGTH_BYTES = 4;
const PREFIX_BYTES = FRAME_HEADER_BYTES - 1;
/** A bigger frame's buffer grows as its bytes arrive, so that a claimed length alone allocates little. */
const TRUSTED_BYTES = 1024 * 1024;

/**
 * Cuts a byte stream into frames. Frames inside one chunk are views of it; only a frame that spans chunks is
 * assembled, each byte copied once (twice for very large ones).
 */
export class FrameReader {
  /** Largest kind-and-body length accepted. */
  frameBytesMax: number;
  #pending: Buffer = EMPTY;
  #filled = 0;

  constructor(frameBytesMax: number) {
    this.frameBytesMax = frameBytesMax;
  }

  /** Throws ProtocolError; the stream is then unusable. */
  push(chunk: Buffer, deliver: (kind: number, body: Buffer) => void): void {
    let offset = this.#filled > 0 ? this.#continue(chunk, deliver) : 0;
    const end = chunk.length;
    while (end - offset >= LENGTH_BYTES) {
      const total = this.#checkedTotal(chunk, offset);
      if (end - offset < total) break;
      emit(chunk, offset, total, deliver);
      offset += total;
    }
    if (offset < end) this.#keep(chunk, offset);
  }

  /** @returns how far the chunk was used up. */
  #continue(chunk: Buffer, deliver: (kind: number, body: Buffer) => void): number {
    let offset = 0;
    if (this.#filled < LENGTH_BYTES) {
      offset = Math.min(LENGTH_BYTES - this.#filled, chunk.length);
      this.#append(chunk, 0, offset, PREFIX_BYTES);
      if (this.#filled < LENGTH_BYTES) return offset;
    }
    const total = this.#checkedTotal(this.#pending, 0);
    const taken = Math.min(total - this.#filled, chunk.length - offset);
    this.#append(chunk, offset, offset + taken, total);
    if (this.#filled === total) {
      const frame = this.#pending;
      this.#pending = EMPTY;
      this.#filled = 0;
      emit(frame, 0, total, deliver);
    }
    return offset + taken;
  }

  #keep(chunk: Buffer, offset: number): void {
    const left = chunk.length - offset;
    const total = left >= LENGTH_BYTES ? this.#checkedTotal(chunk, offset) : PREFIX_BYTES;
    this.#append(chunk, offset, chunk.length, total);
  }

  #append(chunk: Buffer, from: number, to: number, total: number): void {
    const needed = this.#filled + (to - from);
    if (this.#pending.length < needed) {
      const capacity = Math.max(needed, Math.min(total, Math.max(TRUSTED_BYTES, needed * 2)));
      const grown = Buffer.allocUnsafeSlow(capacity);
      this.#pending.copy(grown, 0, 0, this.#filled);
      this.#pending = grown;
    }
    chunk.copy(this.#pending, this.#filled, from, to);
    this.#filled = needed;
  }

  #checkedTotal(buffer: Buffer, offset: number): number {
    const length = buffer.readUInt32LE(offset);
    if (length < 1 || length > this.frameBytesMax) {
      throw new ProtocolError(`frame length ${length} is not within 1 and ${this.frameBytesMax}`);
    }
    return PREFIX_BYTES + length;
  }
}

function emit(
  buffer: Buffer,
  offset: number,
  total: number,
  deliver: (kind: number, body: Buffer) => void,
): void {
  const payload = buffer.subarray(offset + PREFIX_BYTES, offset + total);
  if (crc32(payload) !== buffer.readUInt32LE(offset + LENGTH_BYTES)) {
    throw new ProtocolError("frame checksum does not match");
  }
  deliver(payload[0] ?? 0, payload.subarray(1));
}

/** Reads the fields of one frame body. Every method throws ProtocolError rather than read beyond its end. */
export class BodyReader {
  readonly #body: Buffer;
  #position = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  get left(): number {
    return this.#body.length - this.#position;
  }

  byte(): number {
    const value = this.#body[this.#position];
    if (value === undefined) throw new ProtocolError("frame body ends early");
    this.#position += 1;
    return value;
  }

  varint(): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < 8; i++) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        if (value > Number.MAX_SAFE_INTEGER) break;
        return value;
      }
      scale *= 128;
    }
    throw new ProtocolError("number is not a safe integer");
  }

  /** A count of things that take at least one byte each: bounded by what is left. */
  count(): number {
    const count = this.varint();
    if (count > this.left) throw new ProtocolError(`count ${count} exceeds the frame`);
    return count;
  }

  boolean(): boolean {
    const value = this.byte();
    if (value > 1) throw new ProtocolError(`boolean ${value}`);
    return value === 1;
  }

  /** A view of the frame's memory. */
  bytes(): Buffer {
    const length = this.count();
    const from = this.#position;
    this.#position = from + length;
    return this.#body.subarray(from, this.#position);
  }

  string(): string {
    return this.bytes().toString("utf8");
  }

  /** All that is left, as a view. */
  rest(): Buffer {
    const from = this.#position;
    this.#position = this.#body.length;
    return this.#body.subarray(from);
  }

  end(): void {
    if (this.left !== 0) throw new ProtocolError(`${this.left} bytes too many in frame body`);
  }
}
