/**
 * What every door checks before a request costs memory or reaches the log. A check answers with a refusal, or
 * `undefined` when all is well; nothing is thrown, nothing is allocated on the good path.
 */
import type {
  Compare,
  Failure,
  FailureCode,
  KeyRange,
  LeaseGrantOperation,
  Limits,
  PutOperation,
  RangeOperation,
  ReadOperation,
  RequestIdentity,
  TxnCommand,
  TxnOperation,
  WriteOperation,
} from "./coordinator/index.ts";
import { isReadOnly } from "./coordinator/index.ts";

/** A refusal of something that never reached the coordinator. */
export function refusal(code: FailureCode, message: string, retryAfterMs?: number): Failure {
  return retryAfterMs === undefined
    ? { code, outcome: "not-applied", message }
    : { code, outcome: "not-applied", message, retryAfterMs };
}

function invalid(message: string): Failure {
  return refusal("invalid-argument", message);
}

function keyFailure(key: Uint8Array, limits: Limits): Failure | undefined {
  const length = key.length;
  if (length > 0 && length <= limits.keyBytesMax) return undefined;
  return length === 0
    ? invalid("the key is empty: a key has at least one byte")
    : refusal("request-too-large", `the key has ${length} bytes: at most ${limits.keyBytesMax} are allowed`);
}

/** The start of a range may be empty (from the first key on); a single key may not. */
export function validateRange(range: KeyRange, limits: Limits): Failure | undefined {
  const end = range.rangeEnd;
  if (end === undefined) return keyFailure(range.key, limits);
  // A bound may be one byte longer than any key: "after the last key" is that key followed by a zero byte.
  const bytesMax = limits.keyBytesMax + 1;
  if (range.key.length > bytesMax || end.length > bytesMax) {
    return refusal("request-too-large", `a bound of the range has more than ${bytesMax} bytes`);
  }
  return undefined;
}

const INT63_MAX = "9223372036854775807";

/** A positive int63 in decimal without leading zeros. */
export function isLeaseId(text: string): boolean {
  const length = text.length;
  if (length === 0 || length > INT63_MAX.length) return false;
  const first = text.charCodeAt(0);
  if (first < 0x31 || first > 0x39) return false;
  for (let i = 1; i < length; i += 1) {
    const code = text.charCodeAt(i);
    if (code < 0x30 || code > 0x39) return false;
  }
  return length < INT63_MAX.length || text <= INT63_MAX;
}

function leaseFailure(leaseId: string): Failure | undefined {
  return isLeaseId(leaseId) ? undefined : invalid("the lease id is not a positive 63-bit integer in decimal");
}

function validatePut(put: PutOperation, limits: Limits): Failure | undefined {
  const keyLength = put.key.length;
  if (keyLength === 0 || keyLength > limits.keyBytesMax) return keyFailure(put.key, limits);
  if (put.value.length > limits.valueBytesMax) {
    return refusal(
      "request-too-large",
      `the value has ${put.value.length} bytes: at most ${limits.valueBytesMax} are allowed`,
    );
  }
  if (put.sequential === true && keyLength + SEQUENCE_DIGITS > limits.keyBytesMax) {
    return refusal("request-too-large", `a sequential key needs room for ${SEQUENCE_DIGITS} digits`);
  }
  if (put.keep !== undefined) {
    const refused = keepFailure(put);
    if (refused !== undefined) return refused;
  }
  return put.leaseId === undefined ? undefined : leaseFailure(put.leaseId);
}

function keepFailure({ keep, value, leaseId, sequential }: PutOperation): Failure | undefined {
  if (sequential === true) return invalid("a sequential put makes a new key, which has nothing to keep");
  if (keep !== "lease" && value.length > 0) return invalid("a put that keeps the value brings none");
  return keep !== "value" && leaseId !== undefined
    ? invalid("a put that keeps the lease names none")
    : undefined;
}

const SEQUENCE_DIGITS = 16;

function validateRangeOperation(operation: RangeOperation, limits: Limits): Failure | undefined {
  const { limit, revision } = operation;
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)) {
    return invalid("the limit is not a whole number of keys");
  }
  if (revision !== undefined && !(Number.isSafeInteger(revision) && revision >= 1)) {
    return invalid("the revision is not a positive whole number");
  }
  if (operation.sort !== undefined && operation.reverse === true) {
    return invalid("a sorted range has its direction in its sort, not in reverse");
  }
  for (const bound of operation.filter === undefined ? [] : Object.values(operation.filter)) {
    if (!(Number.isSafeInteger(bound) && bound >= 0)) return invalid("a bound of a filter is not a revision");
  }
  return validateRange(operation.range, limits);
}

function validateTxnOperation(operation: TxnOperation, limits: Limits): Failure | undefined {
  switch (operation.kind) {
    case "put":
      return validatePut(operation, limits);
    case "delete":
      return validateRange(operation.range, limits);
    case "range":
      return validateRangeOperation(operation, limits);
    case "txn":
      return validateTxnParts(operation, limits);
  }
}

function validateCompare(compare: Compare, limits: Limits): Failure | undefined {
  const { target, operand } = compare;
  const wanted = target === "value" ? "object" : target === "lease" ? "string" : "number";
  if (typeof operand !== wanted) return invalid(`the operand of a ${target} compare has the wrong type`);
  if (typeof operand === "number" && !Number.isSafeInteger(operand)) {
    return invalid(`the operand of a ${target} compare is not a whole number`);
  }
  if (typeof operand === "string" && operand !== "0" && !isLeaseId(operand)) return leaseFailure(operand);
  const { key, rangeEnd } = compare;
  return rangeEnd === undefined ? keyFailure(key, limits) : validateRange({ key, rangeEnd }, limits);
}

function rangeBytes(range: KeyRange): number {
  return range.key.length + (range.rangeEnd?.length ?? 0);
}

function operationBytes(operation: TxnOperation): number {
  switch (operation.kind) {
    case "put":
      return operation.key.length + operation.value.length;
    case "txn":
      return txnBytes(operation);
    default:
      return rangeBytes(operation.range);
  }
}

function branchFailure(branch: readonly TxnOperation[], limits: Limits): Failure | undefined {
  for (const operation of branch) {
    const failure = validateTxnOperation(operation, limits);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

function compareBytes(compare: Compare): number {
  const operandBytes = typeof compare.operand === "object" ? compare.operand.length : 8;
  return compare.key.length + (compare.rangeEnd?.length ?? 0) + operandBytes;
}

function txnBytes({ compares, success, failure }: TxnCommand): number {
  let bytes = 0;
  for (const compare of compares) bytes += compareBytes(compare);
  for (const operation of success) bytes += operationBytes(operation);
  for (const operation of failure) bytes += operationBytes(operation);
  return bytes;
}

function validateTxn(txn: TxnCommand, limits: Limits): Failure | undefined {
  const refused = validateTxnParts(txn, limits);
  if (refused !== undefined) return refused;
  const bytes = txnBytes(txn);
  return bytes > limits.txnBytesMax
    ? refusal(
        "request-too-large",
        `the transaction has ${bytes} bytes of keys and values: at most ${limits.txnBytesMax} are allowed`,
      )
    : undefined;
}

/** The state machine checks what a transaction and those inside it have together. */
function validateTxnParts(txn: TxnCommand, limits: Limits): Failure | undefined {
  const { compares, success, failure } = txn;
  const most = Math.max(compares.length, success.length, failure.length);
  if (most > limits.txnOperationsMax) {
    return refusal(
      "too-many-operations",
      `the transaction has ${most} entries in one list: at most ${limits.txnOperationsMax} are allowed`,
    );
  }
  for (const compare of compares) {
    const refused = validateCompare(compare, limits);
    if (refused !== undefined) return refused;
  }
  return (
    branchFailure(success, limits) ??
    branchFailure(failure, limits) ??
    duplicateFailure(success) ??
    duplicateFailure(failure)
  );
}

/** One branch may write a key once: two puts would fight for one (revision, key) pair. */
function duplicateFailure(branch: readonly TxnOperation[]): Failure | undefined {
  if (branch.length < 2) return undefined;
  const seen = new Set<string>();
  for (const operation of branch) {
    if (operation.kind !== "put" || operation.sequential === true) continue;
    const { key } = operation;
    const text = Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString("latin1");
    if (seen.has(text)) return refusal("duplicate-key", "the transaction puts one key twice in one branch");
    seen.add(text);
  }
  return undefined;
}

function validateLeaseGrant(grant: LeaseGrantOperation, limits: Limits): Failure | undefined {
  const { ttlMs, owner, leaseId } = grant;
  if (!Number.isSafeInteger(ttlMs) || ttlMs < 1)
    return invalid("the TTL is not a positive number of milliseconds");
  if (ttlMs > limits.leaseTtlMsMax) return invalid(`the TTL is above ${limits.leaseTtlMsMax} milliseconds`);
  if (owner !== undefined && Buffer.byteLength(owner) > limits.leaseOwnerBytesMax) {
    return refusal("request-too-large", `the owner text has more than ${limits.leaseOwnerBytesMax} bytes`);
  }
  return leaseId === undefined ? undefined : leaseFailure(leaseId);
}

/** @returns the refusal of a mutation, or `undefined` when a coordinator may have it. */
export function validateWrite(operation: WriteOperation, limits: Limits): Failure | undefined {
  switch (operation.kind) {
    case "put":
      return validatePut(operation, limits);
    case "delete":
      return validateRange(operation.range, limits);
    case "txn":
      return validateTxn(operation, limits);
    case "lease-grant":
      return validateLeaseGrant(operation, limits);
    case "lease-revoke":
      return leaseFailure(operation.leaseId);
    case "compact":
      return operation.revision >= 1 ? undefined : invalid("the revision to compact to is not positive");
    case "register-client":
      return undefined;
  }
}

/** @returns the refusal of a read, or `undefined` when a coordinator may have it. */
export function validateRead(operation: ReadOperation, limits: Limits): Failure | undefined {
  switch (operation.kind) {
    case "range":
      return validateRangeOperation(operation, limits);
    case "lease-time-to-live":
      return leaseFailure(operation.leaseId);
    case "lease-list":
      return operation.after === undefined ? undefined : leaseFailure(operation.after);
    case "txn-read":
      return isReadOnly(operation.txn)
        ? validateTxn(operation.txn, limits)
        : invalid("a transaction that is answered like a read has no puts and deletes");
  }
}

/** @returns the refusal of a renewal, or `undefined` when a coordinator may have it. */
export function validateRenewal(leaseIds: readonly string[], limits: Limits): Failure | undefined {
  if (leaseIds.length > limits.renewalsPerFrameMax) {
    return refusal(
      "too-many-operations",
      `${leaseIds.length} leases in one renewal: at most ${limits.renewalsPerFrameMax} are allowed`,
    );
  }
  for (const leaseId of leaseIds) {
    if (!isLeaseId(leaseId)) return leaseFailure(leaseId);
  }
  return undefined;
}

const TOKEN = /^[\x21-\x7e]+$/;

/** @returns the refusal of a request identity, or `undefined`. */
export function validateIdentity(identity: RequestIdentity, limits: Limits): Failure | undefined {
  switch (identity.kind) {
    case "none":
      return undefined;
    case "client":
      if (identity.sequence < 1) return invalid("a registered client numbers its requests from 1 on");
      return identity.acknowledgedBelow > identity.sequence
        ? invalid("acknowledged_below is above the sequence of the request itself")
        : undefined;
    case "token":
      if (identity.token.length > limits.requestTokenBytesMax) {
        return invalid(`the request id has more than ${limits.requestTokenBytesMax} bytes`);
      }
      return TOKEN.test(identity.token)
        ? undefined
        : invalid("the request id is not 1 or more visible ASCII characters");
  }
}

const NAMESPACE = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)?$/;

export const DEFAULT_NAMESPACE = "default";

/**
 * `NAME`, or `NAME.KUBERNETES-NAMESPACE`: lower-case letters, digits and dashes.
 * @returns the refusal, or `undefined`.
 */
export function validateNamespace(name: string, limits: Limits): Failure | undefined {
  if (name === DEFAULT_NAMESPACE) return undefined;
  if (name.length <= limits.namespaceBytesMax && NAMESPACE.test(name)) return undefined;
  return invalid(
    "the namespace is not NAME or NAME.KUBERNETES-NAMESPACE in lower-case letters, digits and dashes",
  );
}
