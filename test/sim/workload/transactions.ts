/** Transactions in the words of the history, as the client sends them, and their answers against the true history. */
import type {
  KeyValue,
  TxnResult,
  TxnStep,
  TxnStepResult,
  Txn,
  DeleteResult,
  PutResult,
  RangeResult,
} from "@lockstep/client";
import type { KeyCompare, KeyStep, KeyTxn, StepOutput, TxnOutput } from "../../linearizability/words.ts";
import { compareOf, seenOf } from "../../linearizability/observe.ts";
import { seen, type ReadBounds, type SeenState } from "../checkers/reads.ts";
import type { TrueState } from "../contract.ts";
import type { Tools } from "./tools.ts";

export function toClientTxn({ compares, success, failure }: KeyTxn): Txn {
  return {
    compares: compares.map(compareOf),
    success: success.map(toClientStep),
    failure: failure.map(toClientStep),
  };
}

function toClientStep(step: KeyStep): TxnStep {
  switch (step.kind) {
    case "get":
      return { get: { key: step.key } };
    case "put":
      return { put: { key: step.key, value: step.value, returnPrevious: true } };
    case "delete":
      return { delete: { key: step.key, returnPrevious: true } };
  }
}

/** With what was there before: it is always asked for, so that absent means that there was nothing. */
export function toOutput(result: PutResult | DeleteResult | RangeResult): StepOutput {
  const { revision } = result;
  switch (result.kind) {
    case "put": {
      const { createRevision, version } = result;
      return { kind: "put", revision, createRevision, version, previous: seenOf(result.previous) };
    }
    case "delete":
      return { kind: "delete", revision, deleted: result.deleted, previous: seenOf(result.previous[0]) };
    case "range":
      return { kind: "get", revision, found: seenOf(result.kvs[0]) };
  }
}

export function toTxnOutput({ succeeded, revision, responses, failures }: TxnResult): TxnOutput {
  return {
    kind: "txn",
    succeeded,
    revision,
    responses: responses.map(toOutput),
    failures: failures.map(({ index, actual }) => ({ index, actual: seenOf(actual) })),
  };
}

/**
 * Each key is in one step of a branch at most.
 * @returns what the answer tells about the state of the keys after it.
 */
export function checkTxn(
  { reads, reporter, truth }: Pick<Tools, "reads" | "reporter" | "truth">,
  plan: KeyTxn,
  result: TxnResult,
  { what, bounds }: { readonly what: string; readonly bounds: ReadBounds },
): Map<string, SeenState | undefined> {
  const { revision, succeeded, responses, failures } = result;
  const wrote = responses.some(isChange);
  if (wrote) reads.writtenRevision(revision, bounds, what);
  else reads.linearizableRevision(revision, bounds, what);
  const before = wrote ? revision - 1 : revision;
  const expected = plan.compares
    .flatMap((compare, index) => (holds(compare, truth.stateAt(compare.key, before)) ? [] : [index]))
    .join();
  const told = failures.map(({ index }) => index).join();
  if (succeeded !== (expected === "") || told !== expected) {
    reporter.violation(
      "I8-txn",
      `${what} at revision ${revision}: succeeded ${String(succeeded)}, failures [${told}]; true failures [${expected}]`,
    );
  }
  for (const { index, actual } of failures) {
    const key = plan.compares[index]?.key ?? "";
    reads.state(key, before, actual === undefined ? undefined : seen(actual), `${what}, failed compare,`);
  }
  const steps = succeeded ? plan.success : plan.failure;
  if (responses.length !== steps.length) {
    reporter.violation("I8-txn", `${what}: ${responses.length} answers for ${steps.length} steps`);
  }
  const shown = new Map<string, SeenState | undefined>();
  steps.forEach((step, index) => {
    const response = responses[index];
    if (response === undefined) return;
    shown.set(step.key, checkStep({ reads, reporter }, step, response, { what, revision, before }));
  });
  return shown;
}

function checkStep(
  { reads, reporter }: Pick<Tools, "reads" | "reporter">,
  step: KeyStep,
  response: TxnStepResult,
  call: { readonly what: string; readonly revision: number; readonly before: number },
): SeenState | undefined {
  const what = `${call.what}, ${step.kind} ${step.key},`;
  const { key } = step;
  const stateOf = (kv: KeyValue | undefined): SeenState | undefined =>
    kv === undefined ? undefined : seen(kv);
  if (step.kind === "put" && response.kind === "put") {
    const { createRevision, version } = response;
    const state = {
      key,
      value: step.value,
      createRevision,
      modRevision: call.revision,
      version,
      leaseId: "0",
    };
    reads.state(key, call.revision, state, what);
    reads.state(key, call.before, stateOf(response.previous), `${what} before it,`);
    return state;
  }
  if (step.kind === "delete" && response.kind === "delete") {
    reads.state(key, call.revision, undefined, what);
    reads.state(key, call.before, stateOf(response.previous[0]), `${what} before it,`);
    return undefined;
  }
  if (step.kind === "get" && response.kind === "range") {
    const state = stateOf(response.kvs[0]);
    reads.state(key, call.revision, state, what);
    return state;
  }
  return reporter.violation("I8-txn", `${what} is answered as a ${response.kind}`);
}

function isChange(response: TxnStepResult): boolean {
  return response.kind === "put" || (response.kind === "delete" && response.deleted > 0);
}

/** A missing key has version and revisions 0; its value compares false whatever the operator. */
export function holds({ target, operator, operand }: KeyCompare, state: TrueState | undefined): boolean {
  switch (target) {
    case "value":
      return state !== undefined && ordered(state.value, operator, String(operand));
    case "version":
      return ordered(state?.version ?? 0, operator, Number(operand));
    case "create-revision":
      return ordered(state?.createRevision ?? 0, operator, Number(operand));
    case "mod-revision":
      return ordered(state?.modRevision ?? 0, operator, Number(operand));
  }
}

function ordered<T extends string | number>(a: T, operator: KeyCompare["operator"], b: T): boolean {
  switch (operator) {
    case "=":
      return a === b;
    case "!=":
      return a !== b;
    case "<":
      return a < b;
    case ">":
      return a > b;
  }
}
