/** gRPC's framing of messages: a byte that says whether it is compressed, four of length, and the message. */

const PREFIX_BYTES = 5;

/** A copy of the message behind its prefix. */
export function withPrefix(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, PREFIX_BYTES);
  return framed;
}

/**
 * Puts messages together again from what a stream brings, which is cut anywhere. One that came in one piece is a view of
 * that piece. What is unfinished takes as much memory as has come of it, not what its prefix promises.
 */
export class MessageReader {
  readonly #bytesMax: number;
  readonly #onMessage: (message: Buffer) => void;
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** With fewer bytes than these there is nothing to be read. */
  #neededBytes = 0;

  /** @param bytesMax of a message */
  constructor(bytesMax: number, onMessage: (message: Buffer) => void) {
    this.#bytesMax = bytesMax;
    this.#onMessage = onMessage;
  }

  /** A message has begun and is not whole. */
  get isInMessage(): boolean {
    return this.#heldBytes > 0;
  }

  /** @throws Error when the stream cannot be read any further */
  push(chunk: Buffer): void {
    const bytes = this.#withHeld(chunk);
    if (bytes === undefined) return;
    let start = 0;
    while (start < bytes.length) {
      const left = bytes.length - start;
      const needed = left < PREFIX_BYTES ? PREFIX_BYTES : PREFIX_BYTES + this.#lengthAt(bytes, start);
      if (left < needed) {
        this.#held = [bytes.subarray(start)];
        this.#heldBytes = left;
        this.#neededBytes = needed;
        return;
      }
      this.#onMessage(bytes.subarray(start + PREFIX_BYTES, start + needed));
      start += needed;
    }
  }

  /** @returns undefined: still too few to be read */
  #withHeld(chunk: Buffer): Buffer | undefined {
    if (this.#heldBytes === 0) return chunk;
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes < this.#neededBytes) return undefined;
    const bytes = Buffer.concat(this.#held, this.#heldBytes);
    this.#held = [];
    this.#heldBytes = 0;
    return bytes;
  }

  #lengthAt(bytes: Buffer, start: number): number {
    if (bytes[start] !== 0) throw new Error("the member sent a compressed message, which was not asked for");
    const length = bytes.readUInt32BE(start + 1);
    if (length <= this.#bytesMax) return length;
    throw new Error(
      `the member sent a message of ${String(length)} bytes, more than ${String(this.#bytesMax)}`,
    );
  }
}
