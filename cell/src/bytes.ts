/** Byte strings without Node's Buffer: compared as unsigned bytes, copied in the way that is fast for their size. */

export const EMPTY: Uint8Array = new Uint8Array(0);

/** Below this a plain loop beats `set`, whose call costs more than the copy. */
const LOOP_COPY_MAX = 48;

/** Negative, zero or positive as `a` sorts before, with or after `b`. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shared = a.length < b.length ? a.length : b.length;
  for (let i = 0; i < shared; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = a.length - 1; i >= 0; i--) if (a[i] !== b[i]) return false;
  return true;
}

/** The smallest key after `key`: where a scan goes on. */
export function keyAfter(key: Uint8Array): Uint8Array {
  const after = new Uint8Array(key.length + 1);
  after.set(key);
  return after;
}

/** Whether `bytes` stand in `chunk` at `at`. */
export function equalAt(chunk: Uint8Array, at: number, bytes: Uint8Array): boolean {
  // Keys of one kind differ at their ends.
  for (let i = bytes.length - 1; i >= 0; i--) if (chunk[at + i] !== bytes[i]) return false;
  return true;
}

/** @returns the position after the copy. */
export function copyInto(target: Uint8Array, at: number, source: Uint8Array): number {
  const length = source.length;
  if (length <= LOOP_COPY_MAX) {
    for (let i = 0; i < length; i++) target[at + i] = source[i] as number;
  } else {
    target.set(source, at);
  }
  return at + length;
}

/** 32-bit hash of a key in a numbered space, for tables in memory: four bytes a step. */
export function hashKey(space: number, key: Uint8Array): number {
  const { length } = key;
  let hash = Math.imul(space ^ 0x9e3779b9, 0x85ebca6b) ^ length;
  let at = 0;
  for (; at + 4 <= length; at += 4) {
    const word =
      (key[at] as number) |
      ((key[at + 1] as number) << 8) |
      ((key[at + 2] as number) << 16) |
      ((key[at + 3] as number) << 24);
    hash = Math.imul(hash ^ word, 0x9e3779b1);
    hash ^= hash >>> 15;
  }
  for (; at < length; at++) hash = Math.imul(hash ^ (key[at] as number), 0x01000193);
  // Keys that differ in their last bytes only must not fall into neighbouring slots.
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/** Gives out copies cut from larger chunks, so that a small copy costs no allocation of its own. */
export class Arena {
  private chunk: Uint8Array = EMPTY;
  private used = 0;
  private readonly chunkBytes: number;

  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes;
  }

  allocate(length: number): Uint8Array {
    if (length === 0) return EMPTY;
    if (length > this.chunkBytes >>> 2) return new Uint8Array(length);
    if (this.used + length > this.chunk.length) {
      this.chunk = new Uint8Array(this.chunkBytes);
      this.used = 0;
    }
    const piece = new Uint8Array(this.chunk.buffer, this.used, length);
    this.used += length;
    return piece;
  }

  copy(source: Uint8Array, length: number = source.length): Uint8Array {
    const piece = this.allocate(length);
    if (length <= LOOP_COPY_MAX) for (let i = 0; i < length; i++) piece[i] = source[i] as number;
    else piece.set(length === source.length ? source : source.subarray(0, length));
    return piece;
  }
}
