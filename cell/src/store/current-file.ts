/** The file `CURRENT` of a folder of generations (FORMAT.md). */
import { crc32 } from "node:zlib";
import { assert } from "../invariant.ts";
import { StoreError } from "./errors.ts";

const FIRST_LINE = "lockstep store 1";
const NOTE_BYTES_MAX = 64 * 1024;
const PATTERN =
  /^(lockstep store 1\ngeneration (gen-\d{6,15})\nnote ((?:[0-9a-f]{2})*)\n)crc32 ([0-9a-f]{8})\n$/;

export interface Current {
  readonly number: number;
  readonly note: Uint8Array;
}

export function encodeCurrent({ number, note }: Current): string {
  assert(note.length <= NOTE_BYTES_MAX, "note bytes <= 64 KiB", { bytes: note.length });
  const body = `${FIRST_LINE}\ngeneration ${folderName(number)}\nnote ${Buffer.from(note).toString("hex")}\n`;
  return `${body}crc32 ${checksum(body)}\n`;
}

/** @throws {@link StoreError} `generation-invalid` */
export function decodeCurrent(text: string): Current {
  const [, body = "", folder = "", note = "", crc = ""] = PATTERN.exec(text) ?? [];
  const number = folderNumber(folder);
  if (number === undefined || checksum(body) !== crc) {
    throw new StoreError("generation-invalid", "CURRENT is damaged or written by another version");
  }
  return { number, note: Buffer.from(note, "hex") };
}

export function folderName(number: number): string {
  assert(Number.isSafeInteger(number) && number > 0, "generation > 0", { number });
  return `gen-${String(number).padStart(6, "0")}`;
}

/** undefined: not the name of a generation's folder. */
export function folderNumber(name: string): number | undefined {
  const number = /^gen-\d{6,15}$/.test(name) ? Number(name.slice(4)) : 0;
  return number > 0 && folderName(number) === name ? number : undefined;
}

function checksum(body: string): string {
  return crc32(body).toString(16).padStart(8, "0");
}
