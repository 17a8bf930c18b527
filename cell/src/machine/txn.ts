/** Puts, deletes and transactions: everything is checked before the first write, so nothing fails half-way. */
import type {
  Compare,
  CompareFailure,
  DeleteOperation,
  DeleteResult,
  Failure,
  KeyValue,
  LeaseId,
  PutOperation,
  PutResult,
  TxnCommand,
  TxnOperation,
  TxnOperationResult,
  TxnResult,
} from "@lockstep/gateway/coordinator";
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { Revision } from "@lockstep/gateway/coordinator";
import { assert, assertNever } from "../invariant.ts";
import { compareBytes, sequentialKey } from "./bytes.ts";
import type { ApplyContext } from "./context.ts";
import { RevisionWriter } from "./context.ts";
import { leaseNotFound, refusal } from "./failures.ts";
import { KeyScan, spanOf } from "./live-scan.ts";
import { rangeRefusal, readRange } from "./range.ts";
import type { KeyRecord } from "./records.ts";
import type { NamespaceState } from "./state.ts";
import { deleteRefusal, putRefusal, txnRefusal } from "./validate.ts";

/** Of a failed compare's actual value. */
const ACTUAL_VALUE_BYTES_MAX = 1024;

/** `known`: the record of the operation's key, when it has been looked up already. */
export function applyPut(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: PutOperation,
  known: KeyRecord | undefined,
): PutResult | Failure {
  const { limits } = context.state.settings;
  const invalid = putRefusal(operation, limits);
  if (invalid !== undefined) return invalid;
  const writer = new RevisionWriter(context, namespace, "client");
  const key = operation.sequential === true ? sequentialKey(operation.key, writer.revision) : operation.key;
  const record = known ?? context.keys.state(namespace.id, key, context.reader);
  const leaseId = operation.leaseId ?? NO_LEASE;
  if (leaseId !== NO_LEASE) {
    const lease = context.leases.get(namespace.id, leaseId, context.reader);
    if (!lease.exists) return leaseNotFound(leaseId);
    if (record.leaseId !== leaseId && lease.keys >= limits.keysPerLeaseMax) {
      return leaseFull(leaseId, limits.keysPerLeaseMax);
    }
  }
  const result = put(context, writer, operation, { record, key });
  writer.finish();
  return result;
}

export function applyDelete(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: DeleteOperation,
): DeleteResult | Failure {
  const invalid = deleteRefusal(operation, context.state.settings.limits);
  if (invalid !== undefined) return invalid;
  const { keysPerDeleteMax } = context.state.settings.limits;
  const records = matching(context, namespace, operation, keysPerDeleteMax);
  if (records === undefined) return tooManyDeleted(keysPerDeleteMax);
  const writer = new RevisionWriter(context, namespace, "client");
  const result = remove(context, writer, operation, records);
  writer.finish();
  return result;
}

/** One operation of the branch taken, with what the checks found for it. */
interface Prepared {
  readonly operation: TxnOperation;
  /** A put's record and stored key. */
  readonly target: { readonly record: KeyRecord; readonly key: Uint8Array } | undefined;
  /** A delete's records. */
  readonly records: readonly KeyRecord[];
}

const NO_RECORDS: readonly KeyRecord[] = [];

export function applyTxn(
  context: ApplyContext,
  namespace: NamespaceState,
  txn: TxnCommand,
): TxnResult | Failure {
  const writer = new RevisionWriter(context, namespace, "client");
  const invalid = txnRefusal(txn, context.state.settings.limits, writer.revision);
  if (invalid !== undefined) return invalid;
  const failures = failedCompares(context, namespace, txn.compares);
  const succeeded = failures.length === 0;
  const prepared = prepareBranch(context, namespace, succeeded ? txn.success : txn.failure);
  if (!Array.isArray(prepared)) return prepared as Failure;
  const responses: TxnOperationResult[] = [];
  for (const step of prepared as readonly Prepared[]) {
    responses.push(perform(context, namespace, writer, step));
  }
  return { kind: "txn", succeeded, revision: writer.finish(), responses, failures };
}

function perform(
  context: ApplyContext,
  namespace: NamespaceState,
  writer: RevisionWriter,
  { operation, target, records }: Prepared,
): TxnOperationResult {
  switch (operation.kind) {
    case "put":
      assert(target !== undefined, "a prepared put has its record");
      return put(context, writer, operation, target);
    case "delete":
      return remove(context, writer, operation, records);
    case "range":
      return readRange(context, namespace, operation, writer.reflected);
    default:
      return assertNever(operation);
  }
}

function put(
  context: ApplyContext,
  writer: RevisionWriter,
  operation: PutOperation,
  { record, key }: { readonly record: KeyRecord; readonly key: Uint8Array },
): PutResult {
  const previous =
    operation.returnPrevious === true && record.status === "live"
      ? context.keys.answer(record, context.reader)
      : undefined;
  writer.put(record, key, operation.value, operation.leaseId ?? NO_LEASE);
  const revision = writer.revision as Revision;
  const createRevision = record.createRevision as Revision;
  const { version } = record;
  if (previous === undefined) return { kind: "put", revision, key, createRevision, version };
  return { kind: "put", revision, key, createRevision, version, previous };
}

function remove(
  context: ApplyContext,
  writer: RevisionWriter,
  operation: DeleteOperation,
  records: readonly KeyRecord[],
): DeleteResult {
  const previous: KeyValue[] = [];
  let deleted = 0;
  for (const record of records) {
    // An earlier delete of the same transaction may overlap this one.
    if (record.status !== "live") continue;
    if (operation.returnPrevious === true) previous.push(context.keys.answer(record, context.reader));
    writer.delete(record);
    deleted += 1;
  }
  return { kind: "delete", revision: writer.reflected, deleted, previous };
}

/** Checks of state for the branch taken, all on the state before it; resolves records and the keys to delete. */
function prepareBranch(
  context: ApplyContext,
  namespace: NamespaceState,
  operations: readonly TxnOperation[],
): readonly Prepared[] | Failure {
  const { keysPerDeleteMax } = context.state.settings.limits;
  const prepared: Prepared[] = [];
  const attaching = new Map<LeaseId, number>();
  let deletable = keysPerDeleteMax;
  for (const operation of operations) {
    if (operation.kind === "put") {
      const target = targetOf(context, namespace, operation);
      const refused = leaseRefusal(context, namespace, { operation, record: target.record, attaching });
      if (refused !== undefined) return refused;
      prepared.push({ operation, target, records: NO_RECORDS });
    } else if (operation.kind === "delete") {
      const records = matching(context, namespace, operation, deletable);
      if (records === undefined) return tooManyDeleted(keysPerDeleteMax);
      deletable -= records.length;
      prepared.push({ operation, target: undefined, records });
    } else {
      const refused = rangeRefusal(context.state, namespace, operation);
      if (refused !== undefined) return refused;
      prepared.push({ operation, target: undefined, records: NO_RECORDS });
    }
  }
  return prepared;
}

function targetOf(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: PutOperation,
): { readonly record: KeyRecord; readonly key: Uint8Array } {
  const revision = context.state.revision + 1;
  const key = operation.sequential === true ? sequentialKey(operation.key, revision) : operation.key;
  return { record: context.keys.state(namespace.id, key, context.reader), key };
}

/** Room that the same transaction's deletes would make does not count. */
function leaseRefusal(
  context: ApplyContext,
  namespace: NamespaceState,
  attachment: {
    readonly operation: PutOperation;
    readonly record: KeyRecord;
    readonly attaching: Map<LeaseId, number>;
  },
): Failure | undefined {
  const { operation, record, attaching } = attachment;
  const leaseId = operation.leaseId ?? NO_LEASE;
  if (leaseId === NO_LEASE) return undefined;
  const lease = context.leases.get(namespace.id, leaseId, context.reader);
  if (!lease.exists) return leaseNotFound(leaseId);
  if (record.leaseId === leaseId) return undefined;
  const { keysPerLeaseMax } = context.state.settings.limits;
  const more = (attaching.get(leaseId) ?? 0) + 1;
  if (lease.keys + more > keysPerLeaseMax) return leaseFull(leaseId, keysPerLeaseMax);
  attaching.set(leaseId, more);
  return undefined;
}

/** The live keys of the range in order; undefined when there are more than `max`. */
function matching(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: DeleteOperation,
  max: number,
): readonly KeyRecord[] | undefined {
  const { keys, reader } = context;
  const { range } = operation;
  if (range.rangeEnd === undefined) {
    const record = keys.state(namespace.id, range.key, reader);
    if (record.status !== "live") return NO_RECORDS;
    return max > 0 ? [record] : undefined;
  }
  const span = spanOf(range);
  if (span === undefined) return NO_RECORDS;
  const scan = new KeyScan(keys, { namespaceId: namespace.id, span, reverse: false, deleted: false }, reader);
  const found: Uint8Array[] = [];
  for (let met = scan.next(); met !== undefined; met = scan.next()) {
    if (found.length >= max) return undefined;
    found.push(met.key);
  }
  const records = found.map((key) => keys.cache.obtain(namespace.id, key));
  const unknown = records.filter((record) => record.status === "unknown");
  if (unknown.length > 0) keys.load(unknown, reader);
  return records;
}

/** All compares look at the state before the transaction. */
function failedCompares(
  context: ApplyContext,
  namespace: NamespaceState,
  compares: readonly Compare[],
): readonly CompareFailure[] {
  const failures: CompareFailure[] = [];
  for (const [index, compare] of compares.entries()) {
    const record = context.keys.state(namespace.id, compare.key, context.reader);
    if (holds(context, record, compare)) continue;
    if (record.status !== "live") {
      failures.push({ index });
      continue;
    }
    const actual = context.keys.answer(record, context.reader);
    const cut = actual.value.length > ACTUAL_VALUE_BYTES_MAX;
    failures.push({
      index,
      actual: cut ? { ...actual, value: actual.value.slice(0, ACTUAL_VALUE_BYTES_MAX) } : actual,
    });
  }
  return failures;
}

/** A missing key: its value compares false whatever the operator, everything else is 0 (research 3b, A6). */
function holds(context: ApplyContext, record: KeyRecord, compare: Compare): boolean {
  const { target, operand } = compare;
  switch (target) {
    case "value":
      if (record.status !== "live") return false;
      return ordered(
        compareBytes(context.keys.value(record, context.reader), operand as Uint8Array),
        compare,
      );
    case "version":
      return ordered(record.version - (operand as number), compare);
    case "create-revision":
      return ordered(record.createRevision - (operand as number), compare);
    case "mod-revision":
      return ordered((record.status === "live" ? record.modRevision : 0) - (operand as number), compare);
    case "lease":
      return ordered(compareLeases(record.leaseId, operand as LeaseId), compare);
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

function leaseFull(leaseId: LeaseId, max: number): Failure {
  return refusal("too-many-keys", `lease ${leaseId} holds its ${max} keys already`);
}

function tooManyDeleted(max: number): Failure {
  return refusal("too-many-keys", `the range holds more than ${max} keys; delete it in parts`);
}
