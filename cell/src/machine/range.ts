/** Range reads: the newest state, or a retained revision. */
import type { Failure, KeyValue, RangeOperation, RangeResult, Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import { compacted, futureRevision, refusal } from "./failures.ts";
import { isOrdered, readOrdered } from "./ordered-range.ts";
import type { RangeAnswer, RangeReads } from "./range-reads.ts";
import {
  nextPage,
  placeOf,
  ReplyBounds,
  rowsAsOf,
  scanOf,
  storedValue,
  VALUE_PAGE_BYTES,
  VALUE_PAGE_KEYS,
} from "./range-reads.ts";
import type { Place } from "./history-reads.ts";
import { keyValue, rowKeyValue } from "./key-states.ts";
import type { Met } from "./live-scan.ts";
import { spanOf } from "./live-scan.ts";
import { EMPTY } from "./bytes.ts";
import type { MachineState, NamespaceState } from "./state.ts";

/** Keys counted beyond what is answered; further ones are not counted unless only the count is asked for. */
export const COUNT_MAX = 100_000;
/** undefined when the range may be read. Also what fails a whole transaction before it writes (B11). */
export function rangeRefusal(
  state: MachineState,
  namespace: NamespaceState,
  operation: RangeOperation,
): Failure | undefined {
  const { range, revision } = operation;
  if (range.rangeEnd === undefined && range.key.length === 0) {
    return refusal("invalid-argument", "a key is not empty");
  }
  if (range.key.length > state.settings.limits.keyBytesMax) {
    return refusal("invalid-argument", `a key is at most ${state.settings.limits.keyBytesMax} bytes`);
  }
  if (revision === undefined || revision === 0) return undefined;
  if (revision > state.revision) return futureRevision(revision, state.revision);
  if (revision < namespace.compactRevision) return compacted(revision, namespace.compactRevision);
  return undefined;
}

/**
 * `reflected` is the revision that the answer names: inside a transaction that wrote, its own. The operation must
 * have passed {@link rangeRefusal}.
 */
export function readRange(
  reads: RangeReads,
  namespace: NamespaceState,
  operation: RangeOperation,
  reflected: Revision,
): RangeResult {
  const past = operation.revision !== undefined && operation.revision !== 0 && operation.revision < reflected;
  const answer = isOrdered(operation)
    ? readOrdered(reads, namespace, operation, past ? operation.revision : undefined)
    : past
      ? readPast(reads, namespace, operation, operation.revision)
      : readNewest(reads, namespace, operation);
  return { kind: "range", revision: reflected, kvs: answer.kvs, count: answer.count, more: answer.more };
}

function readNewest(reads: RangeReads, namespace: NamespaceState, operation: RangeOperation): RangeAnswer {
  if (operation.range.rangeEnd === undefined) return readOne(reads, namespace, operation);
  const span = spanOf(operation.range);
  const answer: RangeAnswer = { kvs: [], count: 0, more: false };
  if (span === undefined) return answer;
  const scan = scanOf(reads, namespace, span, { reverse: operation.reverse === true, deleted: false });
  if (operation.countOnly === true) {
    const everything = span.from.length === 0 && span.to === undefined;
    answer.count = everything ? namespace.keys : scan.count(Infinity);
    return answer;
  }
  const bounds = new ReplyBounds(reads, operation);
  const page: Met[] = [];
  let pageBytes = 0;
  while (answer.count < COUNT_MAX && bounds.keysLeft - page.length > 0) {
    const met = scan.next();
    if (met === undefined) break;
    answer.count += 1;
    page.push(met);
    pageBytes += met.record?.size ?? met.row?.size ?? 0;
    if (page.length < VALUE_PAGE_KEYS && pageBytes < VALUE_PAGE_BYTES) continue;
    addPage(reads, namespace, { page, answer, bounds });
    page.length = 0;
    pageBytes = 0;
  }
  addPage(reads, namespace, { page, answer, bounds });
  const most = reads.uncounted === true ? answer.kvs.length + 1 : COUNT_MAX;
  if (answer.count < most) answer.count += scan.count(most - answer.count);
  answer.more = answer.kvs.length < answer.count;
  if (reads.uncounted === true) answer.count = answer.kvs.length;
  return answer;
}

/** The hot path: one key, from the cache. */
function readOne(reads: RangeReads, namespace: NamespaceState, operation: RangeOperation): RangeAnswer {
  const { keys, reader } = reads;
  const record = keys.state(namespace.id, operation.range.key, reader);
  if (record.status !== "live") return { kvs: [], count: 0, more: false };
  if (operation.countOnly === true) return { kvs: [], count: 1, more: false };
  if (operation.keysOnly === true) {
    return { kvs: [keyValue(record, EMPTY, record.key)], count: 1, more: false };
  }
  return { kvs: [keys.answer(record, reader)], count: 1, more: false };
}

interface Page {
  readonly page: readonly Met[];
  readonly answer: RangeAnswer;
  readonly bounds: ReplyBounds;
}

function addPage(reads: RangeReads, namespace: NamespaceState, { page, answer, bounds }: Page): void {
  if (page.length === 0) return;
  const { keys, reader } = reads;
  const places: Place[] = [];
  for (const met of page) if (!bounds.keysOnly && met.row !== undefined) places.push(placeOf(met.row));
  const rows = places.length === 0 ? [] : keys.history.getMany(namespace.id, places, reader);
  let at = 0;
  for (const { key, record, row } of page) {
    let kv: KeyValue;
    if (record !== undefined) {
      kv = bounds.keysOnly ? keyValue(record, EMPTY, record.key) : keys.answer(record, reader);
    } else {
      assert(row !== undefined, "a scanned key has a record or a row");
      kv = keyValue(row, bounds.keysOnly ? EMPTY : storedValue(rows[at++]), key);
    }
    if (!bounds.take(kv, answer.kvs.length === 0)) return;
    answer.kvs.push(kv);
  }
}

/** Walks every key that was or is there, and each key's chain of rows back to the asked revision. */
function readPast(
  reads: RangeReads,
  namespace: NamespaceState,
  operation: RangeOperation,
  revision: number,
): RangeAnswer {
  const span = spanOf(operation.range);
  const answer: RangeAnswer = { kvs: [], count: 0, more: false };
  if (span === undefined) return answer;
  const scan = scanOf(reads, namespace, span, { reverse: operation.reverse === true, deleted: true });
  const bounds = new ReplyBounds(reads, operation);
  const uncounted = reads.uncounted === true && operation.countOnly !== true;
  const countMax = (): number =>
    operation.countOnly === true ? Infinity : uncounted ? answer.kvs.length + 1 : COUNT_MAX;
  if (operation.countOnly === true) bounds.keysLeft = 0;
  for (let ended = false; !ended && answer.count < countMax();) {
    const page = nextPage(scan);
    ended = page.length === 0;
    for (const row of rowsAsOf(reads, namespace, page, revision)) {
      if (row === undefined || answer.count >= countMax()) continue;
      answer.count += 1;
      const kv = rowKeyValue(row, bounds.keysOnly ? EMPTY : row.value);
      if (bounds.take(kv, answer.kvs.length === 0)) answer.kvs.push(kv);
    }
  }
  answer.more = operation.countOnly !== true && answer.kvs.length < answer.count;
  if (uncounted) answer.count = answer.kvs.length;
  return answer;
}
