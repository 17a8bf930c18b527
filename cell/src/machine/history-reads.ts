/** Look-ups in `history` that see the rows which the present batch has not handed to the store yet. */
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import { compareBytes } from "./bytes.ts";
import { getUint32, getUint64 } from "./codec/primitives.ts";
import { historyKey } from "./keys.ts";
import type { HistoryRow } from "./rows.ts";
import { readHistoryRow } from "./rows.ts";
import type { RowSink } from "./sink.ts";
import type { RowMutation } from "./types.ts";

export interface Place {
  readonly revision: number;
  readonly sub: number;
}

export class HistoryReads {
  private readonly sink: RowSink;

  constructor(sink: RowSink) {
    this.sink = sink;
  }

  /** One row for each place, in order; undefined where there is none. */
  getMany(namespaceId: number, places: readonly Place[], reader: StoreReader): (HistoryRow | undefined)[] {
    const pending = this.sink.pendingHistory;
    const firstPending = pending[0] === undefined ? Infinity : revisionOf(pending[0]);
    const rows = new Array<HistoryRow | undefined>(places.length).fill(undefined);
    const keys: Uint8Array[] = [];
    const positions: number[] = [];
    for (const [i, place] of places.entries()) {
      const found = place.revision >= firstPending ? findPending(pending, place) : undefined;
      if (found !== undefined) {
        rows[i] = decode(found);
      } else {
        keys.push(historyKey(namespaceId, place.revision, place.sub));
        positions.push(i);
      }
    }
    if (keys.length === 0) return rows;
    const values = reader.getMany("history", keys);
    for (const [i, value] of values.entries()) {
      if (value === undefined) continue;
      rows[positions[i] as number] = readHistoryRow(keys[i] as Uint8Array, value);
    }
    return rows;
  }

  get(namespaceId: number, place: Place, reader: StoreReader): HistoryRow | undefined {
    return this.getMany(namespaceId, [place], reader)[0];
  }

  /** The newest row of the namespace in [from, to] revisions. */
  last(
    namespaceId: number,
    span: { readonly from: number; readonly to: number },
    reader: StoreReader,
  ): HistoryRow | undefined {
    const { from, to } = span;
    if (to < from) return undefined;
    const pending = this.sink.pendingHistory;
    for (let i = pending.length - 1; i >= 0; i--) {
      const row = pending[i] as RowMutation;
      const revision = revisionOf(row);
      if (revision < from) break;
      if (revision <= to && getUint32(row.key, 0) === namespaceId) return decode(row);
    }
    const rows = reader.scan("history", {
      from: historyKey(namespaceId, from, 0),
      to: historyKey(namespaceId, to + 1, 0),
      reverse: true,
      limit: 1,
    });
    const row = rows[0];
    return row === undefined ? undefined : readHistoryRow(row.key, row.value);
  }
}

function revisionOf(row: RowMutation): number {
  return getUint64(row.key, 4);
}

function decode({ key, value }: RowMutation): HistoryRow {
  assert(value !== undefined, "a pending history row has a value");
  return readHistoryRow(key, value);
}

/** Revisions belong to one namespace each, so (revision, sub) is enough. */
function findPending(pending: readonly RowMutation[], place: Place): RowMutation | undefined {
  let low = 0;
  let high = pending.length - 1;
  while (low <= high) {
    const middle = (low + high) >>> 1;
    const row = pending[middle] as RowMutation;
    const order = revisionOf(row) - place.revision || getUint32(row.key, 12) - place.sub;
    if (order === 0) return row;
    if (order < 0) low = middle + 1;
    else high = middle - 1;
  }
  return undefined;
}

/** For sorting row keys. */
export const byKey = (a: { readonly key: Uint8Array }, b: { readonly key: Uint8Array }): number =>
  compareBytes(a.key, b.key);
