import { tokenDigits } from "./token.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("latin1");

const LABEL = "lockstep-token:";
const TOKEN_DIGITS = 16;
const WRITE_ID_LENGTH = 36;
const TRAILER_BYTES: number = 1 + LABEL.length + TOKEN_DIGITS + 1 + WRITE_ID_LENGTH + 1;

/**
 * Makes the bytes that are stored from those that were given. It must give different bytes for different tokens and
 * different write ids: an ETag says nothing about metadata, so only the bytes can tell two writes apart.
 */
export type Stamp = (body: Uint8Array, token: number, writeId: string) => Uint8Array;

/** The last line of a stored object, as `"trailer"` writes it. */
const trailerOf = (token: number, writeId: string): string => `\n${LABEL}${tokenDigits(token)}:${writeId}\n`;

export const withTrailer: Stamp = (body, token, writeId) => {
  const trailer = encoder.encode(trailerOf(token, writeId));
  const stored = new Uint8Array(body.length + trailer.length);
  stored.set(body);
  stored.set(trailer, body.length);
  return stored;
};

/** The body without its trailer; undefined when it has not just this one. */
export function withoutTrailer(stored: Uint8Array, token: number, writeId: string): Uint8Array | undefined {
  const end = stored.length - TRAILER_BYTES;
  if (end < 0 || decoder.decode(stored.subarray(end)) !== trailerOf(token, writeId)) return undefined;
  return stored.subarray(0, end);
}
