/**
 * The whole store as a stream of chunks, from a pinned view at one applied index (W16) into a fresh store. Both ends
 * work in slices, so that heartbeats never wait behind a snapshot. A SHA-256 over all chunks stands in the last one.
 */
import { createHash } from "node:crypto";
import { assert } from "../invariant.ts";
import { StoreError } from "./errors.ts";
import { ChunkReader, ChunkWriter, HASH_BYTES, invalid, STREAM_KEYSPACES } from "./snapshot-format.ts";
import type { Keyspace, Row, Store, StoreView } from "./types.ts";

/** Bounds of one slice: about a millisecond of work (a row costs a few microseconds to read or write). */
const SLICE_ROWS_MAX = 256;
const SLICE_BYTES_MAX = 64 * 1024;
const CHUNK_BYTES_DEFAULT = 256 * 1024;
/** Above this the sink waits for RocksDB, which would otherwise delay its writes on the event loop. */
const STALL_PRESSURE_MAX = 0.8;

/**
 * Lets other work run: `turn` between slices, `stalled` while the store nears a write stall (called again until it
 * does not).
 */
export type Pause = (reason: "turn" | "stalled") => Promise<void>;

export interface StateSourceOptions {
  /** A chunk ends after the row that reaches this many bytes. Default 256 KiB. */
  readonly chunkBytes?: number;
  readonly pause: Pause;
}

export interface StateSource {
  /**
   * Chunk `number`: the next one, or the last one again (resume). undefined: there are no more chunks.
   */
  chunk(number: number): Promise<Uint8Array | undefined>;
  /** Also closes the view. */
  close(): void;
}

export interface StateSummary {
  readonly chunks: number;
  readonly bytes: number;
  readonly rows: Readonly<Record<Keyspace, number>>;
  /** SHA-256, hexadecimal. */
  readonly hash: string;
}

export interface StateSink {
  /** The chunk wanted next; a receiver that lost its connection asks for it. */
  readonly nextChunk: number;
  /** Takes in the next chunk. Rejection is final: the store under it must be thrown away. */
  chunk(data: Uint8Array): Promise<void>;
  /**
   * @returns what was received, verified.
   * @throws {@link StoreError} `snapshot-invalid` when the stream is not complete
   */
  finish(): StateSummary;
}

export interface StateSinkOptions {
  readonly pause: Pause;
}

/** Streams `view`, which it owns from now on. */
export function createSnapshotSource(view: StoreView, options: StateSourceOptions): StateSource {
  return new ViewSource(view, options.chunkBytes ?? CHUNK_BYTES_DEFAULT, options.pause);
}

/**
 * Fills `store`, which must be fresh, and leaves its barrier to the caller.
 *
 * @throws {@link StoreError} `not-fresh`
 */
export function createSnapshotSink(store: Store, options: StateSinkOptions): StateSink {
  for (const [keyspace] of STREAM_KEYSPACES) {
    const rows = store.scan(keyspace, { from: new Uint8Array(0), limit: 1, keysOnly: true });
    if (rows.length > 0) throw new StoreError("not-fresh", `the store already holds rows in ${keyspace}`);
  }
  return new StoreSink(store, options.pause);
}

class ViewSource implements StateSource {
  readonly #view: StoreView;
  readonly #chunkBytes: number;
  readonly #pause: Pause;
  readonly #hash = createHash("sha256");
  readonly #rows = STREAM_KEYSPACES.map(() => 0);
  /** Position in STREAM_KEYSPACES, and the first key not yet sent. */
  #keyspaceAt = 0;
  #from: Uint8Array = new Uint8Array(0);
  #last: { readonly number: number; readonly data: Promise<Uint8Array | undefined> } | undefined;
  #ended = false;

  constructor(view: StoreView, chunkBytes: number, pause: Pause) {
    this.#view = view;
    this.#chunkBytes = chunkBytes;
    this.#pause = pause;
  }

  chunk(number: number): Promise<Uint8Array | undefined> {
    const last = this.#last;
    if (last?.number === number) return last.data;
    const due = last === undefined ? 0 : last.number + 1;
    assert(number === due, "a chunk is the next one or the last one again", { number, due });
    const data = last === undefined ? this.#build(number) : last.data.then(() => this.#build(number));
    this.#last = { number, data };
    return data;
  }

  close(): void {
    this.#view.close();
  }

  async #build(number: number): Promise<Uint8Array | undefined> {
    if (this.#ended) return undefined;
    const data = this.#keyspaceAt < STREAM_KEYSPACES.length ? await this.#rowsChunk(number) : undefined;
    if (data === undefined) return this.#endChunk(number);
    this.#hash.update(data);
    return data;
  }

  /** @returns undefined when no row is left. */
  async #rowsChunk(number: number): Promise<Uint8Array | undefined> {
    const writer = new ChunkWriter("rows", number, this.#chunkBytes + SLICE_BYTES_MAX);
    let rowsTotal = 0;
    let sectionOf = -1;
    for (;;) {
      const current = STREAM_KEYSPACES[this.#keyspaceAt];
      if (current === undefined || writer.length >= this.#chunkBytes) break;
      const rows = this.#slice(current[0], this.#chunkBytes - writer.length);
      if (rows.length > 0 && sectionOf !== this.#keyspaceAt) {
        writer.beginSection(current[1]);
        sectionOf = this.#keyspaceAt;
      }
      for (const row of rows) writer.addRow(row);
      rowsTotal += rows.length;
      this.#advance(rows);
      await this.#pause("turn");
    }
    return rowsTotal === 0 ? undefined : writer.bytes();
  }

  #slice(keyspace: Keyspace, bytesLeft: number): Row[] {
    const bytesMax = Math.min(SLICE_BYTES_MAX, bytesLeft);
    return this.#view.scan(keyspace, { from: this.#from, limit: SLICE_ROWS_MAX, bytesMax });
  }

  #advance(rows: readonly Row[]): void {
    const last = rows.at(-1);
    if (last === undefined) {
      this.#keyspaceAt += 1;
      this.#from = new Uint8Array(0);
      return;
    }
    this.#rows[this.#keyspaceAt] = (this.#rows[this.#keyspaceAt] ?? 0) + rows.length;
    // The smallest key after `last.key`.
    this.#from = Buffer.concat([last.key, Buffer.alloc(1)]);
  }

  #endChunk(number: number): Uint8Array {
    const writer = new ChunkWriter("end", number, 7 * STREAM_KEYSPACES.length + HASH_BYTES);
    STREAM_KEYSPACES.forEach(([, keyspaceNumber], at) => {
      writer.addCount(keyspaceNumber, this.#rows[at] ?? 0);
    });
    writer.addHash(this.#hash.update(writer.bytes()).digest());
    this.#ended = true;
    return writer.bytes();
  }
}

class StoreSink implements StateSink {
  readonly #store: Store;
  readonly #pause: Pause;
  readonly #hash = createHash("sha256");
  readonly #rows = new Map<number, number>(STREAM_KEYSPACES.map(([, number]) => [number, 0]));
  #keyspaceNumber = 0;
  #lastKey: Uint8Array = new Uint8Array(0);
  #nextChunk = 0;
  #bytes = 0;
  #state: "open" | "busy" | "failed" | { readonly hash: string } = "open";

  constructor(store: Store, pause: Pause) {
    this.#store = store;
    this.#pause = pause;
  }

  get nextChunk(): number {
    return this.#nextChunk;
  }

  async chunk(data: Uint8Array): Promise<void> {
    assert(this.#state !== "busy", "chunks are taken in one by one");
    if (this.#state !== "open")
      throw invalid(this.#state === "failed" ? "already failed" : "a chunk after the end");
    this.#state = "busy";
    try {
      const reader = new ChunkReader(data, this.#nextChunk);
      const hash = reader.kind === "rows" ? await this.#takeRows(reader, data) : this.#takeEnd(reader);
      this.#nextChunk += 1;
      this.#bytes += data.length;
      this.#state = hash === undefined ? "open" : { hash };
    } catch (error) {
      this.#state = "failed";
      throw error;
    }
  }

  finish(): StateSummary {
    if (typeof this.#state === "string") throw invalid("not complete");
    const rows = STREAM_KEYSPACES.map(([keyspace, number]) => [keyspace, this.#rows.get(number) ?? 0]);
    return {
      chunks: this.#nextChunk,
      bytes: this.#bytes,
      rows: Object.fromEntries(rows) as Record<Keyspace, number>,
      hash: this.#state.hash,
    };
  }

  async #takeRows(reader: ChunkReader, data: Uint8Array): Promise<undefined> {
    this.#hash.update(data);
    while (!reader.done) {
      const section = reader.section();
      if (section.keyspaceNumber < this.#keyspaceNumber) throw invalid("keyspaces out of order");
      if (section.keyspaceNumber !== this.#keyspaceNumber) this.#lastKey = new Uint8Array(0);
      this.#keyspaceNumber = section.keyspaceNumber;
      let left = section.rows;
      while (left > 0) {
        left -= this.#writeSlice(section.keyspace, reader, left);
        await this.#pause("turn");
        while (this.#store.statistics().stallPressure > STALL_PRESSURE_MAX) await this.#pause("stalled");
      }
      const rows = (this.#rows.get(section.keyspaceNumber) ?? 0) + section.rows;
      this.#rows.set(section.keyspaceNumber, rows);
    }
  }

  /** @returns rows written. */
  #writeSlice(keyspace: Keyspace, reader: ChunkReader, rowsMax: number): number {
    let written = 0;
    let bytes = 0;
    this.#store.write((batch) => {
      while (written < Math.min(rowsMax, SLICE_ROWS_MAX) && bytes < SLICE_BYTES_MAX) {
        const { key, value } = reader.row();
        if (Buffer.compare(this.#lastKey, key) >= 0) throw invalid("keys out of order");
        batch.put(keyspace, key, value);
        this.#lastKey = key;
        written += 1;
        bytes += key.length + value.length;
      }
    });
    // The chunk's memory belongs to the transport once the chunk is taken in.
    this.#lastKey = Buffer.from(this.#lastKey);
    return written;
  }

  #takeEnd(reader: ChunkReader): string {
    for (const [keyspace, number] of STREAM_KEYSPACES) {
      const count = reader.count();
      if (count.keyspaceNumber !== number) throw invalid("row counts out of order");
      const received = this.#rows.get(number) ?? 0;
      if (count.rows !== received) throw invalid(`${received} of ${count.rows} rows in ${keyspace}`);
    }
    const { hashed, hash } = reader.hash();
    if (!reader.done) throw invalid("bytes after the hash");
    if (!this.#hash.update(hashed).digest().equals(hash)) throw invalid("hash mismatch");
    return Buffer.from(hash).toString("hex");
  }
}
