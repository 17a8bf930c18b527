import { isDeepStrictEqual } from "node:util";
import { BrokenLaw } from "../contract.ts";

/** What was decoded, encoded and decoded again is what it was. */
export function assertRoundTrip<T>(
  value: T,
  encode: (value: T) => Uint8Array,
  decode: (bytes: Buffer) => T,
): void {
  let again: T;
  try {
    again = decode(bufferOf(encode(value)));
  } catch (error) {
    throw new BrokenLaw(`what was accepted does not survive its own encoding: ${String(error)}`);
  }
  if (!isDeepStrictEqual(again, value)) {
    throw new BrokenLaw(`encoded and decoded again it differs:\n${show(value)}\n${show(again)}`);
  }
}

export function assertLaw(holds: boolean, law: string): void {
  if (!holds) throw new BrokenLaw(law);
}

/** A view, not a copy. */
export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

const SHOWN_MAX = 600;

export function show(value: unknown): string {
  const text = JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "bigint" ? String(inner) : inner,
  );
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}...` : text;
}
