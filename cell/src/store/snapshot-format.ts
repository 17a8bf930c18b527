/** Byte layout of a state stream (FORMAT.md). Integers are big-endian. */
import { StoreError } from "./errors.ts";
import type { Keyspace, Row } from "./types.ts";

/** "LS" */
const MAGIC = 0x4c53;
const VERSION = 1;
export const HEADER_BYTES = 8;
const SECTION_BYTES = 5;
const ROW_BYTES = 6;
export const HASH_BYTES = 32;

export type ChunkKind = "rows" | "end";

/** On the wire and therefore fixed; also the order of keyspaces in a stream. */
export const STREAM_KEYSPACES: readonly (readonly [Keyspace, number])[] = [
  ["index", 1],
  ["history", 2],
  ["leases", 3],
  ["lease-keys", 4],
  ["requests", 5],
  ["meta", 6],
];

const KEYSPACE_OF: ReadonlyMap<number, Keyspace> = new Map(
  STREAM_KEYSPACES.map(([keyspace, number]) => [number, keyspace]),
);

/** Builds one chunk in a buffer that grows when a row is larger than foreseen. */
export class ChunkWriter {
  #buffer: Buffer;
  #length = HEADER_BYTES;
  #sectionAt = 0;
  #sectionRows = 0;

  constructor(kind: ChunkKind, number: number, bytesExpected: number) {
    this.#buffer = Buffer.allocUnsafe(HEADER_BYTES + bytesExpected);
    this.#buffer.writeUInt16BE(MAGIC, 0);
    this.#buffer.writeUInt8(VERSION, 2);
    this.#buffer.writeUInt8(kind === "rows" ? 1 : 2, 3);
    this.#buffer.writeUInt32BE(number, 4);
  }

  get length(): number {
    return this.#length;
  }

  beginSection(keyspaceNumber: number): void {
    this.#reserve(SECTION_BYTES);
    this.#sectionAt = this.#length;
    this.#sectionRows = 0;
    this.#buffer.writeUInt8(keyspaceNumber, this.#length);
    this.#buffer.writeUInt32BE(0, this.#length + 1);
    this.#length += SECTION_BYTES;
  }

  addRow({ key, value }: Row): void {
    this.#reserve(ROW_BYTES + key.length + value.length);
    this.#buffer.writeUInt16BE(key.length, this.#length);
    this.#buffer.writeUInt32BE(value.length, this.#length + 2);
    this.#buffer.set(key, this.#length + ROW_BYTES);
    this.#buffer.set(value, this.#length + ROW_BYTES + key.length);
    this.#length += ROW_BYTES + key.length + value.length;
    this.#sectionRows += 1;
    this.#buffer.writeUInt32BE(this.#sectionRows, this.#sectionAt + 1);
  }

  addCount(keyspaceNumber: number, rows: number): void {
    this.#reserve(7);
    this.#buffer.writeUInt8(keyspaceNumber, this.#length);
    this.#buffer.writeUIntBE(rows, this.#length + 1, 6);
    this.#length += 7;
  }

  addHash(hash: Uint8Array): void {
    this.#reserve(hash.length);
    this.#buffer.set(hash, this.#length);
    this.#length += hash.length;
  }

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  #reserve(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + bytes));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }
}

export interface Section {
  readonly keyspace: Keyspace;
  readonly keyspaceNumber: number;
  readonly rows: number;
}

/** Reads one chunk front to back. Every read that does not fit is `snapshot-invalid`. */
export class ChunkReader {
  readonly kind: ChunkKind;
  readonly #data: Buffer;
  #at = HEADER_BYTES;

  constructor(data: Uint8Array, numberExpected: number) {
    this.#data = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    if (this.#data.length < HEADER_BYTES || this.#data.readUInt16BE(0) !== MAGIC)
      throw invalid("not a chunk");
    const version = this.#data.readUInt8(2);
    if (version !== VERSION) throw invalid(`format version ${version}, this program reads ${VERSION}`);
    const kind = this.#data.readUInt8(3);
    if (kind !== 1 && kind !== 2) throw invalid(`unknown kind of chunk ${kind}`);
    this.kind = kind === 1 ? "rows" : "end";
    const number = this.#data.readUInt32BE(4);
    if (number !== numberExpected) throw invalid(`chunk ${number} where ${numberExpected} was due`);
  }

  get done(): boolean {
    return this.#at === this.#data.length;
  }

  section(): Section {
    const at = this.#take(SECTION_BYTES);
    const keyspaceNumber = this.#data.readUInt8(at);
    const keyspace = KEYSPACE_OF.get(keyspaceNumber);
    if (keyspace === undefined) throw invalid(`unknown keyspace ${keyspaceNumber}`);
    return { keyspace, keyspaceNumber, rows: this.#data.readUInt32BE(at + 1) };
  }

  /** Slices of the chunk, not copies. */
  row(): Row {
    const at = this.#take(ROW_BYTES);
    const keyBytes = this.#data.readUInt16BE(at);
    const keyAt = this.#take(keyBytes);
    const valueBytes = this.#data.readUInt32BE(at + 2);
    const valueAt = this.#take(valueBytes);
    if (keyBytes === 0) throw invalid("an empty key");
    return {
      key: this.#data.subarray(keyAt, keyAt + keyBytes),
      value: this.#data.subarray(valueAt, valueAt + valueBytes),
    };
  }

  count(): { readonly keyspaceNumber: number; readonly rows: number } {
    const at = this.#take(7);
    return { keyspaceNumber: this.#data.readUInt8(at), rows: this.#data.readUIntBE(at + 1, 6) };
  }

  /** Everything before the hash that ends the chunk, and the hash. */
  hash(): { readonly hashed: Uint8Array; readonly hash: Uint8Array } {
    const at = this.#take(HASH_BYTES);
    return { hashed: this.#data.subarray(0, at), hash: this.#data.subarray(at, at + HASH_BYTES) };
  }

  #take(bytes: number): number {
    const at = this.#at;
    if (at + bytes > this.#data.length) throw invalid("a chunk ends in the middle of a field");
    this.#at = at + bytes;
    return at;
  }
}

export function invalid(what: string): StoreError {
  return new StoreError("snapshot-invalid", `state stream: ${what}`);
}
