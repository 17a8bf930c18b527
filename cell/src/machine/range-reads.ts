/** What all kinds of range reads share: pages of keys, their rows at a revision, and the bounds of a reply. */
import type { KeyValue, RangeOperation } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import type { Place } from "./history-reads.ts";
import type { KeyStates } from "./key-states.ts";
import type { KeySpan, Met } from "./live-scan.ts";
import { KeyScan } from "./live-scan.ts";
import type { HistoryRow } from "./rows.ts";
import type { MachineState, NamespaceState } from "./state.ts";

export const VALUE_PAGE_KEYS = 256;
export const VALUE_PAGE_BYTES: number = 1024 * 1024;

export interface RangeReads {
  readonly state: MachineState;
  readonly keys: KeyStates;
  readonly reader: StoreReader;
  /** No more keys are counted than what tells whether there is another one. */
  readonly uncounted?: boolean;
}

export interface RangeAnswer {
  readonly kvs: KeyValue[];
  count: number;
  more: boolean;
}

/** What one reply may still hold: the asked limit, the replicated bounds, at least one key. */
export class ReplyBounds {
  keysLeft: number;
  private bytesLeft: number;
  readonly keysOnly: boolean;

  constructor(reads: RangeReads, operation: RangeOperation) {
    const { rangeKeysMax, rangeReplyBytesMax } = reads.state.settings.limits;
    const asked = operation.limit === undefined || operation.limit === 0 ? rangeKeysMax : operation.limit;
    this.keysLeft = Math.min(asked, rangeKeysMax);
    this.bytesLeft = rangeReplyBytesMax;
    this.keysOnly = operation.keysOnly === true;
  }

  /** @returns false when `kv` does not fit any more; nothing fits after it. */
  take(kv: KeyValue, first: boolean): boolean {
    if (this.keysLeft <= 0) return false;
    const bytes = kv.key.length + kv.value.length;
    if (bytes > this.bytesLeft && !first) {
      this.keysLeft = 0;
      return false;
    }
    this.keysLeft -= 1;
    this.bytesLeft -= bytes;
    return true;
  }
}

export function storedValue(row: HistoryRow | undefined): Uint8Array {
  assert(row !== undefined && !row.deletion, "index names a put in history");
  return row.value;
}

export function placeOf(row: { readonly modRevision: number; readonly sub: number }): Place {
  return { revision: row.modRevision, sub: row.sub };
}

export function scanOf(
  reads: RangeReads,
  namespace: NamespaceState,
  span: KeySpan,
  how: { readonly reverse: boolean; readonly deleted: boolean },
): KeyScan {
  return new KeyScan(reads.keys, { namespaceId: namespace.id, span, ...how }, reads.reader);
}

export function nextPage(scan: KeyScan): Met[] {
  const page: Met[] = [];
  for (let bytes = 0; page.length < VALUE_PAGE_KEYS && bytes < VALUE_PAGE_BYTES;) {
    const met = scan.next();
    if (met === undefined) break;
    page.push(met);
    bytes += met.record?.size ?? met.row?.size ?? 0;
  }
  return page;
}

/** For each key the put that was its newest change at `revision`; undefined when it did not exist then. */
export function rowsAsOf(
  reads: RangeReads,
  namespace: NamespaceState,
  page: readonly Met[],
  revision: number,
): (HistoryRow | undefined)[] {
  const rows = new Array<HistoryRow | undefined>(page.length).fill(undefined);
  let positions: number[] = [];
  let places: Place[] = [];
  for (const [i, met] of page.entries()) {
    const newest = met.record ?? met.row;
    assert(newest !== undefined, "a scanned key has a record or a row");
    if (newest.modRevision <= revision && !met.live) continue;
    positions.push(i);
    places.push(placeOf(newest));
  }
  while (places.length > 0) {
    const found = reads.keys.history.getMany(namespace.id, places, reads.reader);
    const nextPositions: number[] = [];
    const nextPlaces: Place[] = [];
    for (const [i, row] of found.entries()) {
      // Only a deletion below the compaction point may be gone while a later row still names it.
      if (row === undefined) continue;
      if (row.revision <= revision) {
        if (!row.deletion) rows[positions[i] as number] = row;
      } else if (goesOn(row, revision)) {
        nextPositions.push(positions[i] as number);
        nextPlaces.push({ revision: row.previousRevision, sub: row.previousSub });
      }
    }
    positions = nextPositions;
    places = nextPlaces;
  }
  return rows;
}

function goesOn(row: HistoryRow, revision: number): boolean {
  return row.previousRevision > 0 && !(row.previousDeleted && row.previousRevision <= revision);
}
