/** Between the client's own types and the plain values of a history. */
import type {
  Compare,
  DeleteResult,
  KeyValue,
  PutResult,
  RangeResult,
  Txn,
  TxnResult,
} from "@lockstep/client";
import type { KeyCompare, KeyOutput, KeyStep, KeyTxn, Seen, StepOutput } from "./words.ts";

/** What a call's result tells of the one key that was asked for (of each step's one key, in a transaction). */
export function outputOf(result: PutResult | DeleteResult | RangeResult | TxnResult): KeyOutput {
  if (result.kind !== "txn") return { ...stepOf(result), revision: result.revision };
  const { kind, succeeded, revision } = result;
  const failures = result.failures.map(({ index, actual }) => ({ index, actual: seenOf(actual) }));
  return { kind, succeeded, revision, responses: result.responses.map(stepOf), failures };
}

/** The client's transaction of a recorded one. */
export function txnOf({ compares, success, failure }: KeyTxn): Txn {
  return {
    compares: compares.map(compareOf),
    success: success.map(clientStep),
    failure: failure.map(clientStep),
  };
}

/** A key's state in the words of a history; null: there is no such key. */
export function seenOf(kv: KeyValue | undefined): Seen | null {
  if (kv === undefined) return null;
  const { createRevision, modRevision, version } = kv;
  return { value: kv.text(), createRevision, modRevision, version };
}

/** Without the revision of the whole, which in a transaction belongs to the whole. */
function stepOf(result: PutResult | DeleteResult | RangeResult): StepOutput {
  switch (result.kind) {
    case "range":
      return { kind: "get", found: seenOf(result.kvs[0]) };
    case "put": {
      const { createRevision, version, previous } = result;
      const output = { kind: "put", createRevision, version } as const;
      return previous === undefined ? output : { ...output, previous: seenOf(previous) };
    }
    case "delete": {
      const [previous] = result.previous;
      const output = { kind: "delete", deleted: result.deleted } as const;
      return previous === undefined ? output : { ...output, previous: seenOf(previous) };
    }
  }
}

/** The client's compare of a recorded one. */
export function compareOf({ key, target, operator, operand }: KeyCompare): Compare {
  const base = { key, operator };
  switch (target) {
    case "value":
      return { ...base, value: String(operand) };
    case "version":
      return { ...base, version: Number(operand) };
    case "create-revision":
      return { ...base, createRevision: Number(operand) };
    case "mod-revision":
      return { ...base, modRevision: Number(operand) };
  }
}

function clientStep(step: KeyStep): NonNullable<Txn["success"]>[number] {
  switch (step.kind) {
    case "get":
      return { get: { key: step.key } };
    case "put":
      return { put: { key: step.key, value: step.value } };
    case "delete":
      return { delete: { key: step.key, returnPrevious: true } };
  }
}
