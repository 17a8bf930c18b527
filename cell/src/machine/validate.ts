/** What can be refused without looking at any key. The limits are replicated settings: every member decides alike. */
import type {
  Compare,
  DeleteOperation,
  Failure,
  Limits,
  PutOperation,
  RequestIdentity,
  TxnCommand,
  TxnOperation,
} from "@lockstep/gateway/coordinator";
import { isReadOnly } from "@lockstep/gateway/coordinator";
import { compareBytes, equalBytes, SEQUENCE_DIGITS, sequentialKey } from "./bytes.ts";
import { refusal } from "./failures.ts";
import type { KeySpan } from "./live-scan.ts";
import { spanOf } from "./live-scan.ts";
import { encodeText } from "./text.ts";

export function putRefusal(put: PutOperation, limits: Limits): Failure | undefined {
  const keyBytes = put.key.length + (put.sequential === true ? SEQUENCE_DIGITS : 0);
  if (put.key.length === 0) return refusal("invalid-argument", "a key is not empty");
  if (keyBytes > limits.keyBytesMax) return keyTooLong(limits);
  if (put.value.length > limits.valueBytesMax) {
    return refusal("request-too-large", `a value is at most ${limits.valueBytesMax} bytes`);
  }
  return put.keep === undefined ? undefined : keepRefusal(put);
}

function keepRefusal({ keep, value, leaseId, sequential }: PutOperation): Failure | undefined {
  if (sequential === true) return refusal("invalid-argument", "a sequential put has nothing to keep");
  if (keep !== "lease" && value.length > 0) {
    return refusal("invalid-argument", "a put that keeps the value brings none");
  }
  return keep !== "value" && leaseId !== undefined
    ? refusal("invalid-argument", "a put that keeps the lease names none")
    : undefined;
}

export function deleteRefusal(operation: DeleteOperation, limits: Limits): Failure | undefined {
  const { key, rangeEnd } = operation.range;
  if (rangeEnd === undefined && key.length === 0) return refusal("invalid-argument", "a key is not empty");
  return key.length > limits.keyBytesMax ? keyTooLong(limits) : undefined;
}

function keyTooLong(limits: Limits): Failure {
  return refusal("invalid-argument", `a key is at most ${limits.keyBytesMax} bytes`);
}

/**
 * Both branches are checked, also the one that will not be taken, and all transactions inside. `revision`: what the
 * transaction would write at.
 */
export function txnRefusal(txn: TxnCommand, limits: Limits, revision: number): Failure | undefined {
  if (txnBytes(txn) > limits.txnBytesMax) {
    return refusal("request-too-large", `a transaction is at most ${limits.txnBytesMax} bytes`);
  }
  if (operationsOf(txn) > TXN_OPERATIONS_TOTAL_MAX) {
    return refusal(
      "too-many-operations",
      `a transaction has at most ${TXN_OPERATIONS_TOTAL_MAX} operations with all transactions inside`,
    );
  }
  const written = checkTxn(txn, { limits, revision, budget: limits.txnOperationsMax });
  return "code" in written ? written : undefined;
}

/** Of a transaction that is to change nothing. */
export function readTxnRefusal(txn: TxnCommand, limits: Limits, revision: number): Failure | undefined {
  return isReadOnly(txn)
    ? txnRefusal(txn, limits, revision)
    : refusal("invalid-argument", "a transaction that is answered like a read has no puts and deletes");
}

/** Keeps the comparison of all writes with each other short. Decides outcomes: never changed without a format version. */
export const TXN_OPERATIONS_TOTAL_MAX = 1024;

function operationsOf({ success, failure }: TxnCommand): number {
  let operations = success.length + failure.length;
  for (const branch of [success, failure]) {
    for (const operation of branch) if (operation.kind === "txn") operations += operationsOf(operation);
  }
  return operations;
}

interface Checking {
  readonly limits: Limits;
  readonly revision: number;
  /** Operations that a list may have; those of a transaction inside have what is left. */
  readonly budget: number;
}

/** What one branch, with both branches of each transaction inside it, may write. */
interface Written {
  readonly puts: readonly Uint8Array[];
  readonly deletes: readonly KeySpan[];
}

const NOTHING: Written = { puts: [], deletes: [] };

function checkTxn(txn: TxnCommand, checking: Checking): Written | Failure {
  const { compares, success, failure } = txn;
  const { limits, revision, budget } = checking;
  const operations = Math.max(compares.length, success.length, failure.length);
  if (operations > budget) {
    return refusal("too-many-operations", `a transaction has at most ${limits.txnOperationsMax} operations`);
  }
  for (const compare of compares) {
    const refused = compareRefusal(compare, limits);
    if (refused !== undefined) return refused;
  }
  const inside = { limits, revision, budget: budget - operations };
  const whenTrue = checkBranch(success, inside);
  if ("code" in whenTrue) return whenTrue;
  const whenFalse = checkBranch(failure, inside);
  if ("code" in whenFalse) return whenFalse;
  if (whenFalse === NOTHING) return whenTrue;
  return {
    puts: [...whenTrue.puts, ...whenFalse.puts],
    deletes: [...whenTrue.deletes, ...whenFalse.deletes],
  };
}

function compareRefusal(compare: Compare, limits: Limits): Failure | undefined {
  if (compare.key.length === 0 && compare.rangeEnd === undefined) {
    return refusal("invalid-argument", "a key is not empty");
  }
  return compare.key.length > limits.keyBytesMax ? keyTooLong(limits) : undefined;
}

function txnBytes(txn: TxnCommand): number {
  let bytes = 0;
  for (const { key, rangeEnd, operand } of txn.compares) {
    bytes += key.length + (rangeEnd?.length ?? 0) + (operand instanceof Uint8Array ? operand.length : 8);
  }
  for (const branch of [txn.success, txn.failure]) {
    for (const operation of branch) {
      if (operation.kind === "put") bytes += operation.key.length + operation.value.length;
      else if (operation.kind === "txn") bytes += txnBytes(operation);
      else bytes += operation.range.key.length + (operation.range.rangeEnd?.length ?? 0);
    }
  }
  return bytes;
}

/**
 * A key may be written once in a branch, whatever the order: no put twice, no put inside a deleted range (A5). The two
 * branches of a transaction inside exclude each other, so they may write the same keys.
 */
function checkBranch(operations: readonly TxnOperation[], checking: Checking): Written | Failure {
  if (operations.length === 0) return NOTHING;
  const { limits, revision } = checking;
  const puts: Uint8Array[] = [];
  const deletes: KeySpan[] = [];
  const inside: Written[] = [];
  for (const operation of operations) {
    if (operation.kind === "put") {
      const refused = putRefusal(operation, limits);
      if (refused !== undefined) return refused;
      puts.push(operation.sequential === true ? sequentialKey(operation.key, revision) : operation.key);
    } else if (operation.kind === "delete") {
      const refused = deleteRefusal(operation, limits);
      if (refused !== undefined) return refused;
      const span = spanOf(operation.range);
      if (span !== undefined) deletes.push(span);
    } else if (operation.kind === "txn") {
      const written = checkTxn(operation, checking);
      if ("code" in written) return written;
      inside.push(written);
    }
  }
  let twice = writtenTwice(puts, deletes);
  for (const written of inside) {
    twice ||= collides(written, puts, deletes);
    puts.push(...written.puts);
    deletes.push(...written.deletes);
  }
  return twice
    ? refusal("duplicate-key", "a transaction writes the same key twice in one branch")
    : { puts, deletes };
}

function writtenTwice(puts: readonly Uint8Array[], deletes: readonly KeySpan[]): boolean {
  if (puts.length < 2 && (puts.length === 0 || deletes.length === 0)) return false;
  const sorted = puts.toSorted(compareBytes);
  for (let i = 1; i < sorted.length; i++) {
    if (equalBytes(sorted[i - 1] as Uint8Array, sorted[i] as Uint8Array)) return true;
  }
  return inAny(puts, deletes);
}

/** Whether what stands before or beside a transaction writes what one of its branches writes. */
function collides(written: Written, puts: readonly Uint8Array[], deletes: readonly KeySpan[]): boolean {
  return (
    puts.some((key) => written.puts.some((other) => equalBytes(key, other))) ||
    inAny(puts, written.deletes) ||
    inAny(written.puts, deletes)
  );
}

function inAny(keys: readonly Uint8Array[], spans: readonly KeySpan[]): boolean {
  return spans.some(({ from, to }) =>
    keys.some((key) => compareBytes(key, from) >= 0 && (to === undefined || compareBytes(key, to) < 0)),
  );
}

export function identityRefusal(identity: RequestIdentity, limits: Limits): Failure | undefined {
  if (identity.kind === "client") {
    return identity.acknowledgedBelow > identity.sequence
      ? refusal("invalid-argument", "a request cannot acknowledge its own answer")
      : undefined;
  }
  if (identity.kind === "none") return undefined;
  const { length } = identity.token;
  const max = limits.requestTokenBytesMax;
  return length === 0 || length > max || encodeText(identity.token).length > max
    ? refusal("invalid-argument", `a request id has 1 to ${max} bytes`)
    : undefined;
}
