import { AFTER_LAST_KEY, FIRST_KEY, scanWanted } from "./bounds.ts";
import { StoreError } from "./errors.ts";
import type { NativeDatabase, NativeIterator } from "./rocks-binding.ts";
import type { Columns } from "./rocks-options.ts";
import { KEYSPACES, type Keyspace, type Row, type ScanOptions, type StoreView } from "./types.ts";

/** Rows fetched per native call; what a scan does not want of them is dropped. */
const FETCH_ROWS_MAX = 128;
const FETCH_BYTES_MAX = 128 * 1024;
const EMPTY_VALUE: Uint8Array = new Uint8Array(0);

interface Cursors {
  readonly forward: NativeIterator;
  readonly backward: NativeIterator;
  /**
   * What the forward cursor has fetched and no scan has taken, in alternation of key and value, if the next scan begins
   * right after the last one: a stream of everything then neither seeks nor fetches anything twice.
   */
  ahead: { readonly after: Uint8Array; readonly rows: readonly (Buffer | undefined)[] } | undefined;
}

/**
 * A view is a set of native iterators: the binding has no snapshot handle, but an iterator sees the database as it was
 * when it was made, and nothing writes between the makings (one thread, no await). A direction is fixed when an
 * iterator is made, so there are two for each keyspace. Point reads are seeks: good for streams of the state and for
 * occasional reads, not for the apply path.
 */
export class RocksView implements StoreView {
  readonly #cursors: Readonly<Record<Keyspace, Cursors>>;
  readonly #onClose: () => void;
  #closed = false;

  constructor(database: NativeDatabase, columns: Columns, onClose: () => void) {
    const make = (keyspace: Keyspace, reverse: boolean): NativeIterator =>
      database._iterator({
        column: columns[keyspace].column,
        keyEncoding: "buffer",
        valueEncoding: "buffer",
        reverse,
        values: true,
        limit: -1,
        highWaterMarkBytes: FETCH_BYTES_MAX,
        // A stream of the whole state must not push the working set out of the block cache.
        fillCache: false,
        asyncIO: false,
      });
    const entries = KEYSPACES.map((keyspace): [Keyspace, Cursors] => [
      keyspace,
      { forward: make(keyspace, false), backward: make(keyspace, true), ahead: undefined },
    ]);
    this.#cursors = Object.fromEntries(entries) as Record<Keyspace, Cursors>;
    this.#onClose = onClose;
  }

  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined {
    this.#mustBeOpen();
    if (key.length === 0) return undefined;
    const cursors = this.#cursors[keyspace];
    const { forward } = cursors;
    cursors.ahead = undefined;
    forward._seekSync(key);
    const [found, value] = forward._nextvSync(1).rows;
    return found !== undefined && Buffer.compare(found, key) === 0 ? value : undefined;
  }

  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[] {
    return keys.map((key) => this.get(keyspace, key));
  }

  scan(keyspace: Keyspace, options: ScanOptions): Row[] {
    this.#mustBeOpen();
    if (!scanWanted(options)) return [];
    const cursors = this.#cursors[keyspace];
    if (options.reverse !== true) return scanForward(cursors, options);
    cursors.backward._seekSync(nonEmpty(options.to ?? AFTER_LAST_KEY));
    const taker = new RowTaker(options);
    while (!taker.full) {
      const { rows, finished } = cursors.backward._nextvSync(Math.min(FETCH_ROWS_MAX, taker.wanted));
      taker.takeAll(rows);
      if (finished) break;
    }
    return taker.rows;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // The native iterators are released synchronously inside these calls; only their book-keeping comes later.
    for (const { forward, backward } of Object.values(this.#cursors)) {
      void forward.close();
      void backward.close();
    }
    this.#onClose();
  }

  #mustBeOpen(): void {
    if (this.#closed) throw new StoreError("closed", "the view is closed");
  }
}

function scanForward(cursors: Cursors, options: ScanOptions): Row[] {
  const taker = new RowTaker(options);
  const { forward, ahead } = cursors;
  cursors.ahead = undefined;
  let rest: readonly (Buffer | undefined)[] = [];
  if (ahead !== undefined && isRightAfter(options.from, ahead.after)) rest = taker.takeAll(ahead.rows);
  else forward._seekSync(nonEmpty(options.from));
  while (!taker.full) {
    const { rows, finished } = forward._nextvSync(Math.min(FETCH_ROWS_MAX, taker.wanted));
    rest = taker.takeAll(rows);
    if (finished) break;
  }
  const last = taker.rows.at(-1);
  if (last !== undefined) cursors.ahead = { after: last.key, rows: rest };
  return taker.rows;
}

/** Whether no key lies between the two: `from` is the smallest one after `key`. */
function isRightAfter(from: Uint8Array, key: Uint8Array): boolean {
  return (
    from.length === key.length + 1 && from.at(-1) === 0 && Buffer.compare(from.subarray(0, -1), key) === 0
  );
}

/** Applies a scan's bounds to rows as they come. */
class RowTaker {
  readonly rows: Row[] = [];
  readonly #options: ScanOptions;
  /** The scan has all it may have. */
  full = false;
  #bytes = 0;

  constructor(options: ScanOptions) {
    this.#options = options;
  }

  /** @param flat key, value, key, value, … @returns those that were not looked at, or were beyond the scan's end. */
  takeAll(flat: readonly (Buffer | undefined)[]): readonly (Buffer | undefined)[] {
    for (let at = 0; at + 1 < flat.length; at += 2) {
      const taken = this.rows.length;
      if (this.#take(flat[at], flat[at + 1])) continue;
      this.full = true;
      return flat.slice(this.rows.length > taken ? at + 2 : at);
    }
    return [];
  }

  /** Rows to fetch at most: one more than the limit, for the upper bound that a reverse scan leaves out. */
  get wanted(): number {
    return this.#options.limit - this.rows.length + 1;
  }

  /** @returns false when the scan has all it may have. */
  #take(key: Buffer | undefined, value: Buffer | undefined): boolean {
    const { from, to, reverse, limit, bytesMax, keysOnly } = this.#options;
    if (key === undefined || this.rows.length >= limit) return false;
    const belowEnd = to === undefined || Buffer.compare(key, to) < 0;
    // A reverse cursor starts at the upper bound itself, which is exclusive.
    if (!belowEnd) return reverse === true;
    if (reverse === true && Buffer.compare(key, from) < 0) return false;
    const row = { key, value: keysOnly === true ? EMPTY_VALUE : (value ?? EMPTY_VALUE) };
    this.rows.push(row);
    this.#bytes += row.key.length + row.value.length;
    return this.rows.length < limit && (bytesMax === undefined || this.#bytes < bytesMax);
  }
}

function nonEmpty(key: Uint8Array): Uint8Array {
  return key.length === 0 ? FIRST_KEY : key;
}
