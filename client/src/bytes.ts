/** Strings are UTF-8. */
export type Bytes = string | Uint8Array;

export function toBuffer(bytes: Bytes): Buffer {
  if (typeof bytes === "string") return Buffer.from(bytes, "utf8");
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * What a range may be given as: one key, all keys with a prefix, the half-open range `[from, to)`, or everything
 * from a key on (`to` absent). `{ prefix: "" }` is the whole namespace.
 */
export type RangeInput = Bytes | { readonly prefix: Bytes } | { readonly from: Bytes; readonly to?: Bytes };

/** On the wire: `rangeEnd` absent is one key, empty is everything from `key` on. */
export interface WireRange {
  readonly key: Buffer;
  readonly rangeEnd?: Buffer;
}

const EMPTY = Buffer.alloc(0);
// The smallest key: a namespace holds no empty key.
const FIRST_KEY = Buffer.from([0]);

/** The first key after all keys with `prefix`; empty when there is none (the prefix is all 0xff, or empty). */
export function prefixEnd(prefix: Uint8Array): Buffer {
  let length = prefix.length;
  while (length > 0 && prefix[length - 1] === 0xff) length -= 1;
  if (length === 0) return EMPTY;
  const end = Buffer.from(prefix.subarray(0, length));
  end[length - 1] = (end[length - 1] ?? 0) + 1;
  return end;
}

export function toWireRange(range: RangeInput): WireRange {
  if (typeof range === "string" || range instanceof Uint8Array) return { key: toBuffer(range) };
  if ("prefix" in range) {
    const key = toBuffer(range.prefix);
    return { key: key.length === 0 ? FIRST_KEY : key, rangeEnd: prefixEnd(key) };
  }
  const key = toBuffer(range.from);
  return {
    key: key.length === 0 ? FIRST_KEY : key,
    rangeEnd: range.to === undefined ? EMPTY : toBuffer(range.to),
  };
}
