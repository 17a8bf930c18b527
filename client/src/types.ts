import type { Bytes } from "./bytes.ts";

/** Id of a lease: a positive int63 as a decimal string. `"0"`: none. */
export type LeaseId = string;

/** The lease of a key that hangs on none. */
export const NO_LEASE_ID: LeaseId = "0";

/** Bounds one call. */
export interface CallOptions {
  /** Give up after this long; default: the client's `deadlineMs` (10 s). The error then tells the outcome. */
  readonly deadlineMs?: number;
  /** Give up when it fires. */
  readonly signal?: AbortSignal;
}

/**
 * One key's state. `key` and `value` are views of the received frame: copy them to keep them for long.
 */
export class KeyValue {
  readonly key: Buffer;
  readonly value: Buffer;
  /** The revision at which the key was created: the **fencing token** when the key is an ownership claim. */
  readonly createRevision: number;
  readonly modRevision: number;
  /** 1 at creation, +1 for each put. */
  readonly version: number;
  readonly leaseId: LeaseId;

  // One shape for all: the decoder fills plain numbers in and calls this once per key.
  constructor(fields: {
    key: Buffer;
    value: Buffer;
    createRevision: number;
    modRevision: number;
    version: number;
    leaseId: LeaseId;
  }) {
    this.key = fields.key;
    this.value = fields.value;
    this.createRevision = fields.createRevision;
    this.modRevision = fields.modRevision;
    this.version = fields.version;
    this.leaseId = fields.leaseId;
  }

  /** The key as UTF-8. */
  get keyText(): string {
    return this.key.toString("utf8");
  }

  /** The value as UTF-8. */
  text(): string {
    return this.value.toString("utf8");
  }

  /** The value as JSON; throws `SyntaxError` when it is not. */
  json(): unknown {
    return JSON.parse(this.text()) as unknown;
  }
}

export interface PutOptions extends CallOptions {
  /** The key hangs on this lease; absent: on none (a put without a lease detaches the key). */
  readonly leaseId?: LeaseId;
  /** The stored key is `key` followed by the 16-digit revision. */
  readonly sequential?: boolean;
  readonly returnPrevious?: boolean;
}

export interface RangeOptions extends CallOptions {
  /** Read at this retained revision. */
  readonly revision?: number;
  readonly limit?: number;
  readonly keysOnly?: boolean;
  readonly countOnly?: boolean;
  readonly reverse?: boolean;
  /** Default `linearizable`: reflects every write acknowledged before the call. */
  readonly consistency?: "linearizable" | "serializable";
  /** With `serializable`: wait until the member reflects at least this revision. */
  readonly minRevision?: number;
}

export interface DeleteOptions extends CallOptions {
  readonly returnPrevious?: boolean;
}

/** What a put did. */
export interface PutResult {
  readonly kind: "put";
  readonly revision: number;
  /** The stored key; differs from the asked one for a sequential put. */
  readonly key: Buffer;
  readonly createRevision: number;
  readonly version: number;
  readonly previous?: KeyValue;
}

/** What a deletion did; `deleted` is 0 when there was nothing. */
export interface DeleteResult {
  readonly kind: "delete";
  readonly revision: number;
  readonly deleted: number;
  readonly previous: readonly KeyValue[];
}

/** The keys of a range, in their order as bytes. */
export interface RangeResult {
  readonly kind: "range";
  /** The revision that the answer reflects. */
  readonly revision: number;
  readonly kvs: readonly KeyValue[];
  readonly count: number;
  /** A limit cut the answer: go on after the last key. */
  readonly more: boolean;
}

/** How the key's state is compared with the operand, the state on the left. */
export type CompareOperator = "=" | "!=" | "<" | ">";

/** A condition on one key's state before the transaction; exactly one of the operands. */
export interface Compare {
  readonly key: Bytes;
  /** Default `=`. */
  readonly operator?: CompareOperator;
  readonly version?: number;
  readonly createRevision?: number;
  readonly modRevision?: number;
  readonly value?: Bytes;
  readonly leaseId?: LeaseId;
}

/** One step of a transaction; steps are done in order, and a later one sees what an earlier one wrote. */
export type TxnStep =
  | { readonly put: { readonly key: Bytes; readonly value: Bytes } & Omit<PutOptions, keyof CallOptions> }
  | {
      readonly delete: { readonly key: Bytes; readonly rangeEnd?: Bytes } & Omit<
        DeleteOptions,
        keyof CallOptions
      >;
    }
  | {
      readonly get: { readonly key: Bytes; readonly rangeEnd?: Bytes } & Omit<
        RangeOptions,
        keyof CallOptions | "consistency" | "minRevision"
      >;
    };

/** If all `compares` hold then `success`, else `failure`; all in one revision. */
export interface Txn {
  readonly compares?: readonly Compare[];
  readonly success?: readonly TxnStep[];
  readonly failure?: readonly TxnStep[];
}

/** What a step of a transaction did. */
export type TxnStepResult = PutResult | DeleteResult | RangeResult;

/** A compare that did not hold. */
export interface CompareFailure {
  /** Among the transaction's compares. */
  readonly index: number;
  /** Absent: the key does not exist. */
  readonly actual?: KeyValue;
}

/** Which branch of a transaction was taken, and what it did. */
export interface TxnResult {
  readonly kind: "txn";
  readonly succeeded: boolean;
  readonly revision: number;
  /** One for each step of the branch taken. */
  readonly responses: readonly TxnStepResult[];
  /** All compares that failed, with what was there. */
  readonly failures: readonly CompareFailure[];
}

export interface LeaseGrantOptions extends CallOptions {
  /** Raised to the cell's minimum (2 s); the result carries what was granted. */
  readonly ttlMs: number;
  /** Absent: the cell chooses. */
  readonly leaseId?: LeaseId;
  /** Free text that `lease list` shows. */
  readonly owner?: string;
}

/** A lease that the cell has granted. */
export interface LeaseGrantResult {
  readonly kind: "lease-grant";
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  readonly revision: number;
}

/** What the end of a lease did. */
export interface LeaseRevokeResult {
  readonly kind: "lease-revoke";
  readonly revision: number;
  /** Keys that vanished with it. */
  readonly deleted: number;
}

/** A lease as it is now. */
export interface LeaseTimeToLiveResult {
  readonly kind: "lease-time-to-live";
  readonly revision: number;
  readonly leaseId: LeaseId;
  /** -1: there is no such lease. */
  readonly remainingMs: number;
  readonly ttlMs: number;
  readonly owner: string;
  readonly keys: readonly Buffer[];
}

/** A lease in a list. */
export interface LeaseSummary {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  readonly owner: string;
}

/** One page of leases, by id. */
export interface LeaseListResult {
  readonly kind: "lease-list";
  readonly revision: number;
  readonly leases: readonly LeaseSummary[];
  readonly more: boolean;
}

/** How long each lease lasts now, in the order of asking; 0: it is gone. */
export interface LeaseRenewResult {
  readonly kind: "lease-renew";
  readonly revision: number;
  readonly remainingMs: readonly number[];
}

/** A compaction that the cell has taken note of. */
export interface CompactResult {
  readonly kind: "compact";
  readonly revision: number;
}

/** The id under which a client's mutations are remembered. */
export interface RegisterClientResult {
  readonly kind: "register-client";
  readonly clientId: number;
  readonly revision: number;
}

/** The answer to any operation. */
export type OperationResult =
  | PutResult
  | DeleteResult
  | RangeResult
  | TxnResult
  | LeaseGrantResult
  | LeaseRevokeResult
  | LeaseTimeToLiveResult
  | LeaseListResult
  | LeaseRenewResult
  | CompactResult
  | RegisterClientResult;

/** Why a key or a lease went away. */
export type Cause = "unknown" | "client" | "lease-expired" | "lease-revoked" | "forced" | "moved";

/** One change of one key. */
export interface WatchEvent {
  readonly kind: "put" | "delete";
  /** Of a deletion: only key and modRevision. */
  readonly kv: KeyValue;
  readonly previous?: KeyValue;
  readonly cause: Cause;
}

/** All events of one or more whole revisions, up to and including `revision`. Shared by all watches that see the same. */
export interface WatchBatch {
  readonly revision: number;
  readonly events: readonly WatchEvent[];
}

/** The cell as the connected member knows it. */
export interface CellInfo {
  readonly cellId: string;
  readonly memberId: number;
  readonly term: number;
  readonly revision: number;
  readonly leader?: {
    readonly memberId: number;
    readonly clientAddress: string;
    readonly httpAddress: string;
  };
  /** Client addresses of all members, as far as the connected one knows. */
  readonly clientAddresses: readonly string[];
}
