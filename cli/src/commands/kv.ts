import {
  prefixEnd,
  type Compare,
  type CompareOperator,
  type RangeInput,
  type Txn,
  type TxnResult,
  type TxnStep,
} from "@lockstep/client";
import type { Context } from "../context.ts";
import { EXIT, usageError } from "../exit-codes.ts";
import { formatTable, jsonBytes, jsonKeyValue, KEY_VALUE_HEAD, keyValueRow, print } from "../output.ts";

export interface RangeFlags {
  readonly prefix?: boolean;
  readonly from?: boolean;
  readonly rangeEnd?: string;
}

/** The keys that KEY and the range flags mean. */
export function rangeOf(key: string, flags: RangeFlags): RangeInput {
  const chosen = [flags.prefix === true, flags.from === true, flags.rangeEnd !== undefined];
  if (chosen.filter(Boolean).length > 1) throw usageError("use only one of --prefix, --from and --range-end");
  if (flags.prefix === true) return { prefix: key };
  if (flags.from === true) return { from: key };
  if (flags.rangeEnd !== undefined) return { from: key, to: flags.rangeEnd };
  if (key === "") throw usageError("the key is empty", "The whole namespace is `--prefix ''`.");
  return key;
}

export interface GetFlags extends RangeFlags {
  readonly revision?: number;
  readonly limit?: number;
  readonly keysOnly?: boolean;
  readonly countOnly?: boolean;
  readonly reverse?: boolean;
  readonly serializable?: boolean;
  readonly raw?: boolean;
}

export async function get(context: Context, key: string, flags: GetFlags): Promise<number> {
  const range = rangeOf(key, flags);
  const result = await context.withClient((client) =>
    client.range(range, {
      ...(flags.revision === undefined ? {} : { revision: flags.revision }),
      ...(flags.limit === undefined ? {} : { limit: flags.limit }),
      keysOnly: flags.keysOnly ?? false,
      countOnly: flags.countOnly ?? false,
      reverse: flags.reverse ?? false,
      consistency: flags.serializable === true ? "serializable" : "linearizable",
    }),
  );
  const { terminal, options } = context;
  if (flags.raw === true) {
    for (const kv of result.kvs) terminal.out(kv.value);
  } else if (flags.countOnly === true) {
    print(terminal, options.output, {
      json: { revision: result.revision, count: result.count },
      text: () => `${String(result.count)}\n`,
    });
  } else {
    print(terminal, options.output, {
      json: {
        revision: result.revision,
        kvs: result.kvs.map(jsonKeyValue),
        count: result.count,
        more: result.more,
      },
      text: () => (result.kvs.length === 0 ? "" : formatTable(KEY_VALUE_HEAD, result.kvs.map(keyValueRow))),
    });
    if (result.more && options.output === "table") {
      terminal.err(
        `There are more: ${String(result.count)} keys in all. Use --limit, or --from the last key.\n`,
      );
    }
  }
  if (result.count > 0 || typeof range !== "string") return EXIT.ok;
  if (options.output === "table") terminal.err(`There is no key "${key}".\n`);
  return EXIT.notFound;
}

export interface PutFlags {
  readonly lease?: string;
  readonly sequential?: boolean;
  readonly previous?: boolean;
}

/** Without VALUE the value comes from standard input, as it is. */
export async function put(
  context: Context,
  key: string,
  value: string | undefined,
  flags: PutFlags,
): Promise<number> {
  if (key === "" && flags.sequential !== true) throw usageError("the key is empty");
  const content = value ?? (await context.terminal.readInput());
  const result = await context.withClient((client) =>
    client.put(key, content, {
      ...(flags.lease === undefined ? {} : { leaseId: flags.lease }),
      sequential: flags.sequential ?? false,
      returnPrevious: flags.previous ?? false,
    }),
  );
  print(context.terminal, context.options.output, {
    json: {
      revision: result.revision,
      key: jsonBytes(result.key),
      createRevision: result.createRevision,
      version: result.version,
      ...(result.previous === undefined ? {} : { previous: jsonKeyValue(result.previous) }),
    },
    text: () => {
      const stored = flags.sequential === true ? `${result.key.toString("utf8")} ` : "";
      const line = `${stored}revision ${String(result.revision)}, version ${String(result.version)}\n`;
      return result.previous === undefined
        ? line
        : line + formatTable(KEY_VALUE_HEAD, [keyValueRow(result.previous)]);
    },
  });
  return EXIT.ok;
}

export async function del(
  context: Context,
  key: string,
  flags: RangeFlags & { readonly previous?: boolean },
): Promise<number> {
  const range = rangeOf(key, flags);
  const result = await context.withClient((client) =>
    client.delete(range, { returnPrevious: flags.previous ?? false }),
  );
  print(context.terminal, context.options.output, {
    json: {
      revision: result.revision,
      deleted: result.deleted,
      ...(flags.previous === true ? { previous: result.previous.map(jsonKeyValue) } : {}),
    },
    text: () =>
      `${String(result.deleted)} deleted, revision ${String(result.revision)}\n` +
      (result.previous.length === 0 ? "" : formatTable(KEY_VALUE_HEAD, result.previous.map(keyValueRow))),
  });
  return result.deleted === 0 ? EXIT.notFound : EXIT.ok;
}

export async function txn(context: Context): Promise<number> {
  const request = parseTxn(await context.terminal.readInput());
  const result = await context.withClient((client) => client.txn(request));
  print(context.terminal, context.options.output, {
    json: jsonTxn(result),
    text: () => txnText(result),
  });
  return result.succeeded ? EXIT.ok : EXIT.compareFailed;
}

function jsonTxn(result: TxnResult): unknown {
  return {
    succeeded: result.succeeded,
    revision: result.revision,
    responses: result.responses.map((response) => {
      switch (response.kind) {
        case "put":
          return {
            put: {
              revision: response.revision,
              key: jsonBytes(response.key),
              createRevision: response.createRevision,
              version: response.version,
              ...(response.previous === undefined ? {} : { previous: jsonKeyValue(response.previous) }),
            },
          };
        case "delete":
          return {
            delete: {
              revision: response.revision,
              deleted: response.deleted,
              previous: response.previous.map(jsonKeyValue),
            },
          };
        case "range":
          return {
            get: {
              revision: response.revision,
              kvs: response.kvs.map(jsonKeyValue),
              count: response.count,
              more: response.more,
            },
          };
      }
    }),
    failures: result.failures.map(({ index, actual }) => ({
      index,
      ...(actual === undefined ? {} : { actual: jsonKeyValue(actual) }),
    })),
  };
}

function txnText(result: TxnResult): string {
  const lines = [
    `${result.succeeded ? "succeeded" : "compares failed"}, revision ${String(result.revision)}\n`,
  ];
  for (const { index, actual } of result.failures) {
    lines.push(
      actual === undefined
        ? `compare ${String(index)}: there is no such key\n`
        : `compare ${String(index)}: the key is\n${formatTable(KEY_VALUE_HEAD, [keyValueRow(actual)])}`,
    );
  }
  for (const [index, response] of result.responses.entries()) {
    if (response.kind === "put") lines.push(`${String(index)}: put, version ${String(response.version)}\n`);
    else if (response.kind === "delete")
      lines.push(`${String(index)}: ${String(response.deleted)} deleted\n`);
    else if (response.kvs.length === 0) lines.push(`${String(index)}: no keys\n`);
    else lines.push(formatTable(KEY_VALUE_HEAD, response.kvs.map(keyValueRow)));
  }
  return lines.join("");
}

// ---- the transaction's JSON: that of POST /v1/txn ----

type Json = Readonly<Record<string, unknown>>;

const OPERATORS: readonly string[] = ["=", "!=", "<", ">"];

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @throws CliError with the place of what is wrong */
export function parseTxn(text: string): Txn {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw usageError(`standard input is not JSON: ${error instanceof Error ? error.message : ""}`, TXN_HINT);
  }
  if (!isObject(json)) throw usageError("a transaction is a JSON object", TXN_HINT);
  refuseUnknown(json, ["compares", "success", "failure"], "the transaction");
  return {
    compares: list(json, "compares").map((item, index) => parseCompare(item, `compares[${String(index)}]`)),
    success: list(json, "success").map((item, index) => parseStep(item, `success[${String(index)}]`)),
    failure: list(json, "failure").map((item, index) => parseStep(item, `failure[${String(index)}]`)),
  };
}

const TXN_HINT =
  'For example {"compares":[{"key":"a","version":0}],"success":[{"put":{"key":"a","value":"1"}}],"failure":[{"get":{"key":"a"}}]}';

function list(json: Json, name: string): readonly Json[] {
  const value = json[name] ?? [];
  if (!Array.isArray(value) || !value.every(isObject))
    throw usageError(`${name} is a list of objects`, TXN_HINT);
  return value;
}

function refuseUnknown(json: Json, known: readonly string[], where: string): void {
  const unknown = Object.keys(json).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw usageError(`${where} has an unknown field "${unknown}"; it may have ${known.join(", ")}`);
  }
}

/** A string, or bytes as `{"base64": ...}`. */
function bytes(json: Json, name: string, where: string): string | Buffer {
  const value = json[name];
  if (typeof value === "string") return value;
  if (isObject(value) && typeof value["base64"] === "string") return Buffer.from(value["base64"], "base64");
  throw usageError(`${where}.${name} is a string, or {"base64": "..."}`);
}

function number(json: Json, name: string, where: string): number {
  const value = json[name];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw usageError(`${where}.${name} is a whole number`);
  }
  return value;
}

function flag(json: Json, name: string, where: string): boolean {
  const value = json[name] ?? false;
  if (typeof value !== "boolean") throw usageError(`${where}.${name} is true or false`);
  return value;
}

function lease(json: Json, name: string, where: string): string {
  const value = json[name];
  if (typeof value !== "string" || !/^\d{1,19}$/.test(value)) {
    throw usageError(`${where}.${name} is a lease id: a string of decimal digits`);
  }
  return value;
}

function parseCompare(json: Json, where: string): Compare {
  refuseUnknown(
    json,
    ["key", "operator", "version", "createRevision", "modRevision", "lease", "value"],
    where,
  );
  const operator = json["operator"] ?? "=";
  if (typeof operator !== "string" || !OPERATORS.includes(operator)) {
    throw usageError(`${where}.operator is one of ${OPERATORS.join(" ")}`);
  }
  const operands = ["version", "createRevision", "modRevision", "lease", "value"].filter(
    (name) => name in json,
  );
  const [operand] = operands;
  if (operands.length !== 1 || operand === undefined) {
    throw usageError(`${where} needs exactly one of version, createRevision, modRevision, lease and value`);
  }
  const base = { key: bytes(json, "key", where), operator: operator as CompareOperator };
  switch (operand) {
    case "version":
      return { ...base, version: number(json, operand, where) };
    case "createRevision":
      return { ...base, createRevision: number(json, operand, where) };
    case "modRevision":
      return { ...base, modRevision: number(json, operand, where) };
    case "lease":
      return { ...base, leaseId: lease(json, operand, where) };
    default:
      return { ...base, value: bytes(json, "value", where) };
  }
}

function parseStep(json: Json, where: string): TxnStep {
  const [kind, ...others] = Object.keys(json);
  const body = kind === undefined ? undefined : json[kind];
  if (kind === undefined || others.length > 0 || !isObject(body)) {
    throw usageError(`${where} is {"put": {...}}, {"delete": {...}} or {"get": {...}}`);
  }
  const at = `${where}.${kind}`;
  switch (kind) {
    case "put":
      refuseUnknown(body, ["key", "value", "leaseId", "sequential", "returnPrevious"], at);
      return {
        put: {
          key: bytes(body, "key", at),
          value: bytes(body, "value", at),
          ...("leaseId" in body ? { leaseId: lease(body, "leaseId", at) } : {}),
          sequential: flag(body, "sequential", at),
          returnPrevious: flag(body, "returnPrevious", at),
        },
      };
    case "delete":
      refuseUnknown(body, ["key", "rangeEnd", "prefix", "returnPrevious"], at);
      return { delete: { ...stepRange(body, at), returnPrevious: flag(body, "returnPrevious", at) } };
    case "get":
      refuseUnknown(
        body,
        ["key", "rangeEnd", "prefix", "limit", "keysOnly", "countOnly", "reverse", "revision"],
        at,
      );
      return {
        get: {
          ...stepRange(body, at),
          ...("limit" in body ? { limit: number(body, "limit", at) } : {}),
          ...("revision" in body ? { revision: number(body, "revision", at) } : {}),
          keysOnly: flag(body, "keysOnly", at),
          countOnly: flag(body, "countOnly", at),
          reverse: flag(body, "reverse", at),
        },
      };
    default:
      throw usageError(`${where} is {"put": {...}}, {"delete": {...}} or {"get": {...}}`);
  }
}

function stepRange(body: Json, where: string): { key: string | Buffer; rangeEnd?: string | Buffer } {
  const key = bytes(body, "key", where);
  if (flag(body, "prefix", where)) return { key, rangeEnd: prefixEnd(Buffer.from(key)) };
  return "rangeEnd" in body ? { key, rangeEnd: bytes(body, "rangeEnd", where) } : { key };
}
