/** Byte strings of the machine's own kinds, and the general ones. */

export { Arena, compareBytes, copyInto, EMPTY, equalAt, equalBytes, hashKey, keyAfter } from "../bytes.ts";

/** One character for each byte: a Map key for rows off the hot path. */
export function latin1(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += String.fromCharCode(bytes[i] as number);
  return text;
}

/** `key` followed by `revision` as 16 decimal digits, which sort like the number. */
export function sequentialKey(key: Uint8Array, revision: number): Uint8Array {
  const stored = new Uint8Array(key.length + SEQUENCE_DIGITS);
  stored.set(key);
  let rest = revision;
  for (let at = stored.length - 1; at >= key.length; at--) {
    stored[at] = 0x30 + (rest % 10);
    rest = Math.floor(rest / 10);
  }
  return stored;
}

export const SEQUENCE_DIGITS = 16;
