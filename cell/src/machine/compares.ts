/** Conditions of transactions. All look at the state before the outermost transaction. */
import type { Compare, CompareFailure, CompareTarget, Failure, LeaseId } from "@lockstep/gateway/coordinator";
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import { assert, assertNever } from "../invariant.ts";
import { compareBytes, EMPTY } from "./bytes.ts";
import type { ApplyContext } from "./context.ts";
import { refusal } from "./failures.ts";
import { KeyScan, spanOf } from "./live-scan.ts";
import { SCAN_KEYS_MAX } from "./ordered-range.ts";
import type { KeyRecord } from "./records.ts";
import type { NamespaceState } from "./state.ts";

/** Of a failed compare's actual value. */
const ACTUAL_VALUE_BYTES_MAX = 1024;

/** What a compare looks at, of a key that is there. */
interface Compared {
  readonly version: number;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly leaseId: LeaseId;
}

/** A key that is not there: everything but its value compares as this (research 3b, A6). */
const MISSING: Compared = { version: 0, createRevision: 0, modRevision: 0, leaseId: NO_LEASE };

/** @returns those that do not hold, in order; or why one cannot be decided. */
export function failedCompares(
  context: ApplyContext,
  namespace: NamespaceState,
  compares: readonly Compare[],
): readonly CompareFailure[] | Failure {
  const failures: CompareFailure[] = [];
  for (let index = 0; index < compares.length; index++) {
    const compare = compares[index] as Compare;
    const failing =
      compare.rangeEnd === undefined
        ? failingKey(context, namespace, compare)
        : failingInRange(context, namespace, compare);
    if (failing === undefined) continue;
    if ("code" in failing) return failing;
    failures.push(failureOf(context, index, failing));
  }
  return failures;
}

function failureOf(context: ApplyContext, index: number, record: KeyRecord): CompareFailure {
  if (record.status !== "live") return { index };
  const actual = context.keys.answer(record, context.reader);
  const cut = actual.value.length > ACTUAL_VALUE_BYTES_MAX;
  return {
    index,
    actual: cut ? { ...actual, value: actual.value.slice(0, ACTUAL_VALUE_BYTES_MAX) } : actual,
  };
}

/** @returns the key's record when the compare does not hold. */
function failingKey(
  context: ApplyContext,
  namespace: NamespaceState,
  compare: Compare,
): KeyRecord | undefined {
  const record = context.keys.state(namespace.id, compare.key, context.reader);
  const live = record.status === "live";
  const { target } = compare;
  const held =
    target === "value"
      ? valueHolds(live ? context.keys.value(record, context.reader) : undefined, compare)
      : holds(live ? record : MISSING, target, compare);
  return held ? undefined : record;
}

/** @returns the record of the first key that does not hold. */
function failingInRange(
  context: ApplyContext,
  namespace: NamespaceState,
  compare: Compare,
): KeyRecord | Failure | undefined {
  const { keys, reader } = context;
  const { key, rangeEnd, target } = compare;
  const span = rangeEnd === undefined ? undefined : spanOf({ key, rangeEnd });
  // No key can be in it: it compares like one that is missing.
  if (span === undefined) return failingKey(context, namespace, { ...compare, key: EMPTY });
  const scan = new KeyScan(keys, { namespaceId: namespace.id, span, reverse: false, deleted: false }, reader);
  let count = 0;
  for (let met = scan.next(); met !== undefined; met = scan.next()) {
    count += 1;
    if (count > SCAN_KEYS_MAX) {
      return refusal("too-many-keys", `a compare over a range looks at no more than ${SCAN_KEYS_MAX} keys`);
    }
    const state = met.record ?? met.row;
    assert(state !== undefined, "a scanned key has a record or a row");
    const found = met.key;
    const record = (): KeyRecord => keys.state(namespace.id, found, reader);
    const held =
      target === "value" ? valueHolds(keys.value(record(), reader), compare) : holds(state, target, compare);
    if (!held) return record();
  }
  return count > 0 ? undefined : failingKey(context, namespace, { ...compare, key: EMPTY });
}

/** A missing key's value compares false whatever the operator. */
function valueHolds(value: Uint8Array | undefined, compare: Compare): boolean {
  return value !== undefined && ordered(compareBytes(value, compare.operand as Uint8Array), compare);
}

function holds(state: Compared, target: Exclude<CompareTarget, "value">, compare: Compare): boolean {
  const { operand } = compare;
  switch (target) {
    case "version":
      return ordered(state.version - (operand as number), compare);
    case "create-revision":
      return ordered(state.createRevision - (operand as number), compare);
    case "mod-revision":
      return ordered(state.modRevision - (operand as number), compare);
    case "lease":
      return ordered(compareLeases(state.leaseId, operand as LeaseId), compare);
    default:
      return assertNever(target);
  }
}

/** Decimal numbers without leading zeros: the longer one is larger. */
function compareLeases(a: LeaseId, b: LeaseId): number {
  if (a.length !== b.length) return a.length - b.length;
  return a === b ? 0 : a < b ? -1 : 1;
}

function ordered(order: number, compare: Compare): boolean {
  switch (compare.operator) {
    case "=":
      return order === 0;
    case "!=":
      return order !== 0;
    case "<":
      return order < 0;
    case ">":
      return order > 0;
    default:
      return assertNever(compare.operator);
  }
}
