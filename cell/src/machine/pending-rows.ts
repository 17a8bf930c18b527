/** A keyspace off the hot path as the present batch sees it: the store's rows under the batch's own changes. */
import type { Keyspace, Row, StoreReader } from "../store/types.ts";
import { compareBytes, latin1 } from "./bytes.ts";
import { byKey } from "./history-reads.ts";
import type { RowSink } from "./sink.ts";

interface Change {
  readonly key: Uint8Array;
  readonly value: Uint8Array | undefined;
}

export class PendingRows {
  private readonly changes = new Map<string, Change>();
  private readonly keyspace: Keyspace;
  private readonly sink: RowSink;

  constructor(keyspace: Keyspace, sink: RowSink) {
    this.keyspace = keyspace;
    this.sink = sink;
  }

  get(key: Uint8Array, reader: StoreReader): Uint8Array | undefined {
    const change = this.changes.size === 0 ? undefined : this.changes.get(latin1(key));
    return change === undefined ? reader.get(this.keyspace, key) : change.value;
  }

  put(key: Uint8Array, value: Uint8Array): void {
    this.sink.put(this.keyspace, key, value);
    this.changes.set(latin1(key), { key, value });
  }

  delete(key: Uint8Array): void {
    this.sink.delete(this.keyspace, key);
    this.changes.set(latin1(key), { key, value: undefined });
  }

  /** The first `limit` rows of [from, to). */
  scan(
    span: { readonly from: Uint8Array; readonly to: Uint8Array; readonly limit: number },
    reader: StoreReader,
  ): Row[] {
    const { from, to, limit } = span;
    const within: Change[] = [];
    for (const change of this.changes.values()) {
      if (compareBytes(change.key, from) >= 0 && compareBytes(change.key, to) < 0) within.push(change);
    }
    // Each change hides at most one stored row.
    const stored = reader.scan(this.keyspace, { from, to, limit: limit + within.length });
    if (within.length === 0) return stored;
    const rows = stored.filter((row) => !this.changes.has(latin1(row.key)));
    for (const { key, value } of within) if (value !== undefined) rows.push({ key, value });
    return rows.sort(byKey).slice(0, limit);
  }

  /** The batch is handed over: the store will hold everything. */
  settle(): void {
    this.changes.clear();
  }
}
