import { prefixEnd, type Compare, type CompareOperator, type Txn, type TxnStep } from "@lockstep/client";
import { usageError } from "./exit-codes.ts";
import { LEASE_PREFIX } from "./json.ts";

// The request of POST /v1/txn, read from standard input.

const OPERATORS: Readonly<Record<string, CompareOperator>> = {
  "=": "=",
  "==": "=",
  "!=": "!=",
  "<": "<",
  ">": ">",
};

const HINT =
  'For example {"compares":[{"key":"a","version":0}],"success":[{"put":{"key":"a","value":"1"}}],"failure":[{"get":{"key":"a"}}]}';

/** One JSON object, read field by field; an unknown field is refused, with its place. */
class Fields {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly where: string;

  constructor(value: unknown, where: string, known: readonly string[]) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw usageError(`${where} is not a JSON object`, HINT);
    }
    this.#values = value as Readonly<Record<string, unknown>>;
    this.where = where;
    const unknown = Object.keys(value).find((name) => !known.includes(name));
    if (unknown !== undefined) {
      throw usageError(`${where} has an unknown field "${unknown}"; it may have ${known.join(", ")}`);
    }
  }

  get(name: string): unknown {
    return this.#values[name];
  }

  list(name: string): readonly unknown[] {
    const value = this.#values[name] ?? [];
    if (!Array.isArray(value)) throw usageError(`${name} is not a list`, HINT);
    return value;
  }

  text(name: string): string | undefined {
    const value = this.#values[name];
    if (value !== undefined && typeof value !== "string")
      throw usageError(`${this.where}.${name} is not a string`);
    return value;
  }

  flag(name: string): boolean {
    const value = this.#values[name] ?? false;
    if (typeof value !== "boolean") throw usageError(`${this.where}.${name} is not true or false`);
    return value;
  }

  number(name: string): number | undefined {
    const value = this.#values[name];
    if (value === undefined) return undefined;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      throw usageError(`${this.where}.${name} is not a whole number`);
    }
    return value;
  }

  /** `lease_81` or `81`; null: no lease. */
  lease(name: string): string | undefined {
    if (this.#values[name] === null) return "0";
    const text = this.text(name);
    if (text === undefined) return undefined;
    const digits = text.startsWith(LEASE_PREFIX) ? text.slice(LEASE_PREFIX.length) : text;
    if (!/^\d{1,19}$/.test(digits)) throw usageError(`${this.where}.${name} is not a lease id like lease_81`);
    return digits;
  }

  /** `name` as UTF-8, or `nameBase64`. */
  bytes(name: string): Buffer | undefined {
    const text = this.text(name);
    const base64 = this.text(`${name}Base64`);
    if (base64 === undefined) return text === undefined ? undefined : Buffer.from(text, "utf8");
    if (text !== undefined) throw usageError(`${this.where} has both ${name} and ${name}Base64`);
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64) || base64.length % 4 !== 0) {
      throw usageError(`${this.where}.${name}Base64 is not base64 with padding`);
    }
    return Buffer.from(base64, "base64");
  }

  requiredBytes(name: string): Buffer {
    const value = this.bytes(name);
    if (value === undefined) throw usageError(`${this.where} has neither ${name} nor ${name}Base64`);
    return value;
  }
}

const KEY_FIELDS = ["key", "keyBase64"];
const VALUE_FIELDS = ["value", "valueBase64"];
const RANGE_FIELDS = [...KEY_FIELDS, "rangeEnd", "rangeEndBase64", "prefix"];

/** @throws CliError with the place of what is wrong */
export function parseTxn(text: string): Txn {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw usageError(`standard input is not JSON: ${error instanceof Error ? error.message : ""}`, HINT);
  }
  const fields = new Fields(json, "the transaction", ["compares", "success", "failure"]);
  return {
    compares: fields.list("compares").map((item, index) => parseCompare(item, `compares[${index}]`)),
    success: fields.list("success").map((item, index) => parseStep(item, `success[${index}]`)),
    failure: fields.list("failure").map((item, index) => parseStep(item, `failure[${index}]`)),
  };
}

function parseCompare(json: unknown, where: string): Compare {
  const fields = new Fields(json, where, [
    ...KEY_FIELDS,
    "operator",
    "version",
    "createRevision",
    "modRevision",
    "lease",
    ...VALUE_FIELDS,
  ]);
  const operator = OPERATORS[fields.text("operator") ?? "="];
  if (operator === undefined) throw usageError(`${where}.operator is not one of =, !=, <, >`);
  const operands = {
    version: fields.number("version"),
    createRevision: fields.number("createRevision"),
    modRevision: fields.number("modRevision"),
    leaseId: fields.lease("lease"),
    value: fields.bytes("value"),
  };
  const given = Object.entries(operands).filter(([, operand]) => operand !== undefined);
  if (given.length !== 1) {
    throw usageError(`${where} needs exactly one of version, createRevision, modRevision, lease and value`);
  }
  return { key: fields.requiredBytes("key"), operator, ...Object.fromEntries(given) };
}

function parseStep(json: unknown, where: string): TxnStep {
  const fields = new Fields(json, where, ["put", "delete", "get"]);
  const given = (["put", "delete", "get"] as const).filter((name) => fields.get(name) !== undefined);
  const [kind] = given;
  if (given.length !== 1 || kind === undefined) {
    throw usageError(`${where} is {"put": {...}}, {"delete": {...}} or {"get": {...}}`);
  }
  const body = fields.get(kind);
  const at = `${where}.${kind}`;
  switch (kind) {
    case "put":
      return parsePut(body, at);
    case "delete": {
      const of = new Fields(body, at, [...RANGE_FIELDS, "previous"]);
      return { delete: { ...parseRange(of), returnPrevious: of.flag("previous") } };
    }
    case "get":
      return parseGet(body, at);
  }
}

function parsePut(json: unknown, where: string): TxnStep {
  const fields = new Fields(json, where, [
    ...KEY_FIELDS,
    ...VALUE_FIELDS,
    "lease",
    "leaseId",
    "sequential",
    "previous",
  ]);
  const leaseId = fields.lease("lease") ?? fields.lease("leaseId");
  return {
    put: {
      key: fields.requiredBytes("key"),
      value: fields.bytes("value") ?? Buffer.alloc(0),
      ...(leaseId === undefined ? {} : { leaseId }),
      sequential: fields.flag("sequential"),
      returnPrevious: fields.flag("previous"),
    },
  };
}

function parseGet(json: unknown, where: string): TxnStep {
  const fields = new Fields(json, where, [
    ...RANGE_FIELDS,
    "revision",
    "limit",
    "keysOnly",
    "countOnly",
    "reverse",
  ]);
  const limit = fields.number("limit");
  const revision = fields.number("revision");
  return {
    get: {
      ...parseRange(fields),
      ...(limit === undefined ? {} : { limit }),
      ...(revision === undefined ? {} : { revision }),
      keysOnly: fields.flag("keysOnly"),
      countOnly: fields.flag("countOnly"),
      reverse: fields.flag("reverse"),
    },
  };
}

function parseRange(fields: Fields): { key: Buffer; rangeEnd?: Buffer } {
  const rangeEnd = fields.bytes("rangeEnd");
  if (!fields.flag("prefix")) {
    const key = fields.requiredBytes("key");
    return rangeEnd === undefined ? { key } : { key, rangeEnd };
  }
  if (rangeEnd !== undefined) throw usageError(`${fields.where} has both prefix and rangeEnd`);
  const prefix = fields.bytes("key") ?? Buffer.alloc(0);
  // No key is empty: the smallest one is a single zero byte.
  return { key: prefix.length === 0 ? Buffer.from([0]) : prefix, rangeEnd: prefixEnd(prefix) };
}
