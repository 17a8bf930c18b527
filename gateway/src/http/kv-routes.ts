import type {
  DeleteResult,
  KeyRange,
  PutOperation,
  PutResult,
  RangeOperation,
  Revision,
} from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import type { Backend, Call } from "./backend.ts";
import { header } from "./backend.ts";
import { conditionFailed, conditionsOf, revisionHeader, versionHeaders } from "./conditions.ts";
import type { Json } from "./json.ts";
import { bytesField, keyValueJson, leaseOf } from "./json.ts";
import { ProblemError, httpProblem, invalid } from "./problem.ts";
import { keyAfter, prefixEnd } from "../keys.ts";
import { keyOf } from "./target.ts";

export const PUT_PARAMETERS: readonly string[] = ["sequential"];
export const DELETE_PARAMETERS: readonly string[] = ["prefix"];
export const GET_PARAMETERS: readonly string[] = [
  "revision",
  "minRevision",
  "consistency",
  "prefix",
  "limit",
  "after",
  "keysOnly",
  "countOnly",
];

const EMPTY: Buffer = Buffer.alloc(0);

function singleKey(call: Call): Buffer {
  const key = keyOf(call.target.path);
  if (key.length === 0) throw invalid("the path names no key: /v1/kv/KEY");
  return key;
}

// ---- PUT ----

/** `PUT /v1/kv/KEY`: the body is the value. */
export async function putKey(backend: Backend, call: Call): Promise<void> {
  const { request, reply } = call;
  const key = singleKey(call);
  const lease = header(request, "lease-id");
  const sequential = call.query.flag("sequential");
  const leaseId = lease === undefined ? undefined : leaseOf(lease, "the header Lease-ID");
  const operation: PutOperation = {
    kind: "put",
    key,
    value: Buffer.isBuffer(request.body) ? request.body : EMPTY,
    sequential,
    ...(leaseId === undefined ? {} : { leaseId }),
  };
  const result = await conditionalPut(backend, call, operation);
  const created = result.version === 1;
  revisionHeader(reply, result.revision);
  const { version, revision, createRevision } = result;
  await reply
    .code(created ? 201 : 200)
    .headers(versionHeaders({ version, createRevision, modRevision: revision, leaseId: leaseId ?? NO_LEASE }))
    .send({
      created,
      version,
      revision,
      fencingToken: createRevision,
      ...(sequential ? bytesField("key", result.key) : {}),
    });
}

async function conditionalPut(backend: Backend, call: Call, operation: PutOperation): Promise<PutResult> {
  const compares = conditionsOf(call.request, operation.key);
  if (compares.length === 0) return backend.mutate(call, operation);
  const result = await backend.mutate(call, { kind: "txn", compares, success: [operation], failure: [] });
  const [response] = result.responses;
  if (!result.succeeded || response?.kind !== "put") throw conditionFailed(result);
  return response;
}

// ---- DELETE ----

/** `DELETE /v1/kv/KEY`, or all keys below with `?prefix`. */
export async function deleteKey(backend: Backend, call: Call): Promise<void> {
  const result = call.query.flag("prefix")
    ? await deletePrefix(backend, call)
    : await deleteSingle(backend, call);
  revisionHeader(call.reply, result.revision);
  await call.reply.send({ deleted: result.deleted, revision: result.revision });
}

async function deletePrefix(backend: Backend, call: Call): Promise<DeleteResult> {
  const key = keyOf(call.target.path);
  if (conditionsOf(call.request, key).length > 0)
    throw invalid("conditions are about one key: not with ?prefix");
  return backend.mutate(call, { kind: "delete", range: { key, rangeEnd: prefixEnd(key) } });
}

async function deleteSingle(backend: Backend, call: Call): Promise<DeleteResult> {
  const key = singleKey(call);
  const compares = conditionsOf(call.request, key);
  const operation = { kind: "delete", range: { key } } as const;
  if (compares.length === 0) return backend.mutate(call, operation);
  const result = await backend.mutate(call, { kind: "txn", compares, success: [operation], failure: [] });
  const [response] = result.responses;
  if (!result.succeeded || response?.kind !== "delete") throw conditionFailed(result);
  return response;
}

// ---- GET ----

/** `GET /v1/kv/KEY`: one key, or a list with `?prefix`. */
export async function getKey(backend: Backend, call: Call): Promise<void> {
  const prefix = call.query.flag("prefix");
  if (prefix) await listKeys(backend, call);
  else await getSingle(backend, call);
}

function readOptions(call: Call): { serializable: boolean; minRevision: number | undefined } {
  const consistency = call.query.text("consistency") ?? "linearizable";
  if (consistency !== "linearizable" && consistency !== "serializable") {
    throw invalid("the query parameter consistency is linearizable or serializable");
  }
  return { serializable: consistency === "serializable", minRevision: call.query.number("minRevision", 1) };
}

function rangeOperation(range: KeyRange, revision: number | undefined): RangeOperation {
  return revision === undefined
    ? { kind: "range", range }
    : { kind: "range", range, revision: revision as Revision };
}

function wantsJson(call: Call): boolean {
  return (call.request.headers.accept ?? "").includes("application/json");
}

async function getSingle(backend: Backend, call: Call): Promise<void> {
  const { query, request, reply } = call;
  for (const name of ["limit", "after", "countOnly"]) {
    if (query.has(name)) throw invalid(`the query parameter ${name} goes with ?prefix`);
  }
  const operation = rangeOperation({ key: singleKey(call) }, query.number("revision", 1));
  const keysOnly = query.flag("keysOnly");
  const result = await backend.read(call, { ...operation, keysOnly }, readOptions(call));
  revisionHeader(reply, result.revision);
  void reply.header("vary", "Accept, Lockstep-Namespace").header("cache-control", "no-cache");
  const kv = result.kvs[0];
  if (kv === undefined) throw new ProblemError(httpProblem("key-not-found", "the key does not exist"));
  void reply.headers(versionHeaders(kv));
  if (request.headers["if-none-match"]?.trim() === `"${kv.modRevision}"`) await reply.code(304).send();
  else if (wantsJson(call)) await reply.send(keyValueJson(kv, !keysOnly));
  else {
    const { buffer, byteOffset, byteLength } = kv.value;
    await reply.type("application/octet-stream").send(Buffer.from(buffer, byteOffset, byteLength));
  }
}

/** Where a list goes on: the revision that all its pages show, and the last key seen. */
interface Continuation {
  readonly revision: number;
  readonly lastKey: Buffer;
}

function continuationText({ revision, lastKey }: Continuation): string {
  return `${revision}.${lastKey.toString("base64url")}`;
}

function continuationOf(text: string): Continuation {
  const match = /^([1-9]\d{0,15})\.([A-Za-z0-9_-]+)$/.exec(text);
  if (match?.[1] === undefined || match[2] === undefined) {
    throw invalid("the query parameter after is not the next of an earlier answer");
  }
  return { revision: Number(match[1]), lastKey: Buffer.from(match[2], "base64url") };
}

async function listKeys(backend: Backend, call: Call): Promise<void> {
  const { query, reply } = call;
  const prefix = keyOf(call.target.path);
  const afterText = query.text("after");
  const after = afterText === undefined ? undefined : continuationOf(afterText);
  const revision = query.number("revision", 1);
  if (after !== undefined && revision !== undefined && revision !== after.revision) {
    throw invalid("all pages of a list are at one revision: leave revision out with after");
  }
  const start = after === undefined ? prefix : keyAfter(after.lastKey);
  if (start.compare(prefix) < 0) throw invalid("the query parameter after belongs to another list");
  const keysOnly = query.flag("keysOnly");
  const countOnly = query.flag("countOnly");
  const limit = Math.min(
    query.number("limit", 1) ?? backend.doorLimits.listKeysDefault,
    backend.limits.rangeKeysMax,
  );
  const range = { key: start, rangeEnd: prefixEnd(prefix) };
  const operation = { ...rangeOperation(range, after?.revision ?? revision), limit, keysOnly, countOnly };
  const result = await backend.read(call, operation, readOptions(call));
  revisionHeader(reply, result.revision);
  const shown = after?.revision ?? revision ?? result.revision;
  const last = result.kvs.at(-1);
  const next: Json =
    result.more && last !== undefined
      ? { next: continuationText({ revision: shown, lastKey: Buffer.from(last.key) }) }
      : {};
  await reply.send({
    revision: shown,
    count: result.count,
    ...(countOnly
      ? {}
      : { items: result.kvs.map((kv) => keyValueJson(kv, !keysOnly)), more: result.more, ...next }),
  });
}
