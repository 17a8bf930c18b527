import * as coordination from "@lockstep/proto/coordination";
import { LockstepError, type OperationOutcome } from "../errors.ts";
import {
  KeyValue,
  type Cause,
  type CellInfo,
  type DeleteResult,
  type OperationResult,
  type PutResult,
  type RangeResult,
  type TxnResult,
  type TxnStepResult,
} from "../types.ts";

type WireResult = NonNullable<coordination.Result["result"]>;

/** A decoded result as the library's plain types. */
export function mapResult(result: WireResult): OperationResult {
  switch (result.$case) {
    case "put":
      return mapPut(result.value);
    case "delete":
      return mapDelete(result.value);
    case "range":
      return mapRange(result.value);
    case "txn":
      return mapTxn(result.value);
    case "leaseGrant":
      return { kind: "lease-grant", ...result.value };
    case "leaseRevoke":
      return { kind: "lease-revoke", ...result.value };
    case "compact":
      return { kind: "compact", ...result.value };
    case "registerClient":
      return { kind: "register-client", ...result.value };
    case "leaseTimeToLive":
      return { kind: "lease-time-to-live", ...result.value };
    case "leaseList":
      return { kind: "lease-list", ...result.value };
    case "leaseRenew":
      return { kind: "lease-renew", ...result.value };
  }
}

function mapKeyValue(kv: coordination.KeyValue): KeyValue {
  return new KeyValue(kv);
}

function mapPut(put: coordination.PutResult): PutResult {
  const { revision, key, createRevision, version } = put;
  return put.previous === undefined
    ? { kind: "put", revision, key, createRevision, version }
    : { kind: "put", revision, key, createRevision, version, previous: mapKeyValue(put.previous) };
}

function mapDelete(result: coordination.DeleteResult): DeleteResult {
  return {
    kind: "delete",
    revision: result.revision,
    deleted: result.deleted,
    previous: result.previous.map(mapKeyValue),
  };
}

function mapRange(result: coordination.RangeResult): RangeResult {
  return {
    kind: "range",
    revision: result.revision,
    kvs: result.kvs.map(mapKeyValue),
    count: result.count,
    more: result.more,
  };
}

function mapStep({ result }: coordination.TxnStepResult): TxnStepResult {
  switch (result?.$case) {
    case "put":
      return mapPut(result.value);
    case "delete":
      return mapDelete(result.value);
    case "range":
      return mapRange(result.value);
    // Of a transaction inside, which this client does not send.
    case "txn":
    case undefined:
      throw new LockstepError(
        "protocol-error",
        "applied",
        "a transaction's step has a result of an unknown kind",
      );
  }
}

function mapTxn(result: coordination.TxnResult): TxnResult {
  return {
    kind: "txn",
    succeeded: result.succeeded,
    revision: result.revision,
    responses: result.responses.map(mapStep),
    failures: result.failures.map(({ index, actual }) =>
      actual === undefined ? { index } : { index, actual: mapKeyValue(actual) },
    ),
  };
}

export function causeFromWire(cause: coordination.Cause): Cause {
  switch (cause) {
    case coordination.Cause.CLIENT:
      return "client";
    case coordination.Cause.LEASE_EXPIRED:
      return "lease-expired";
    case coordination.Cause.LEASE_REVOKED:
      return "lease-revoked";
    case coordination.Cause.FORCED:
      return "forced";
    case coordination.Cause.MOVED:
      return "moved";
    default:
      return "unknown";
  }
}

export function mapInfo(info: coordination.InfoResponse): CellInfo {
  const { leader, ...rest } = info;
  return leader === undefined ? rest : { ...rest, leader: { ...leader } };
}

function outcomeFromWire(outcome: coordination.Outcome): OperationOutcome {
  switch (outcome) {
    case coordination.Outcome.NOT_APPLIED:
      return "not-applied";
    case coordination.Outcome.APPLIED:
      return "applied";
    default:
      return "unknown";
  }
}

export function errorFromFailure(failure: coordination.Failure): LockstepError {
  return new LockstepError(failure.code, outcomeFromWire(failure.outcome), failure.message, {
    ...(failure.retryAfterMs > 0 ? { retryAfterMs: failure.retryAfterMs } : {}),
    ...(failure.compactRevision > 0 ? { compactRevision: failure.compactRevision } : {}),
  });
}
