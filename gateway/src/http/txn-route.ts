import type {
  Compare,
  CompareOperator,
  CompareTarget,
  DeleteOperation,
  KeyRange,
  LeaseId,
  PutOperation,
  RangeOperation,
  Revision,
  TxnOperation,
  TxnOperationResult,
  TxnResult,
} from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import type { Backend, Call } from "./backend.ts";
import { revisionHeader } from "./conditions.ts";
import type { Json } from "./json.ts";
import { Fields, bytesField, keyValueJson, parseBody } from "./json.ts";
import { invalid } from "./problem.ts";
import { prefixEnd } from "../keys.ts";

/** A map, not an object: an object also answers to `constructor` and `toString`. */
const OPERATORS: ReadonlyMap<string, CompareOperator> = new Map<string, CompareOperator>([
  ["=", "="],
  ["==", "="],
  ["!=", "!="],
  ["<", "<"],
  [">", ">"],
]);

const RANGE_FIELDS = ["key", "keyBase64", "rangeEnd", "rangeEndBase64", "prefix"];

function compareOf(value: unknown, what: string): Compare {
  const fields = new Fields(value, what, [
    "key",
    "keyBase64",
    "operator",
    "version",
    "createRevision",
    "modRevision",
    "lease",
    "value",
    "valueBase64",
  ]);
  const operator = OPERATORS.get(fields.text("operator") ?? "=");
  if (operator === undefined) throw invalid(`${what}.operator is not one of =, !=, <, >`);
  const operands: [CompareTarget, number | LeaseId | Buffer | undefined][] = [
    ["version", fields.number("version", 0)],
    ["create-revision", fields.number("createRevision", 0)],
    ["mod-revision", fields.number("modRevision", 0)],
    ["lease", fields.get("lease") === null ? NO_LEASE : fields.lease("lease")],
    ["value", fields.bytes("value")],
  ];
  const given = operands.filter(([, operand]) => operand !== undefined);
  const [first] = given;
  if (given.length !== 1 || first?.[1] === undefined) {
    throw invalid(`${what} has not exactly one of version, createRevision, modRevision, lease, value`);
  }
  return { key: fields.requiredBytes("key"), target: first[0], operator, operand: first[1] };
}

function rangeOf(fields: Fields, what: string): KeyRange {
  const rangeEnd = fields.bytes("rangeEnd");
  if (fields.flag("prefix")) {
    if (rangeEnd !== undefined) throw invalid(`${what} has both prefix and rangeEnd`);
    const key = fields.bytes("key") ?? Buffer.alloc(0);
    return { key, rangeEnd: prefixEnd(key) };
  }
  const key = fields.requiredBytes("key");
  return rangeEnd === undefined ? { key } : { key, rangeEnd };
}

function putOf(value: unknown, what: string): PutOperation {
  const fields = new Fields(value, what, [
    "key",
    "keyBase64",
    "value",
    "valueBase64",
    "lease",
    "sequential",
    "previous",
  ]);
  const leaseId = fields.lease("lease");
  return {
    kind: "put",
    key: fields.requiredBytes("key"),
    value: fields.bytes("value") ?? Buffer.alloc(0),
    sequential: fields.flag("sequential"),
    returnPrevious: fields.flag("previous"),
    ...(leaseId === undefined ? {} : { leaseId }),
  };
}

function deleteOf(value: unknown, what: string): DeleteOperation {
  const fields = new Fields(value, what, [...RANGE_FIELDS, "previous"]);
  return { kind: "delete", range: rangeOf(fields, what), returnPrevious: fields.flag("previous") };
}

function getOf(value: unknown, what: string): RangeOperation {
  const fields = new Fields(value, what, [
    ...RANGE_FIELDS,
    "revision",
    "limit",
    "keysOnly",
    "countOnly",
    "reverse",
  ]);
  const revision = fields.number("revision", 1);
  return {
    kind: "range",
    range: rangeOf(fields, what),
    limit: fields.number("limit", 0) ?? 0,
    keysOnly: fields.flag("keysOnly"),
    countOnly: fields.flag("countOnly"),
    reverse: fields.flag("reverse"),
    ...(revision === undefined ? {} : { revision: revision as Revision }),
  };
}

function operationOf(value: unknown, what: string): TxnOperation {
  const fields = new Fields(value, what, ["put", "delete", "get"]);
  const given = ["put", "delete", "get"].filter((name) => fields.has(name));
  if (given.length !== 1) throw invalid(`${what} has not exactly one of put, delete, get`);
  if (fields.has("put")) return putOf(fields.get("put"), `${what}.put`);
  return fields.has("delete")
    ? deleteOf(fields.get("delete"), `${what}.delete`)
    : getOf(fields.get("get"), `${what}.get`);
}

function resultJson(result: TxnOperationResult): Json {
  switch (result.kind) {
    case "put": {
      const { version, revision, createRevision, previous } = result;
      const before = previous === undefined ? {} : { previous: keyValueJson(previous) };
      const put = { ...bytesField("key", result.key), created: version === 1, version, revision };
      return { put: { ...put, fencingToken: createRevision, ...before } };
    }
    case "delete": {
      const previous =
        result.previous.length === 0 ? {} : { previous: result.previous.map((kv) => keyValueJson(kv)) };
      return { delete: { deleted: result.deleted, revision: result.revision, ...previous } };
    }
    case "range": {
      const { revision, count, more } = result;
      return { get: { items: result.kvs.map((kv) => keyValueJson(kv)), count, more, revision } };
    }
    case "txn":
      return { txn: txnJson(result) };
  }
}

function txnJson(result: TxnResult): Json {
  return {
    succeeded: result.succeeded,
    revision: result.revision,
    results: result.responses.map(resultJson),
    failedCompares: result.failures.map(({ index, actual }) => ({
      index,
      actual: actual === undefined ? null : keyValueJson(actual),
    })),
  };
}

/** `POST /v1/txn`: if all compares hold then `success`, else `failure`, atomically. */
export async function runTxn(backend: Backend, call: Call): Promise<void> {
  const fields = new Fields(parseBody(call.request.body), "the body", ["compares", "success", "failure"]);
  const result = await backend.mutate(call, {
    kind: "txn",
    compares: fields.list("compares").map((value, i) => compareOf(value, `compares[${i}]`)),
    success: fields.list("success").map((value, i) => operationOf(value, `success[${i}]`)),
    failure: fields.list("failure").map((value, i) => operationOf(value, `failure[${i}]`)),
  });
  revisionHeader(call.reply, result.revision);
  await call.reply.send(txnJson(result));
}
