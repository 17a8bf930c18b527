/** Outcomes, results and failures as bytes: remembered for retries, and forwarded between members. See ../FORMAT.md. */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type {
  ClientId,
  CompareFailure,
  DeleteResult,
  Failure,
  FailureCode,
  KeyValue,
  LeaseListResult,
  LeaseTimeToLiveResult,
  OperationOutcome,
  PutResult,
  RangeResult,
  ReadResult,
  Revision,
  TxnOperation,
  TxnOperationResult,
  TxnResult,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import { assertNever } from "../../invariant.ts";
import { EMPTY, sequentialKey } from "../bytes.ts";
import type { CommandOutcome } from "../types.ts";
import type { ByteReader, ByteWriter } from "./primitives.ts";
import { DecodeError } from "./primitives.ts";

/** Result kinds: never renumbered. */
const PUT = 1;
const DELETE = 2;
const RANGE = 3;
const TXN = 4;
const LEASE_GRANT = 5;
const LEASE_REVOKE = 6;
const COMPACT = 7;
const REGISTER_CLIENT = 8;
const LEASE_TIME_TO_LIVE = 9;
const LEASE_LIST = 10;

const OUTCOME_FAILED = 0;
const OUTCOME_DONE = 1;
const OUTCOME_REPLAYED = 2;
const OUTCOME_INTERNAL = 3;

const PUT_KEY = 1;
const PUT_PREVIOUS = 2;
const FAILURE_COMPACT_REVISION = 1;
const FAILURE_RETRY_AFTER = 2;
const KEY_VALUE_BYTES_MIN = 6;

/** Positions are the codes in bytes: append only. */
const FAILURE_CODES: readonly FailureCode[] = [
  "invalid-argument",
  "request-too-large",
  "too-many-operations",
  "duplicate-key",
  "compacted",
  "future-revision",
  "lease-not-found",
  "lease-exists",
  "too-many-keys",
  "request-expired",
  "namespace-not-found",
  "wrong-epoch",
  "overloaded",
  "quota-exceeded",
  "no-space",
  "too-many-streams",
  "too-many-watches",
  "no-leader",
  "leader-changed",
  "deadline-exceeded",
  "not-leader",
  "diverged",
  "shutting-down",
  "unsupported",
  "internal",
  "namespace-exists",
  "too-many-namespaces",
  "key-not-found",
];
const OUTCOMES: readonly OperationOutcome[] = ["not-applied", "applied", "unknown"];

/** The code's number in bytes, and in the digest. */
export function failureNumber(code: FailureCode): number {
  const number = FAILURE_CODES.indexOf(code);
  if (number < 0) throw new TypeError(`unknown failure code ${code}`);
  return number;
}

/** The code that a peer names in text; undefined: none that is known here. */
export function failureCode(text: unknown): FailureCode | undefined {
  return FAILURE_CODES.find((code) => code === text);
}

/** With `operation`, the keys of its puts are left out; {@link readOutcome} takes them from the same operation. */
export function writeOutcome(writer: ByteWriter, outcome: CommandOutcome, operation?: WriteOperation): void {
  if (!outcome.ok) {
    writer.byte(OUTCOME_FAILED);
    writeFailure(writer, outcome.failure);
  } else if (outcome.result === undefined) {
    writer.byte(OUTCOME_INTERNAL);
  } else {
    writer.byte(outcome.replayed ? OUTCOME_REPLAYED : OUTCOME_DONE);
    writeWriteResult(writer, outcome.result, operation);
  }
}

export function readOutcome(reader: ByteReader, operation?: WriteOperation): CommandOutcome {
  const tag = reader.byte();
  switch (tag) {
    case OUTCOME_FAILED:
      return { ok: false, failure: readFailure(reader) };
    case OUTCOME_INTERNAL:
      return { ok: true, result: undefined, replayed: false };
    case OUTCOME_DONE:
    case OUTCOME_REPLAYED:
      return { ok: true, result: readWriteResult(reader, operation), replayed: tag === OUTCOME_REPLAYED };
    default:
      throw new DecodeError(`unknown outcome ${tag}`);
  }
}

export function writeFailure(writer: ByteWriter, failure: Failure): void {
  writer.byte(failureNumber(failure.code));
  writer.byte(OUTCOMES.indexOf(failure.outcome));
  writer.byte(
    (failure.compactRevision !== undefined ? FAILURE_COMPACT_REVISION : 0) |
      (failure.retryAfterMs !== undefined ? FAILURE_RETRY_AFTER : 0),
  );
  writer.text(failure.message);
  if (failure.compactRevision !== undefined) writer.varint(failure.compactRevision);
  if (failure.retryAfterMs !== undefined) writer.varint(Math.ceil(failure.retryAfterMs));
}

export function readFailure(reader: ByteReader): Failure {
  const code = FAILURE_CODES[reader.byte()];
  const outcome = OUTCOMES[reader.byte()];
  if (code === undefined || outcome === undefined) throw new DecodeError("unknown failure");
  const flags = reader.flags(FAILURE_COMPACT_REVISION | FAILURE_RETRY_AFTER);
  const failure: { -readonly [K in keyof Failure]: Failure[K] } = { code, outcome, message: reader.text() };
  if ((flags & FAILURE_COMPACT_REVISION) !== 0) failure.compactRevision = reader.varint() as Revision;
  if ((flags & FAILURE_RETRY_AFTER) !== 0) failure.retryAfterMs = reader.varint();
  return failure;
}

export function writeWriteResult(writer: ByteWriter, result: WriteResult, operation?: WriteOperation): void {
  switch (result.kind) {
    case "put":
      writePut(writer, result, operation);
      return;
    case "delete":
      writeDelete(writer, result);
      return;
    case "txn":
      writeTxn(writer, result, operation);
      return;
    case "lease-grant":
      writer.byte(LEASE_GRANT);
      writer.leaseId(result.leaseId);
      writer.varint(result.ttlMs);
      writer.varint(result.revision);
      return;
    case "lease-revoke":
      writer.byte(LEASE_REVOKE);
      writer.varint(result.revision);
      writer.varint(result.deleted);
      return;
    case "compact":
      writer.byte(COMPACT);
      writer.varint(result.revision);
      return;
    case "register-client":
      writer.byte(REGISTER_CLIENT);
      writer.varint(result.clientId);
      writer.varint(result.revision);
      return;
    default:
      assertNever(result);
  }
}

export function readWriteResult(reader: ByteReader, operation?: WriteOperation): WriteResult {
  const kind = reader.byte();
  switch (kind) {
    case PUT:
      return readPut(reader, operation);
    case DELETE:
      return readDelete(reader);
    case TXN:
      return readTxn(reader, operation);
    case LEASE_GRANT:
      return {
        kind: "lease-grant",
        leaseId: reader.leaseId(),
        ttlMs: reader.varint(),
        revision: readRevision(reader),
      };
    case LEASE_REVOKE:
      return { kind: "lease-revoke", revision: readRevision(reader), deleted: reader.varint() };
    case COMPACT:
      return { kind: "compact", revision: readRevision(reader) };
    case REGISTER_CLIENT:
      return {
        kind: "register-client",
        clientId: reader.varint() as ClientId,
        revision: readRevision(reader),
      };
    default:
      throw new DecodeError(`unknown result ${kind}`);
  }
}

export function writeReadResult(writer: ByteWriter, result: ReadResult): void {
  switch (result.kind) {
    case "range":
      writeRange(writer, result);
      return;
    case "lease-time-to-live":
      writeTimeToLive(writer, result);
      return;
    case "lease-list":
      writeLeaseList(writer, result);
      return;
    case "txn":
      writeTxn(writer, result);
      return;
    default:
      assertNever(result);
  }
}

export function readReadResult(reader: ByteReader): ReadResult {
  const kind = reader.byte();
  switch (kind) {
    case RANGE:
      return readRange(reader);
    case LEASE_TIME_TO_LIVE:
      return readTimeToLive(reader);
    case LEASE_LIST:
      return readLeaseList(reader);
    case TXN:
      return readTxn(reader);
    default:
      throw new DecodeError(`unknown result ${kind}`);
  }
}

function readRevision(reader: ByteReader): Revision {
  return reader.varint() as Revision;
}

function writeKeyValue(writer: ByteWriter, kv: KeyValue): void {
  writer.byte(kv.leaseId === NO_LEASE ? 0 : 1);
  writer.bytes(kv.key);
  writer.bytes(kv.value);
  writer.varint(kv.createRevision);
  writer.varint(kv.modRevision);
  writer.varint(kv.version);
  if (kv.leaseId !== NO_LEASE) writer.leaseId(kv.leaseId);
}

function readKeyValue(reader: ByteReader): KeyValue {
  const flags = reader.flags(1);
  return {
    key: reader.bytes(),
    value: reader.bytes(),
    createRevision: readRevision(reader),
    modRevision: readRevision(reader),
    version: reader.varint(),
    leaseId: flags === 1 ? reader.leaseId() : NO_LEASE,
  };
}

function writeKeyValues(writer: ByteWriter, kvs: readonly KeyValue[]): void {
  writer.varint(kvs.length);
  for (const kv of kvs) writeKeyValue(writer, kv);
}

function readKeyValues(reader: ByteReader): KeyValue[] {
  const count = reader.count(KEY_VALUE_BYTES_MIN);
  const kvs: KeyValue[] = [];
  for (let i = 0; i < count; i++) kvs.push(readKeyValue(reader));
  return kvs;
}

/**
 * A put's stored key follows from its operation. Asked with an operation that is no put, which takes a caller that
 * reuses a request id on purpose, there is none: no input of a client's may stop a member.
 */
function storedKey(operation: WriteOperation | TxnOperation | undefined, revision: number): Uint8Array {
  if (operation?.kind !== "put") return EMPTY;
  return operation.sequential === true ? sequentialKey(operation.key, revision) : operation.key;
}

function writePut(writer: ByteWriter, put: PutResult, operation?: WriteOperation | TxnOperation): void {
  const keyed = operation?.kind !== "put";
  writer.byte(PUT);
  writer.byte((keyed ? PUT_KEY : 0) | (put.previous !== undefined ? PUT_PREVIOUS : 0));
  writer.varint(put.revision);
  writer.varint(put.createRevision);
  writer.varint(put.version);
  if (keyed) writer.bytes(put.key);
  if (put.previous !== undefined) writeKeyValue(writer, put.previous);
}

function readPut(reader: ByteReader, operation?: WriteOperation | TxnOperation): PutResult {
  const flags = reader.flags(PUT_KEY | PUT_PREVIOUS);
  const revision = readRevision(reader);
  const createRevision = readRevision(reader);
  const version = reader.varint();
  const key = (flags & PUT_KEY) !== 0 ? reader.bytes() : storedKey(operation, revision);
  if ((flags & PUT_PREVIOUS) === 0) return { kind: "put", revision, key, createRevision, version };
  return { kind: "put", revision, key, createRevision, version, previous: readKeyValue(reader) };
}

function writeDelete(writer: ByteWriter, result: DeleteResult): void {
  writer.byte(DELETE);
  writer.varint(result.revision);
  writer.varint(result.deleted);
  writeKeyValues(writer, result.previous);
}

function readDelete(reader: ByteReader): DeleteResult {
  return {
    kind: "delete",
    revision: readRevision(reader),
    deleted: reader.varint(),
    previous: readKeyValues(reader),
  };
}

function writeRange(writer: ByteWriter, result: RangeResult): void {
  writer.byte(RANGE);
  writer.byte(result.more ? 1 : 0);
  writer.varint(result.revision);
  writer.varint(result.count);
  writeKeyValues(writer, result.kvs);
}

function readRange(reader: ByteReader): RangeResult {
  const more = reader.flags(1) === 1;
  const revision = readRevision(reader);
  const count = reader.varint();
  return { kind: "range", revision, kvs: readKeyValues(reader), count, more };
}

/** The operations whose responses the result holds. */
function branchOf(
  operation: WriteOperation | TxnOperation | undefined,
  succeeded: boolean,
): readonly TxnOperation[] {
  if (operation?.kind !== "txn") return [];
  return succeeded ? operation.success : operation.failure;
}

function writeTxn(writer: ByteWriter, result: TxnResult, operation?: WriteOperation | TxnOperation): void {
  const branch = branchOf(operation, result.succeeded);
  writer.byte(TXN);
  writer.byte(result.succeeded ? 1 : 0);
  writer.varint(result.revision);
  writer.varint(result.responses.length);
  for (const [i, response] of result.responses.entries()) {
    if (response.kind === "put") writePut(writer, response, branch[i]);
    else if (response.kind === "delete") writeDelete(writer, response);
    else if (response.kind === "range") writeRange(writer, response);
    else writeTxn(writer, response, branch[i]);
  }
  writer.varint(result.failures.length);
  for (const failure of result.failures) {
    writer.byte(failure.actual === undefined ? 0 : 1);
    writer.varint(failure.index);
    if (failure.actual !== undefined) writeKeyValue(writer, failure.actual);
  }
}

/** As deep as the operation that it is the result of, which was bounded when it was read. */
function readTxn(reader: ByteReader, operation?: WriteOperation | TxnOperation): TxnResult {
  const succeeded = reader.flags(1) === 1;
  const branch = branchOf(operation, succeeded);
  const revision = readRevision(reader);
  const responseCount = reader.count(4);
  const responses: TxnOperationResult[] = [];
  for (let i = 0; i < responseCount; i++) {
    const kind = reader.byte();
    if (kind === PUT) responses.push(readPut(reader, branch[i]));
    else if (kind === DELETE) responses.push(readDelete(reader));
    else if (kind === RANGE) responses.push(readRange(reader));
    else if (kind === TXN) responses.push(readTxn(reader, branch[i]));
    else throw new DecodeError(`unknown result ${kind} in a transaction`);
  }
  const failureCount = reader.count(2);
  const failures: CompareFailure[] = [];
  for (let i = 0; i < failureCount; i++) {
    const there = reader.flags(1) === 1;
    const index = reader.varint();
    failures.push(there ? { index, actual: readKeyValue(reader) } : { index });
  }
  return { kind: "txn", succeeded, revision, responses, failures };
}

function writeTimeToLive(writer: ByteWriter, result: LeaseTimeToLiveResult): void {
  writer.byte(LEASE_TIME_TO_LIVE);
  writer.varint(result.revision);
  writer.leaseId(result.leaseId);
  // -1 (no such lease) must fit an unsigned number.
  writer.varint(Math.ceil(result.remainingMs) + 1);
  writer.varint(result.ttlMs);
  writer.text(result.owner);
  writer.varint(result.keys.length);
  for (const key of result.keys) writer.bytes(key);
}

function readTimeToLive(reader: ByteReader): LeaseTimeToLiveResult {
  const revision = readRevision(reader);
  const leaseId = reader.leaseId();
  const remainingMs = reader.varint() - 1;
  const ttlMs = reader.varint();
  const owner = reader.text();
  const count = reader.count(1);
  const keys: Uint8Array[] = [];
  for (let i = 0; i < count; i++) keys.push(reader.bytes());
  return { kind: "lease-time-to-live", revision, leaseId, remainingMs, ttlMs, owner, keys };
}

function writeLeaseList(writer: ByteWriter, result: LeaseListResult): void {
  writer.byte(LEASE_LIST);
  writer.byte(result.more ? 1 : 0);
  writer.varint(result.revision);
  writer.varint(result.leases.length);
  for (const lease of result.leases) {
    writer.leaseId(lease.leaseId);
    writer.varint(lease.ttlMs);
    writer.text(lease.owner);
  }
}

function readLeaseList(reader: ByteReader): LeaseListResult {
  const more = reader.flags(1) === 1;
  const revision = readRevision(reader);
  const count = reader.count(10);
  const leases = [];
  for (let i = 0; i < count; i++) {
    leases.push({ leaseId: reader.leaseId(), ttlMs: reader.varint(), owner: reader.text() });
  }
  return { kind: "lease-list", revision, leases, more };
}
