import type { ClientId, KeyValue, LeaseId, Revision } from "./operations.ts";

export interface PutResult {
  readonly kind: "put";
  /** The revision of this put. */
  readonly revision: Revision;
  /** The stored key; differs from the asked one for a sequential put. */
  readonly key: Uint8Array;
  /** The fencing token when the key is an ownership claim. */
  readonly createRevision: Revision;
  readonly version: number;
  /** Only with `returnPrevious`, and only if the key existed. */
  readonly previous?: KeyValue;
}

export interface DeleteResult {
  readonly kind: "delete";
  /** The revision of the deletion; the current revision when nothing was deleted. */
  readonly revision: Revision;
  readonly deleted: number;
  /** Only with `returnPrevious`; in key order. */
  readonly previous: readonly KeyValue[];
}

export interface RangeResult {
  readonly kind: "range";
  /** The cell's revision that the answer reflects (not the asked one). */
  readonly revision: Revision;
  readonly kvs: readonly KeyValue[];
  /** Keys in the range at that revision, ignoring `limit` and `filter`. Counted only up to 100,000 unless `countOnly`. */
  readonly count: number;
  /** The limit, or the reply's byte bound, cut the answer: go on after the last key. */
  readonly more: boolean;
}

/** Which compare failed, and what was there. */
export interface CompareFailure {
  /** Position in `compares`. */
  readonly index: number;
  /** The key's state (of a range: the first that failed); absent when the key does not exist. Its value is cut to 1,024 bytes. */
  readonly actual?: KeyValue;
}

export type TxnOperationResult = PutResult | DeleteResult | RangeResult | TxnResult;

export interface TxnResult {
  readonly kind: "txn";
  readonly succeeded: boolean;
  /** The revision of the transaction's writes; the current revision when it wrote nothing. */
  readonly revision: Revision;
  /** One for each operation of the branch taken. */
  readonly responses: readonly TxnOperationResult[];
  /** All compares that failed, in order; empty when it succeeded, and in a transaction inside another. */
  readonly failures: readonly CompareFailure[];
}

export interface LeaseGrantResult {
  readonly kind: "lease-grant";
  readonly leaseId: LeaseId;
  /** As granted: at least the cell's minimum. */
  readonly ttlMs: number;
  readonly revision: Revision;
}

export interface LeaseRevokeResult {
  readonly kind: "lease-revoke";
  readonly revision: Revision;
  readonly deleted: number;
}

export interface CompactResult {
  readonly kind: "compact";
  readonly revision: Revision;
}

export interface RegisterClientResult {
  readonly kind: "register-client";
  readonly clientId: ClientId;
  readonly revision: Revision;
}

export type WriteResult =
  | PutResult
  | DeleteResult
  | TxnResult
  | LeaseGrantResult
  | LeaseRevokeResult
  | CompactResult
  | RegisterClientResult;

export interface LeaseTimeToLiveResult {
  readonly kind: "lease-time-to-live";
  readonly revision: Revision;
  readonly leaseId: LeaseId;
  /** -1 when there is no such lease. */
  readonly remainingMs: number;
  /** 0 when there is no such lease. */
  readonly ttlMs: number;
  readonly owner: string;
  /** Attached keys in order, when asked for. */
  readonly keys: readonly Uint8Array[];
}

export interface LeaseSummary {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  readonly owner: string;
}

export interface LeaseListResult {
  readonly kind: "lease-list";
  readonly revision: Revision;
  readonly leases: readonly LeaseSummary[];
  readonly more: boolean;
}

export type ReadResult = RangeResult | LeaseTimeToLiveResult | LeaseListResult | TxnResult;
