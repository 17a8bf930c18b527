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
  return undefined;
}

export function deleteRefusal(operation: DeleteOperation, limits: Limits): Failure | undefined {
  const { key, rangeEnd } = operation.range;
  if (rangeEnd === undefined && key.length === 0) return refusal("invalid-argument", "a key is not empty");
  return key.length > limits.keyBytesMax ? keyTooLong(limits) : undefined;
}

function keyTooLong(limits: Limits): Failure {
  return refusal("invalid-argument", `a key is at most ${limits.keyBytesMax} bytes`);
}

/** Both branches are checked, also the one that will not be taken. `revision`: what the transaction would write at. */
export function txnRefusal(txn: TxnCommand, limits: Limits, revision: number): Failure | undefined {
  const { compares, success, failure } = txn;
  const operations = Math.max(compares.length, success.length, failure.length);
  if (operations > limits.txnOperationsMax) {
    return refusal("too-many-operations", `a transaction has at most ${limits.txnOperationsMax} operations`);
  }
  if (txnBytes(txn) > limits.txnBytesMax) {
    return refusal("request-too-large", `a transaction is at most ${limits.txnBytesMax} bytes`);
  }
  for (const compare of compares) {
    const refused = compareRefusal(compare, limits);
    if (refused !== undefined) return refused;
  }
  return branchRefusal(success, limits, revision) ?? branchRefusal(failure, limits, revision);
}

function compareRefusal(compare: Compare, limits: Limits): Failure | undefined {
  if (compare.key.length === 0) return refusal("invalid-argument", "a key is not empty");
  return compare.key.length > limits.keyBytesMax ? keyTooLong(limits) : undefined;
}

function txnBytes(txn: TxnCommand): number {
  let bytes = 0;
  for (const { key, operand } of txn.compares) {
    bytes += key.length + (operand instanceof Uint8Array ? operand.length : 8);
  }
  for (const branch of [txn.success, txn.failure]) {
    for (const operation of branch) {
      if (operation.kind === "put") bytes += operation.key.length + operation.value.length;
      else bytes += operation.range.key.length + (operation.range.rangeEnd?.length ?? 0);
    }
  }
  return bytes;
}

/** A key may be written once in a branch, whatever the order: no put twice, no put inside a deleted range (A5). */
function branchRefusal(
  operations: readonly TxnOperation[],
  limits: Limits,
  revision: number,
): Failure | undefined {
  const puts: Uint8Array[] = [];
  const deletes: KeySpan[] = [];
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
    }
  }
  if (puts.length < 2 && (puts.length === 0 || deletes.length === 0)) return undefined;
  return writtenTwice(puts, deletes)
    ? refusal("duplicate-key", "a transaction writes the same key twice in one branch")
    : undefined;
}

function writtenTwice(puts: Uint8Array[], deletes: readonly KeySpan[]): boolean {
  puts.sort(compareBytes);
  for (let i = 1; i < puts.length; i++) {
    if (equalBytes(puts[i - 1] as Uint8Array, puts[i] as Uint8Array)) return true;
  }
  return deletes.some(({ from, to }) =>
    puts.some((key) => compareBytes(key, from) >= 0 && (to === undefined || compareBytes(key, to) < 0)),
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
