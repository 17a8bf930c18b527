/**
 * A store whose rows are written back late. The rows of a key that comes and goes (a lock, a place in a queue, a
 * session's count of keys) are changed again and again, and a row costs RocksDB ten times what it costs a table in
 * memory. So only `history`, where each row is written once, goes to the store below at once; all others wait in memory,
 * where the newest state of a row replaces the one before, and are handed down together: at a barrier, before a view,
 * and above a bound.
 *
 * What was handed down last is a whole state at an applied index, because the row that names this index waits with the
 * others and goes with them in one atomic batch. A crash therefore goes back to it, as it may go back to the last
 * barrier anyway, and the log is applied again from there. Rows of `history` may be further: they are written again,
 * byte for byte the same. The deletion of one is not repeated by anything, so such a batch goes down as a whole.
 */
import { Arena, compareBytes, EMPTY, keyAfter } from "../bytes.ts";
import { assertKey, scanWanted } from "./bounds.ts";
import {
  type Keyspace,
  type Row,
  type ScanOptions,
  type Store,
  type StoreReader,
  type StoreStatistics,
  type StoreView,
  type WriteBatch,
} from "./types.ts";
import { WaitingRows, type WaitingRow } from "./waiting-rows.ts";

/** Handing them down takes about 10 ms of the event loop. A batch with more goes down at once. */
const ROWS_MAX_DEFAULT = 2048;
const BYTES_MAX_DEFAULT = 8 * 1024 * 1024;
/** Rows of a scan's second page and those after it. */
const PAGE_ROWS_MIN = 64;
const CHUNK_BYTES = 64 * 1024;
/** Rows that came and went are held too, so that they are not handed down: so many for each that is. */
const HELD_FACTOR = 4;

export interface WriteBackOptions {
  /** Rows that wait at most. Default 2,048. */
  readonly rowsMax?: number;
  /** Bytes written since rows were handed down, of `history` and of replaced states too. Default 8 MiB. */
  readonly bytesMax?: number;
}

/** @param below its only user is the store that is returned */
export function writeBack(below: Store, options: WriteBackOptions = {}): Store {
  return new WriteBackStore(below, options);
}

type WaitingKeyspace = Exclude<Keyspace, "history">;
type Waiting = Readonly<Record<WaitingKeyspace, WaitingRows>>;
const WAITING: readonly WaitingKeyspace[] = ["index", "leases", "lease-keys", "requests", "meta"];

class WriteBackStore implements Store {
  readonly #below: Store;
  readonly #rowsMax: number;
  readonly #bytesMax: number;
  readonly #waiting: Waiting = noRows();
  #bytes = 0;
  readonly #staged = new StagedBatch();
  /** The present write takes all that waits with it. */
  #handsDown = false;

  constructor(below: Store, { rowsMax, bytesMax }: WriteBackOptions) {
    this.#below = below;
    this.#rowsMax = rowsMax ?? ROWS_MAX_DEFAULT;
    this.#bytesMax = bytesMax ?? BYTES_MAX_DEFAULT;
  }

  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined {
    return this.getMany(keyspace, [key])[0];
  }

  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[] {
    const waiting = this.#rowsOf(keyspace);
    if (waiting === undefined) return this.#below.getMany(keyspace, keys);
    const rows = keys.map((key) => waiting.get(key));
    const others = keys.filter((_, i) => rows[i] === undefined);
    const stored = this.#below.getMany(keyspace, others);
    let next = 0;
    return rows.map((row) => (row === undefined ? stored[next++] : row.value));
  }

  scan(keyspace: Keyspace, options: ScanOptions): Row[] {
    const waiting = this.#rowsOf(keyspace);
    if (waiting === undefined || !scanWanted(options)) return this.#below.scan(keyspace, options);
    const over = new WaitingCursor(waiting.ascending(), options);
    if (over.row === undefined) return this.#below.scan(keyspace, options);
    return merge(over, new StoredCursor(this.#below, keyspace, options), options);
  }

  write(fill: (batch: WriteBatch) => void, isLasting = false): void {
    this.#below.write((batch) => {
      this.#staged.begin(batch, isLasting);
      this.#fill(batch, fill);
    });
    if (this.#handsDown) this.#forget();
  }

  view(): StoreView {
    this.#handDown();
    return this.#below.view();
  }

  async barrier(): Promise<void> {
    this.#handDown();
    await this.#below.barrier();
  }

  statistics(): StoreStatistics {
    return this.#below.statistics();
  }

  async close(): Promise<void> {
    try {
      this.#handDown();
    } catch {
      // It is closed, or has failed: the log has what waits here.
    }
    await this.#below.close();
  }

  get #isFull(): boolean {
    if (this.#bytes >= this.#bytesMax) return true;
    let rows = 0;
    let held = 0;
    for (const keyspace of WAITING) {
      rows += this.#waiting[keyspace].size;
      held += this.#waiting[keyspace].held;
    }
    return rows >= this.#rowsMax || held >= this.#rowsMax * HELD_FACTOR;
  }

  /** undefined: none waits. */
  #rowsOf(keyspace: Keyspace): WaitingRows | undefined {
    if (keyspace === "history") return undefined;
    const rows = this.#waiting[keyspace];
    return rows.held > 0 ? rows : undefined;
  }

  #fill(batch: WriteBatch, fill: (batch: WriteBatch) => void): void {
    const staged = this.#staged;
    fill(staged);
    for (const { keyspace, key, value, isNew } of staged.rows) this.#waiting[keyspace].set(key, value, isNew);
    this.#bytes += staged.bytes;
    this.#handsDown = staged.deletesHistory || this.#isFull;
    if (this.#handsDown) handDown(this.#waiting, batch);
  }

  #handDown(): void {
    if (this.#bytes === 0) return;
    this.#below.write((batch) => handDown(this.#waiting, batch));
    this.#forget();
  }

  #forget(): void {
    for (const keyspace of WAITING) this.#waiting[keyspace].clear();
    this.#bytes = 0;
    this.#staged.forget();
  }
}

function noRows(): Waiting {
  return {
    index: new WaitingRows(),
    leases: new WaitingRows(),
    "lease-keys": new WaitingRows(),
    requests: new WaitingRows(),
    meta: new WaitingRows(),
  };
}

function handDown(waiting: Waiting, batch: WriteBatch): void {
  for (const keyspace of WAITING) {
    for (const row of waiting[keyspace].toHandDown()) writeRow(batch, keyspace, row);
  }
}

function writeRow(batch: WriteBatch, keyspace: Keyspace, { key, value }: WaitingRow): void {
  if (value === undefined) batch.delete(keyspace, key);
  else batch.put(keyspace, key, value);
}

interface StagedRow {
  readonly keyspace: WaitingKeyspace;
  readonly key: Uint8Array;
  readonly value: Uint8Array | undefined;
  readonly isNew: boolean;
}

/** Hands rows of `history` on and collects the others, until the batch is known to be whole. */
class StagedBatch implements WriteBatch {
  deletesHistory = false;
  /** Of all rows: a lasting row may be a small piece of memory that holds its neighbours too. */
  bytes = 0;
  #history: WriteBatch | undefined;
  #isLasting = false;
  #rows: StagedRow[] = [];
  #copies = new Arena(CHUNK_BYTES);

  /** @param isLasting what is put needs no copy */
  begin(history: WriteBatch, isLasting: boolean): void {
    this.#history = history;
    this.#isLasting = isLasting;
    this.#rows.length = 0;
    this.deletesHistory = false;
    this.bytes = 0;
  }

  /** In the order of the batch. */
  get rows(): readonly StagedRow[] {
    return this.#rows;
  }

  put(keyspace: Keyspace, key: Uint8Array, value: Uint8Array, isNew = false): void {
    this.bytes += key.length + value.length;
    if (keyspace === "history") {
      this.#history?.put(keyspace, key, value);
      return;
    }
    assertKey(key);
    this.#rows.push({ keyspace, key: this.#lasting(key), value: this.#lasting(value), isNew });
  }

  delete(keyspace: Keyspace, key: Uint8Array): void {
    this.bytes += key.length;
    if (keyspace === "history") {
      this.deletesHistory = true;
      this.#history?.delete(keyspace, key);
      return;
    }
    assertKey(key);
    this.#rows.push({ keyspace, key: this.#lasting(key), value: undefined, isNew: false });
  }

  /** Whoever read a row may still hold its bytes, so that they are not used again. */
  forget(): void {
    this.#rows = [];
    this.#copies = new Arena(CHUNK_BYTES);
  }

  #lasting(bytes: Uint8Array): Uint8Array {
    return this.#isLasting ? bytes : this.#copies.copy(bytes);
  }
}

/** The waiting rows of a scan's range, in its order. */
class WaitingCursor {
  readonly #ascending: readonly WaitingRow[];
  readonly #step: number;
  readonly #end: number;
  #at: number;

  constructor(ascending: readonly WaitingRow[], { from, to, reverse }: ScanOptions) {
    const first = rank(ascending, from);
    const end = to === undefined ? ascending.length : rank(ascending, to);
    this.#ascending = ascending;
    this.#step = reverse === true ? -1 : 1;
    this.#at = reverse === true ? end - 1 : first;
    this.#end = reverse === true ? first - 1 : Math.max(first, end);
  }

  /** undefined: the end. */
  get row(): WaitingRow | undefined {
    return this.#at === this.#end ? undefined : this.#ascending[this.#at];
  }

  advance(): void {
    this.#at += this.#step;
  }
}

/** How many of the rows sort before `key`. */
function rank(ascending: readonly WaitingRow[], key: Uint8Array): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareBytes((ascending[middle] as WaitingRow).key, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The rows of the store below, page by page. */
class StoredCursor {
  readonly #below: StoreReader;
  readonly #keyspace: Keyspace;
  readonly #options: ScanOptions;
  #limit: number;
  #page: readonly Row[];
  #at = 0;

  constructor(below: StoreReader, keyspace: Keyspace, options: ScanOptions) {
    this.#below = below;
    this.#keyspace = keyspace;
    this.#options = options;
    this.#limit = options.limit;
    this.#page = below.scan(keyspace, options);
  }

  /** undefined: the end. */
  get row(): Row | undefined {
    return this.#page[this.#at];
  }

  advance(): void {
    const last = this.#page[this.#at++];
    if (last === undefined || this.#at < this.#page.length || !this.#mayGoOn) return;
    // Many may be hidden by waiting deletions: one native scan each would be dear. The caller's limit is kept by merge.
    const more = { ...this.#options, limit: Math.max(this.#options.limit, PAGE_ROWS_MIN) };
    const rest =
      this.#options.reverse === true ? { ...more, to: last.key } : { ...more, from: keyAfter(last.key) };
    this.#limit = more.limit;
    this.#page = scanWanted(rest) ? this.#below.scan(this.#keyspace, rest) : [];
    this.#at = 0;
  }

  /** Whether the page ended at a bound of its own, and not at the end of the range. */
  get #mayGoOn(): boolean {
    const { bytesMax } = this.#options;
    if (this.#page.length >= this.#limit) return true;
    return bytesMax !== undefined && this.#page.reduce((sum, row) => sum + bytesOf(row), 0) >= bytesMax;
  }
}

function merge(waiting: WaitingCursor, stored: StoredCursor, options: ScanOptions): Row[] {
  const { limit, bytesMax, keysOnly, reverse } = options;
  const rows: Row[] = [];
  let bytes = 0;
  while (rows.length < limit && (bytesMax === undefined || bytes < bytesMax)) {
    const under = stored.row;
    const over = waiting.row;
    const order = over === undefined || under === undefined ? 0 : ahead(under, over, reverse === true);
    if (under !== undefined && (over === undefined || order < 0)) {
      rows.push(under);
      bytes += bytesOf(under);
      stored.advance();
      continue;
    }
    if (over === undefined) break;
    // A waiting row hides the stored one of the same key.
    if (under !== undefined && order === 0) stored.advance();
    waiting.advance();
    if (over.value === undefined) continue;
    const row = { key: over.key, value: keysOnly === true ? EMPTY : over.value };
    rows.push(row);
    bytes += bytesOf(row);
  }
  return rows;
}

/** Negative when `one` comes before `other` in the scan. */
function ahead(one: Row, other: WaitingRow, reverse: boolean): number {
  const order = compareBytes(one.key, other.key);
  return reverse ? -order : order;
}

function bytesOf({ key, value }: Row): number {
  return key.length + value.length;
}
