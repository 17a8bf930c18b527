import type { OutgoingHttpHeaders } from "node:http2";
import type { GrpcStatus } from "./call.ts";
import { DETAILS_LENGTH_MAX } from "./limits.ts";

/** Trailers of a call that went well. */
export const OK_TRAILERS: OutgoingHttpHeaders = { "grpc-status": "0" };

const PLAIN = /^[\x20-\x24\x26-\x7e]*$/;
const UNPRINTABLE = /[^\x20-\x7e]/g;

/** The trailers that tell a status. */
export function trailersOf({ code, details, metadata }: GrpcStatus): OutgoingHttpHeaders {
  const trailers: OutgoingHttpHeaders = { "grpc-status": String(code) };
  if (details !== "") trailers["grpc-message"] = percentEncoded(details.slice(0, DETAILS_LENGTH_MAX));
  if (metadata !== undefined) {
    for (const [name, value] of Object.entries(metadata)) trailers[name] = value.replace(UNPRINTABLE, "?");
  }
  return trailers;
}

/** As gRPC wants its message: UTF-8, with everything but printable ASCII (and the percent sign) as %XX. */
export function percentEncoded(text: string): string {
  // HTTP drops spaces at the ends of a value.
  if (PLAIN.test(text) && text.trim() === text) return text;
  const bytes = Buffer.from(text);
  let encoded = "";
  for (const [i, byte] of bytes.entries()) {
    const atEnd = i === 0 || i === bytes.length - 1;
    const plain = byte > 0x20 ? byte < 0x7f && byte !== 0x25 : byte === 0x20 && !atEnd;
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return encoded;
}
