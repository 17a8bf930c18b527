/**
 * Ranges in another order than the keys', or with a filter: every key of the range is looked at before one is
 * answered, so their number is bounded.
 */
import type {
  Failure,
  KeyValue,
  RangeFilter,
  RangeOperation,
  RangeSort,
} from "@lockstep/gateway/coordinator";
import { assert, assertNever } from "../invariant.ts";
import { compareBytes, EMPTY } from "./bytes.ts";
import { refusal } from "./failures.ts";
import type { Place } from "./history-reads.ts";
import type { KeyMetadata } from "./key-states.ts";
import { keyValue } from "./key-states.ts";
import type { Met } from "./live-scan.ts";
import { spanOf } from "./live-scan.ts";
import type { RangeAnswer, RangeReads } from "./range-reads.ts";
import {
  nextPage,
  placeOf,
  ReplyBounds,
  rowsAsOf,
  scanOf,
  storedValue,
  VALUE_PAGE_KEYS,
} from "./range-reads.ts";
import type { HistoryRow } from "./rows.ts";
import type { NamespaceState } from "./state.ts";

/** Keys that such a range, or a compare over a range, may hold. Decides outcomes: never changed without a format version. */
export const SCAN_KEYS_MAX = 100_000;
/** Bytes of values that are compared with each other. Likewise. */
export const SORT_BYTES_MAX: number = 16 * 1024 * 1024;

/** One key as it was. */
interface Candidate extends KeyMetadata {
  readonly key: Uint8Array;
  readonly place: Place;
  /** Once it has been fetched. */
  value: Uint8Array | undefined;
}

interface Candidates {
  readonly list: readonly Candidate[];
  /** Keys in the range, whatever the filter. */
  readonly count: number;
  readonly tooMany: "keys" | "bytes" | undefined;
}

/** A range that {@link readOrdered} serves. */
export function isOrdered(operation: RangeOperation): boolean {
  return (operation.sort !== undefined || operation.filter !== undefined) && operation.countOnly !== true;
}

/**
 * Why the range is too large for its order or filter; undefined: it is not. To be asked before {@link readOrdered},
 * and before a transaction writes.
 */
export function orderedRefusal(
  reads: RangeReads,
  namespace: NamespaceState,
  operation: RangeOperation,
): Failure | undefined {
  if (!isOrdered(operation)) return undefined;
  const { revision } = operation;
  const past = revision !== undefined && revision !== 0 && revision < reads.state.revision;
  // Nothing to count when the whole namespace would do.
  if (!past && operation.sort?.target !== "value" && namespace.keys < SCAN_KEYS_MAX) return undefined;
  const most = { keys: SCAN_KEYS_MAX, bytes: SORT_BYTES_MAX };
  const { tooMany } = collect(reads, namespace, { operation, revision: past ? revision : undefined, most });
  switch (tooMany) {
    case undefined:
      return undefined;
    case "keys":
      return refusal(
        "too-many-keys",
        `a sorted or filtered range holds at most ${SCAN_KEYS_MAX} keys; read it in parts, or in key order`,
      );
    case "bytes":
      return refusal(
        "too-many-keys",
        `a range sorted by value holds at most ${SORT_BYTES_MAX} bytes; read it in parts, or in key order`,
      );
    default:
      return assertNever(tooMany);
  }
}

/** `revision` undefined: the newest state, with what the present transaction wrote. */
export function readOrdered(
  reads: RangeReads,
  namespace: NamespaceState,
  operation: RangeOperation,
  revision: number | undefined,
): RangeAnswer {
  // What the present transaction wrote may have come on top of what was checked.
  const unbounded = { keys: Infinity, bytes: Infinity };
  const { list, count } = collect(reads, namespace, { operation, revision, most: unbounded });
  const bounds = new ReplyBounds(reads, operation);
  const chosen = inOrder(list, operation.sort, bounds.keysLeft);
  const answer: RangeAnswer = { kvs: [], count, more: false };
  for (let at = 0; at < chosen.length; at += VALUE_PAGE_KEYS) {
    const page = chosen.slice(at, at + VALUE_PAGE_KEYS);
    if (!bounds.keysOnly && operation.sort?.target !== "value") fetchValues(reads, namespace, page);
    for (const candidate of page) {
      const value = bounds.keysOnly ? EMPTY : (candidate.value ?? EMPTY);
      const kv: KeyValue = keyValue(candidate, value, candidate.key);
      if (!bounds.take(kv, answer.kvs.length === 0)) break;
      answer.kvs.push(kv);
    }
    if (bounds.keysLeft <= 0) break;
  }
  answer.more = answer.kvs.length < list.length;
  return answer;
}

/** The first `most` of them in the asked order; equal ones stay in key order. */
function inOrder(
  list: readonly Candidate[],
  sort: RangeSort | undefined,
  most: number,
): readonly Candidate[] {
  if (sort === undefined) return list.slice(0, most);
  const sign = sort.descending === true ? -1 : 1;
  const compare = (a: Candidate, b: Candidate): number => sign * order(a, b, sort);
  if (most !== 1) return list.toSorted(compare).slice(0, most);
  // Who is first in line: the question of every mutex.
  let first = list[0];
  if (first === undefined) return [];
  for (const candidate of list) if (compare(candidate, first) < 0) first = candidate;
  return [first];
}

function order(a: Candidate, b: Candidate, { target }: RangeSort): number {
  switch (target) {
    case "version":
      return a.version - b.version;
    case "create-revision":
      return a.createRevision - b.createRevision;
    case "mod-revision":
      return a.modRevision - b.modRevision;
    case "value":
      return compareBytes(a.value ?? EMPTY, b.value ?? EMPTY);
    default:
      return assertNever(target);
  }
}

function passes(candidate: Candidate, filter: RangeFilter | undefined): boolean {
  if (filter === undefined) return true;
  const { minModRevision, maxModRevision, minCreateRevision, maxCreateRevision } = filter;
  return (
    (minModRevision === undefined || candidate.modRevision >= minModRevision) &&
    (maxModRevision === undefined || candidate.modRevision <= maxModRevision) &&
    (minCreateRevision === undefined || candidate.createRevision >= minCreateRevision) &&
    (maxCreateRevision === undefined || candidate.createRevision <= maxCreateRevision)
  );
}

interface Collecting {
  readonly operation: RangeOperation;
  readonly revision: number | undefined;
  readonly most: { readonly keys: number; readonly bytes: number };
}

function collect(
  reads: RangeReads,
  namespace: NamespaceState,
  { operation, revision, most }: Collecting,
): Candidates {
  const span = spanOf(operation.range);
  const list: Candidate[] = [];
  if (span === undefined) return { list, count: 0, tooMany: undefined };
  const reverse = operation.reverse === true;
  const scan = scanOf(reads, namespace, span, { reverse, deleted: revision !== undefined });
  const byValue = operation.sort?.target === "value";
  let count = 0;
  let bytes = 0;
  for (let page = nextPage(scan); page.length > 0; page = nextPage(scan)) {
    const found = revision === undefined ? page.map(newest) : atRevision(reads, namespace, page, revision);
    count += found.length;
    if (count > most.keys) return { list, count, tooMany: "keys" };
    const passing = found.filter((candidate) => passes(candidate, operation.filter));
    if (byValue) bytes += fetchValues(reads, namespace, passing);
    if (bytes > most.bytes) return { list, count, tooMany: "bytes" };
    list.push(...passing);
  }
  return { list, count, tooMany: undefined };
}

function newest({ key, record, row }: Met): Candidate {
  const state = record ?? row;
  assert(state !== undefined, "a scanned key has a record or a row");
  const { createRevision, modRevision, version, leaseId } = state;
  return { key, createRevision, modRevision, version, leaseId, place: placeOf(state), value: undefined };
}

function atRevision(
  reads: RangeReads,
  namespace: NamespaceState,
  page: readonly Met[],
  revision: number,
): Candidate[] {
  return rowsAsOf(reads, namespace, page, revision)
    .filter((row): row is HistoryRow => row !== undefined)
    .map((row) => {
      const { key, createRevision, version, leaseId, sub } = row;
      const place = { revision: row.revision, sub };
      return { key, createRevision, modRevision: row.revision, version, leaseId, place, value: undefined };
    });
}

/** @returns their bytes. */
function fetchValues(
  { keys, reader }: RangeReads,
  namespace: NamespaceState,
  candidates: readonly Candidate[],
): number {
  const places = candidates.map(({ place }) => place);
  const rows = places.length === 0 ? [] : keys.history.getMany(namespace.id, places, reader);
  let bytes = 0;
  for (const [i, candidate] of candidates.entries()) {
    candidate.value = storedValue(rows[i]);
    bytes += candidate.value.length;
  }
  return bytes;
}
