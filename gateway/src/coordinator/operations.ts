/**
 * What a client may ask of a namespace: the words that every door, the replicated state machine and the
 * client share. Pure.
 */

declare const brand: unique symbol;

/**
 * The cell's counter of changes. Starts at 1 (empty cell), advances by one for each committed command that
 * changes a key. A safe integer: below 2^53.
 */
export type Revision = number & { readonly [brand]: "Revision" };

/**
 * Id of a lease (session): a positive int63 as a decimal string without leading zeros, e.g. `"81"`. Never a
 * JavaScript number, because ids chosen by clients may exceed 2^53. `"0"` means "no lease".
 */
export type LeaseId = string & { readonly [brand]: "LeaseId" };

/** Id of a registered client, for exactly-once retries. Assigned by the cell, never reused. */
export type ClientId = number & { readonly [brand]: "ClientId" };

export const NO_LEASE: LeaseId = "0" as LeaseId;

/**
 * One key, or a half-open range of keys in bytewise order.
 * `rangeEnd` absent: the single `key`. Empty (length 0): everything from `key` on. Otherwise `[key, rangeEnd)`.
 */
export interface KeyRange {
  readonly key: Uint8Array;
  readonly rangeEnd?: Uint8Array;
}

/** A key's newest state, or its state at the revision of a read. */
export interface KeyValue {
  readonly key: Uint8Array;
  /** Empty in keys-only reads. */
  readonly value: Uint8Array;
  /** The revision at which the key was created: the **fencing token** when the key is an ownership claim. */
  readonly createRevision: Revision;
  /** The revision of the newest change. */
  readonly modRevision: Revision;
  /** 1 at creation, +1 for each put; restarts after a delete. */
  readonly version: number;
  /** {@link NO_LEASE} when the key hangs on no lease. */
  readonly leaseId: LeaseId;
}

export interface PutOperation {
  readonly kind: "put";
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  /** The lease the key hangs on; absent: none (a put without a lease detaches the key). */
  readonly leaseId?: LeaseId;
  /** The stored key is `key` followed by the 16-digit decimal revision of this put. */
  readonly sequential?: boolean;
  /** Answer with the state before this put. */
  readonly returnPrevious?: boolean;
  /**
   * Leave the value, or the lease, as it is: `value` is then empty, `leaseId` absent. Refused with `key-not-found` when
   * the key does not exist; a sequential put keeps nothing.
   */
  readonly keep?: "value" | "lease" | "both";
}

export interface DeleteOperation {
  readonly kind: "delete";
  readonly range: KeyRange;
  /** Answer with the deleted keys' last states, in key order. */
  readonly returnPrevious?: boolean;
}

export interface RangeOperation {
  readonly kind: "range";
  readonly range: KeyRange;
  /** Read at this retained revision; absent: the newest state. */
  readonly revision?: Revision;
  /** At most this many keys; absent or 0: bounded by the reply's byte limit alone (`more` tells). */
  readonly limit?: number;
  /** Leave values empty. */
  readonly keysOnly?: boolean;
  /** Answer only `count`. */
  readonly countOnly?: boolean;
  /** Descending key order. */
  readonly reverse?: boolean;
  /**
   * Another order than the keys'; keys that compare equal stay in key order. With `reverse` absent. Refused with
   * `too-many-keys` when the range holds more than 100,000 keys, as is a range with a {@link filter}.
   */
  readonly sort?: RangeSort;
  /** Only keys that pass all given bounds. `count` is still that of the whole range. */
  readonly filter?: RangeFilter;
}

export type SortTarget = "version" | "create-revision" | "mod-revision" | "value";

export interface RangeSort {
  readonly target: SortTarget;
  readonly descending?: boolean;
}

/** Inclusive bounds; absent: none. */
export interface RangeFilter {
  readonly minModRevision?: number;
  readonly maxModRevision?: number;
  readonly minCreateRevision?: number;
  readonly maxCreateRevision?: number;
}

export type CompareTarget = "version" | "create-revision" | "mod-revision" | "value" | "lease";
export type CompareOperator = "=" | "!=" | "<" | ">";

/**
 * A condition on one key's state before the transaction. A missing key compares as version 0, create and mod
 * revision 0 and {@link NO_LEASE}; its value compares false whatever the operator.
 */
export interface Compare {
  readonly key: Uint8Array;
  /**
   * Every key of the range must hold, as in {@link KeyRange}; a range without keys compares like one missing key.
   * Refused with `too-many-keys` when it holds more than 100,000.
   */
  readonly rangeEnd?: Uint8Array;
  readonly target: CompareTarget;
  readonly operator: CompareOperator;
  /** number for version and revisions, LeaseId for lease, bytes for value. */
  readonly operand: number | LeaseId | Uint8Array;
}

export type TxnOperation = PutOperation | DeleteOperation | RangeOperation | TxnCommand;

/**
 * If all `compares` hold then `success`, else `failure`; all in one revision, atomically. A transaction inside one
 * decides on the state before the outermost, and has the operations that its parent's largest list left over.
 */
export interface TxnCommand {
  readonly kind: "txn";
  readonly compares: readonly Compare[];
  readonly success: readonly TxnOperation[];
  readonly failure: readonly TxnOperation[];
}

export interface LeaseGrantOperation {
  readonly kind: "lease-grant";
  /** Absent: the cell chooses. A chosen id that exists is refused with `lease-exists`. */
  readonly leaseId?: LeaseId;
  /** Raised to the cell's minimum; the answer carries what was granted. */
  readonly ttlMs: number;
  /** Free text that `lease list` and `lock inspect` show, e.g. host and process. At most 256 bytes. */
  readonly owner?: string;
}

/** Ends a lease: its keys vanish in one revision. */
export interface LeaseRevokeOperation {
  readonly kind: "lease-revoke";
  readonly leaseId: LeaseId;
}

/** Forget history below `revision` (which stays readable). */
export interface CompactOperation {
  readonly kind: "compact";
  readonly revision: Revision;
}

/** Register for exactly-once retries; the answer is a {@link ClientId}. */
export interface RegisterClientOperation {
  readonly kind: "register-client";
}

/** Everything that goes through the log on behalf of a client. */
export type WriteOperation =
  | PutOperation
  | DeleteOperation
  | TxnCommand
  | LeaseGrantOperation
  | LeaseRevokeOperation
  | CompactOperation
  | RegisterClientOperation;

/** Remaining TTL of a lease (answered by the leader, who keeps the deadlines), with its keys on request. */
export interface LeaseTimeToLiveOperation {
  readonly kind: "lease-time-to-live";
  readonly leaseId: LeaseId;
  readonly keys?: boolean;
}

/** All leases of the namespace, by id, from `after` (exclusive) on. */
export interface LeaseListOperation {
  readonly kind: "lease-list";
  readonly after?: LeaseId;
  readonly limit?: number;
}

/** Whether neither branch can change anything, nor those of the transactions inside. */
export function isReadOnly({ success, failure }: TxnCommand): boolean {
  return [success, failure].every((branch) =>
    branch.every((step) => step.kind === "range" || (step.kind === "txn" && isReadOnly(step))),
  );
}

/** A transaction without puts and deletes: all its ranges and compares see one state, and nothing goes into the log. */
export interface TxnReadOperation {
  readonly kind: "txn-read";
  readonly txn: TxnCommand;
}

export type ReadOperation = RangeOperation | LeaseTimeToLiveOperation | LeaseListOperation | TxnReadOperation;
