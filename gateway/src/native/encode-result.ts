/** Results of the native protocol, from the coordinator's words. Everything is written back to front. */
import type {
  Cause,
  CompareFailure,
  DeleteResult,
  Failure,
  KeyValue,
  LeaseGrantResult,
  LeaseListResult,
  LeaseTimeToLiveResult,
  OperationOutcome,
  PutResult,
  RangeResult,
  ReadResult,
  TxnOperationResult,
  TxnResult,
  WriteResult,
} from "../coordinator/index.ts";
import type { ReverseWriter } from "./writer.ts";

/** The answer to a renewal sent as a unary operation. */
export interface LeaseRenewResult {
  readonly kind: "lease-renew";
  readonly revision: number;
  readonly remainingMs: readonly number[];
}

export type EncodableResult = WriteResult | ReadResult | LeaseRenewResult;

const CAUSES: Readonly<Record<Cause, number>> = {
  client: 1,
  "lease-expired": 2,
  "lease-revoked": 3,
  forced: 4,
  moved: 5,
};

const OUTCOMES: Readonly<Record<OperationOutcome, number>> = { "not-applied": 1, applied: 2, unknown: 3 };

/** The wire's number of a cause. */
export function causeNumber(cause: Cause): number {
  return CAUSES[cause];
}

/** A KeyValue as the field `tag`. */
export function writeKeyValue(w: ReverseWriter, tag: number, kv: KeyValue): void {
  const before = w.length;
  w.int64(0x30, kv.leaseId);
  w.uint(0x28, kv.version);
  w.uint(0x20, kv.modRevision);
  w.uint(0x18, kv.createRevision);
  w.bytes(0x12, kv.value);
  w.bytes(0x0a, kv.key);
  w.close(tag, before);
}

function writePut(w: ReverseWriter, tag: number, result: PutResult): void {
  const before = w.length;
  if (result.previous !== undefined) writeKeyValue(w, 0x2a, result.previous);
  w.uint(0x20, result.version);
  w.uint(0x18, result.createRevision);
  w.bytes(0x12, result.key);
  w.uint(0x08, result.revision);
  w.close(tag, before);
}

function writeDelete(w: ReverseWriter, tag: number, result: DeleteResult): void {
  const before = w.length;
  const { previous } = result;
  for (let i = previous.length - 1; i >= 0; i -= 1) writeKeyValue(w, 0x1a, previous[i] as KeyValue);
  w.uint(0x10, result.deleted);
  w.uint(0x08, result.revision);
  w.close(tag, before);
}

function writeRange(w: ReverseWriter, tag: number, result: RangeResult): void {
  const before = w.length;
  const { kvs } = result;
  w.bool(0x20, result.more);
  w.uint(0x18, result.count);
  for (let i = kvs.length - 1; i >= 0; i -= 1) writeKeyValue(w, 0x12, kvs[i] as KeyValue);
  w.uint(0x08, result.revision);
  w.close(tag, before);
}

function writeStep(w: ReverseWriter, tag: number, result: TxnOperationResult): void {
  const before = w.length;
  switch (result.kind) {
    case "put":
      writePut(w, 0x0a, result);
      break;
    case "delete":
      writeDelete(w, 0x12, result);
      break;
    case "range":
      writeRange(w, 0x1a, result);
      break;
    case "txn":
      writeTxn(w, 0x22, result);
      break;
  }
  w.close(tag, before);
}

function writeCompareFailure(w: ReverseWriter, tag: number, failure: CompareFailure): void {
  const before = w.length;
  if (failure.actual !== undefined) writeKeyValue(w, 0x12, failure.actual);
  w.uint(0x08, failure.index);
  w.close(tag, before);
}

function writeTxn(w: ReverseWriter, tag: number, result: TxnResult): void {
  const before = w.length;
  const { responses, failures } = result;
  for (let i = failures.length - 1; i >= 0; i -= 1)
    writeCompareFailure(w, 0x22, failures[i] as CompareFailure);
  for (let i = responses.length - 1; i >= 0; i -= 1) writeStep(w, 0x1a, responses[i] as TxnOperationResult);
  w.uint(0x10, result.revision);
  w.bool(0x08, result.succeeded);
  w.close(tag, before);
}

function writeLeaseGrant(w: ReverseWriter, tag: number, result: LeaseGrantResult): void {
  const before = w.length;
  w.uint(0x18, result.revision);
  w.uint(0x10, result.ttlMs);
  w.int64(0x08, result.leaseId);
  w.close(tag, before);
}

function writeTimeToLive(w: ReverseWriter, tag: number, result: LeaseTimeToLiveResult): void {
  const before = w.length;
  const { keys } = result;
  for (let i = keys.length - 1; i >= 0; i -= 1) w.requiredBytes(0x32, keys[i] as Uint8Array);
  w.string(0x2a, result.owner);
  w.uint(0x20, result.ttlMs);
  w.signed(0x18, result.remainingMs);
  w.int64(0x10, result.leaseId);
  w.uint(0x08, result.revision);
  w.close(tag, before);
}

function writeLeaseList(w: ReverseWriter, tag: number, result: LeaseListResult): void {
  const before = w.length;
  const { leases } = result;
  w.bool(0x18, result.more);
  for (let i = leases.length - 1; i >= 0; i -= 1) {
    const lease = leases[i];
    if (lease === undefined) continue;
    const beforeLease = w.length;
    w.string(0x1a, lease.owner);
    w.uint(0x10, lease.ttlMs);
    w.int64(0x08, lease.leaseId);
    w.close(0x12, beforeLease);
  }
  w.uint(0x08, result.revision);
  w.close(tag, before);
}

/** Remaining TTLs as a packed field; with no entries nothing is written. */
export function writeRemaining(w: ReverseWriter, tag: number, remainingMs: readonly number[]): void {
  if (remainingMs.length === 0) return;
  const before = w.length;
  for (let i = remainingMs.length - 1; i >= 0; i -= 1) w.varint(remainingMs[i] as number);
  w.close(tag, before);
}

/** The one field that a `Result` has, without a tag and length of the Result itself. */
export function writeResultField(w: ReverseWriter, result: EncodableResult): void {
  switch (result.kind) {
    case "put":
      return writePut(w, 0x0a, result);
    case "range":
      return writeRange(w, 0x42, result);
    case "txn":
      return writeTxn(w, 0x1a, result);
    case "delete":
      return writeDelete(w, 0x12, result);
    case "lease-grant":
      return writeLeaseGrant(w, 0x22, result);
    case "lease-time-to-live":
      return writeTimeToLive(w, 0x4a, result);
    case "lease-list":
      return writeLeaseList(w, 0x52, result);
    default:
      return writeSmallResult(w, result);
  }
}

type SmallResult = Extract<
  EncodableResult,
  { readonly kind: "lease-revoke" | "lease-renew" | "compact" | "register-client" }
>;

function writeSmallResult(w: ReverseWriter, result: SmallResult): void {
  const before = w.length;
  switch (result.kind) {
    case "lease-revoke":
      w.uint(0x10, result.deleted);
      w.uint(0x08, result.revision);
      return w.close(0x2a, before);
    case "compact":
      w.uint(0x08, result.revision);
      return w.close(0x32, before);
    case "register-client":
      w.uint(0x10, result.revision);
      w.uint(0x08, result.clientId);
      return w.close(0x3a, before);
    case "lease-renew":
      writeRemaining(w, 0x12, result.remainingMs);
      w.uint(0x08, result.revision);
      return w.close(0x5a, before);
  }
}

/** A Failure as the field `tag`. */
export function writeFailure(w: ReverseWriter, tag: number, failure: Failure): void {
  const before = w.length;
  w.uint(0x28, failure.retryAfterMs ?? 0);
  w.uint(0x20, failure.compactRevision ?? 0);
  w.string(0x1a, failure.message);
  w.uint(0x10, OUTCOMES[failure.outcome]);
  w.string(0x0a, failure.code);
  w.close(tag, before);
}

/** About how many bytes a result takes on the wire: cheap, never far below the truth. */
export function resultBytes(result: EncodableResult): number {
  switch (result.kind) {
    case "put":
      return 48 + result.key.length + (result.previous === undefined ? 0 : keyValueBytes(result.previous));
    case "range":
      return 32 + keyValuesBytes(result.kvs);
    case "delete":
      return 32 + keyValuesBytes(result.previous);
    case "txn": {
      let bytes = 32;
      for (const response of result.responses) bytes += resultBytes(response);
      for (const failure of result.failures) {
        bytes += 16 + (failure.actual === undefined ? 0 : keyValueBytes(failure.actual));
      }
      return bytes;
    }
    case "lease-time-to-live": {
      let bytes = 64 + result.owner.length * 3;
      for (const key of result.keys) bytes += key.length + 4;
      return bytes;
    }
    case "lease-list": {
      let bytes = 32;
      for (const lease of result.leases) bytes += 40 + lease.owner.length * 3;
      return bytes;
    }
    case "lease-renew":
      return 32 + result.remainingMs.length * 6;
    default:
      return 48;
  }
}

/** About how many bytes a key with its value takes on the wire. */
export function keyValueBytes(kv: KeyValue): number {
  return 56 + kv.key.length + kv.value.length;
}

function keyValuesBytes(kvs: readonly KeyValue[]): number {
  let bytes = 0;
  for (const kv of kvs) bytes += keyValueBytes(kv);
  return bytes;
}
