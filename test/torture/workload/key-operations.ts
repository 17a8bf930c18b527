import type { Client, Compare, KeyValue, Txn, TxnResult, TxnStep, TxnStepResult } from "@lockstep/client";
import type {
  KeyCompare,
  KeyInput,
  KeyOutput,
  KeyStep,
  KeyTxn,
  Seen,
  StepOutput,
  TxnOutput,
} from "../../linearizability/words.ts";

/** Runs one operation of the checker's vocabulary through the client library. */
export async function execute(client: Client, input: KeyInput, deadlineMs: number): Promise<KeyOutput> {
  switch (input.kind) {
    case "get": {
      const { revision, kvs } = await client.range(input.key, { deadlineMs });
      return { kind: "get", revision, found: toSeen(kvs[0]) };
    }
    case "put": {
      const result = await client.put(input.key, input.value, { deadlineMs });
      return toStepOutput(result);
    }
    case "delete": {
      const result = await client.delete(input.key, { deadlineMs });
      return toStepOutput(result);
    }
    case "txn":
      return toTxnOutput(await client.txn(toTxn(input), { deadlineMs }));
  }
}

function toTxn(input: KeyTxn): Txn {
  return {
    compares: input.compares.map(toCompare),
    success: input.success.map(toStep),
    failure: input.failure.map(toStep),
  };
}

function toCompare({ key, target, operator, operand }: KeyCompare): Compare {
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

function toStep(step: KeyStep): TxnStep {
  switch (step.kind) {
    case "get":
      return { get: { key: step.key } };
    case "put":
      return { put: { key: step.key, value: step.value } };
    case "delete":
      return { delete: { key: step.key } };
  }
}

function toTxnOutput(result: TxnResult): TxnOutput {
  return {
    kind: "txn",
    succeeded: result.succeeded,
    revision: result.revision,
    responses: result.responses.map(toStepOutput),
    failures: result.failures.map(({ index, actual }) => ({ index, actual: toSeen(actual) })),
  };
}

function toStepOutput(result: TxnStepResult): StepOutput {
  switch (result.kind) {
    case "put":
      return {
        kind: "put",
        revision: result.revision,
        createRevision: result.createRevision,
        version: result.version,
      };
    case "delete":
      return { kind: "delete", revision: result.revision, deleted: result.deleted };
    case "range":
      return { kind: "get", revision: result.revision, found: toSeen(result.kvs[0]) };
  }
}

function toSeen(kv: KeyValue | undefined): Seen | null {
  if (kv === undefined) return null;
  return {
    value: kv.text(),
    createRevision: kv.createRevision,
    modRevision: kv.modRevision,
    version: kv.version,
  };
}
