import { gunzipSync } from "node:zlib";
import { GrpcCode } from "./call.ts";
import type { Message } from "./call.ts";
import { GrpcError } from "./error.ts";
import { UNFINISHED_BYTES_MAX } from "./limits.ts";

/** A byte that says whether the message is compressed, and its length. */
export const PREFIX_BYTES = 5;

const NOTHING = Buffer.alloc(0);
const ASSEMBLY_BYTES_MIN = 4 * 1024;

/** What unfinished messages of one connection take together. */
export interface UnfinishedBytes {
  unfinishedBytes: number;
}

export interface MessageReaderOptions {
  /** A longer message ends the call before it is buffered. */
  readonly bytesMax: number;
  /** `grpc-encoding` of the call. */
  readonly encoding: string | undefined;
  readonly budget: UnfinishedBytes;
}

/**
 * Cuts the bytes of a call into messages. A message that came in one piece is given as a view of that piece; others are
 * put together in memory that grows with what has come, not with what the prefix promises.
 */
export class MessageReader {
  private readonly options: MessageReaderOptions;
  private chunk: Buffer = NOTHING;
  private position = 0;
  private prefixBytes = 0;
  private flag = 0;
  private length = 0;
  private assembled: Buffer = NOTHING;
  private filled = 0;

  constructor(options: MessageReaderOptions) {
    this.options = options;
  }

  /** The next bytes; only when all there was before has been read. */
  push(chunk: Buffer): void {
    this.chunk = chunk;
    this.position = 0;
  }

  /** Bytes that were given and not looked at. */
  get hasUnread(): boolean {
    return this.position < this.chunk.length;
  }

  /** A message has begun and is not whole. */
  get isInMessage(): boolean {
    return this.prefixBytes > 0;
  }

  /**
   * @returns the next whole message; undefined: more bytes are needed
   * @throws GrpcError when the call must end with it
   */
  next(): Buffer | undefined {
    if (this.prefixBytes < PREFIX_BYTES && !this.readPrefix()) return undefined;
    const { chunk, position, length } = this;
    const here = Math.min(chunk.length - position, length - this.filled);
    this.position = position + here;
    let message: Buffer;
    if (this.filled === 0 && here === length) {
      message = chunk.subarray(position, position + here);
    } else {
      this.append(position, here);
      if (this.filled < length) {
        this.chunk = NOTHING;
        this.position = 0;
        return undefined;
      }
      message = this.assembled;
    }
    const { flag } = this;
    this.release();
    return flag === 0 ? message : this.decompressed(message);
  }

  /** Forgets what has come of a message. */
  release(): void {
    this.options.budget.unfinishedBytes -= this.assembled.length;
    this.assembled = NOTHING;
    this.filled = 0;
    this.prefixBytes = 0;
    this.length = 0;
  }

  private readPrefix(): boolean {
    while (this.prefixBytes < PREFIX_BYTES) {
      if (this.position >= this.chunk.length) return false;
      const byte = this.chunk[this.position] as number;
      this.position += 1;
      if (this.prefixBytes === 0) this.flag = byte;
      else this.length = this.length * 256 + byte;
      this.prefixBytes += 1;
    }
    const { bytesMax, encoding } = this.options;
    if (this.flag > 1) {
      throw new GrpcError({ code: GrpcCode.INTERNAL, details: `a message's flags are ${this.flag}` });
    }
    if (this.length > bytesMax) throw tooLarge(this.length, bytesMax);
    if (this.flag === 1 && (encoding === undefined || encoding === "identity")) {
      const details = "a message is compressed, and grpc-encoding does not say how";
      throw new GrpcError({ code: GrpcCode.INTERNAL, details });
    }
    return true;
  }

  private append(position: number, bytes: number): void {
    if (bytes === 0) return;
    const needed = this.filled + bytes;
    if (needed > this.assembled.length) this.grow(needed);
    this.chunk.copy(this.assembled, this.filled, position, position + bytes);
    this.filled = needed;
  }

  private grow(needed: number): void {
    const { budget } = this.options;
    const before = this.assembled.length;
    const capacity = Math.min(this.length, Math.max(needed, before * 2, ASSEMBLY_BYTES_MIN));
    if (budget.unfinishedBytes + capacity - before > UNFINISHED_BYTES_MAX) {
      const details = `the connection has ${UNFINISHED_BYTES_MAX} bytes of unfinished messages under way`;
      throw new GrpcError({ code: GrpcCode.RESOURCE_EXHAUSTED, details });
    }
    budget.unfinishedBytes += capacity - before;
    const grown = Buffer.allocUnsafe(capacity);
    this.assembled.copy(grown, 0, 0, this.filled);
    this.assembled = grown;
  }

  private decompressed(message: Buffer): Buffer {
    const { bytesMax } = this.options;
    try {
      return gunzipSync(message, { maxOutputLength: bytesMax });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE") {
        throw tooLarge(undefined, bytesMax);
      }
      throw new GrpcError({
        code: GrpcCode.INTERNAL,
        details: "a message is not the gzip that it should be",
      });
    }
  }
}

function tooLarge(bytes: number | undefined, bytesMax: number): GrpcError {
  const details =
    bytes === undefined
      ? `a message has more than ${bytesMax} bytes, the most there may be`
      : `a message has ${bytes} bytes, more than ${bytesMax}, the most there may be`;
  return new GrpcError({ code: GrpcCode.RESOURCE_EXHAUSTED, details });
}

export function messageLength(message: Message): number {
  if (message instanceof Uint8Array) return message.length;
  let length = 0;
  for (const part of message) length += part.length;
  return length;
}

/** Writes the prefix of a message that is not compressed. */
export function writePrefix(target: Buffer, length: number): void {
  target[0] = 0;
  target.writeUInt32BE(length, 1);
}

/** A message behind its prefix, copied together. */
export function framed(message: Message, length: number): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + length);
  writePrefix(frame, length);
  if (message instanceof Uint8Array) {
    frame.set(message, PREFIX_BYTES);
    return frame;
  }
  let position = PREFIX_BYTES;
  for (const part of message) {
    frame.set(part, position);
    position += part.length;
  }
  return frame;
}
