/** Puts, deletes and transactions: everything is checked before the first write, so nothing fails half-way. */
import type {
  DeleteOperation,
  DeleteResult,
  Failure,
  KeyValue,
  PutOperation,
  PutResult,
  Revision,
  TxnCommand,
  TxnOperationResult,
  TxnResult,
} from "@lockstep/gateway/coordinator";
import { assertNever } from "../invariant.ts";
import type { ApplyContext } from "./context.ts";
import { RevisionWriter } from "./context.ts";
import { readRange } from "./range.ts";
import type { KeyRecord } from "./records.ts";
import type { NamespaceState } from "./state.ts";
import type { Plan, PutTarget, Step } from "./txn-plan.ts";
import { Planner } from "./txn-plan.ts";
import { deleteRefusal, putRefusal, readTxnRefusal, txnRefusal } from "./validate.ts";

/** `known`: the record of the operation's key, when it has been looked up already. */
export function applyPut(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: PutOperation,
  known: KeyRecord | undefined,
): PutResult | Failure {
  const invalid = putRefusal(operation, context.state.settings.limits);
  if (invalid !== undefined) return invalid;
  const target = new Planner(context, namespace).put(operation, known);
  if ("code" in target) return target;
  const writer = new RevisionWriter(context, namespace, "client");
  const result = put(context, writer, operation, target);
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
  const records = new Planner(context, namespace).delete(operation);
  if ("code" in records) return records;
  const writer = new RevisionWriter(context, namespace, "client");
  const result = remove(context, writer, operation, records);
  writer.finish();
  return result;
}

export function applyTxn(
  context: ApplyContext,
  namespace: NamespaceState,
  txn: TxnCommand,
): TxnResult | Failure {
  const writer = new RevisionWriter(context, namespace, "client");
  const invalid = txnRefusal(txn, context.state.settings.limits, writer.revision);
  return invalid ?? decideAndCarryOut(context, namespace, writer, txn);
}

/** A transaction that changes nothing, answered from the state as it is. */
export function readTxn(
  context: ApplyContext,
  namespace: NamespaceState,
  txn: TxnCommand,
): TxnResult | Failure {
  const writer = new RevisionWriter(context, namespace, "client");
  const invalid = readTxnRefusal(txn, context.state.settings.limits, writer.revision);
  return invalid ?? decideAndCarryOut(context, namespace, writer, txn);
}

function decideAndCarryOut(
  context: ApplyContext,
  namespace: NamespaceState,
  writer: RevisionWriter,
  txn: TxnCommand,
): TxnResult | Failure {
  const plan = new Planner(context, namespace).txn(txn);
  if ("code" in plan) return plan;
  const responses = carryOut(context, namespace, writer, plan);
  const { succeeded, failures } = plan;
  return { kind: "txn", succeeded, revision: writer.finish(), responses, failures };
}

function carryOut(
  context: ApplyContext,
  namespace: NamespaceState,
  writer: RevisionWriter,
  plan: Plan,
): readonly TxnOperationResult[] {
  return plan.steps.map((step) => perform(context, namespace, writer, step));
}

function perform(
  context: ApplyContext,
  namespace: NamespaceState,
  writer: RevisionWriter,
  step: Step,
): TxnOperationResult {
  switch (step.kind) {
    case "put":
      return put(context, writer, step.operation, step.target);
    case "delete":
      return remove(context, writer, step.operation, step.records);
    case "range":
      return readRange(context, namespace, step.operation, writer.reflected);
    case "txn": {
      const responses = carryOut(context, namespace, writer, step.plan);
      const { succeeded } = step.plan;
      return { kind: "txn", succeeded, revision: writer.reflected, responses, failures: [] };
    }
    default:
      return assertNever(step);
  }
}

function put(
  context: ApplyContext,
  writer: RevisionWriter,
  operation: PutOperation,
  { record, key, value, leaseId }: PutTarget,
): PutResult {
  const previous =
    operation.returnPrevious === true && record.status === "live"
      ? context.keys.answer(record, context.reader)
      : undefined;
  writer.put(record, key, value, leaseId);
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
