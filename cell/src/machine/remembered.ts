/** How an outcome is kept for retries: its keys come from the retried operation, large answers are left out. */
import type {
  TxnOperation,
  TxnOperationResult,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import { EMPTY, hashKey } from "./bytes.ts";
import type { ByteReader, ByteWriter } from "./codec/primitives.ts";
import { DecodeError, getUint32, putUint32 } from "./codec/primitives.ts";
import { readOutcome, writeOutcome } from "./codec/results.ts";
import { refusal } from "./failures.ts";
import type { CommandOutcome } from "./types.ts";

/**
 * An outcome that takes more is kept without what it read: ranges are empty with `more` set, previous states and
 * failed compares' actual states are absent. What it *did* (revisions, counts, branch taken) is always kept.
 */
export const REMEMBERED_BYTES_MAX = 4096;
const FINGERPRINT_BYTES = 4;
const LENGTH_BYTES = 2;
const HEADER_BYTES = FINGERPRINT_BYTES + LENGTH_BYTES;
const LENGTH_MAX = 0xffff;

/** The operation's fingerprint, two bytes of length, then the outcome. */
export function rememberOutcome(
  writer: ByteWriter,
  outcome: CommandOutcome,
  operation: WriteOperation,
): void {
  writer.ensure(HEADER_BYTES);
  writer.position += HEADER_BYTES;
  const start = writer.length;
  writeOutcome(writer, outcome, operation);
  if (writer.length - start > REMEMBERED_BYTES_MAX && outcome.ok && outcome.result !== undefined) {
    writer.rewind(start);
    writeOutcome(writer, { ...outcome, result: withoutReads(outcome.result) }, operation);
  }
  const length = writer.length - start;
  assert(length <= LENGTH_MAX, "a remembered outcome fits its length field", { length });
  const at = writer.position - length - HEADER_BYTES;
  putUint32(writer.buffer, at, fingerprint(operation));
  writer.buffer[at + FINGERPRINT_BYTES] = length >>> 8;
  writer.buffer[at + FINGERPRINT_BYTES + 1] = length;
}

/** The first outcome as a retry's; another operation under the same id is refused. */
export function recallOutcome(reader: ByteReader, operation: WriteOperation): CommandOutcome {
  const first = readHeader(reader).fingerprint;
  if (first !== fingerprint(operation)) return OTHER_OPERATION;
  return asReplay(readOutcome(reader, operation));
}

export function asReplay(outcome: CommandOutcome): CommandOutcome {
  return outcome.ok && outcome.result !== undefined
    ? { ok: true, result: outcome.result, replayed: true }
    : outcome;
}

export const OTHER_OPERATION: CommandOutcome = {
  ok: false,
  failure: refusal("invalid-argument", "this request id belongs to another operation already"),
};

export function skipOutcome(reader: ByteReader): void {
  const { length } = readHeader(reader);
  if (length > reader.left) throw new DecodeError("cut short");
  reader.position += length;
}

function readHeader(reader: ByteReader): { readonly fingerprint: number; readonly length: number } {
  if (reader.left < HEADER_BYTES) throw new DecodeError("cut short");
  const first = getUint32(reader.data, reader.position);
  reader.position += FINGERPRINT_BYTES;
  return { fingerprint: first, length: (reader.byte() << 8) | reader.byte() };
}

/** Tells a retry from another request with the same id. Kinds, keys and sizes: what the remembered outcome leans on. */
export function fingerprint(operation: WriteOperation): number {
  if (operation.kind !== "txn") return part(operation);
  let mixed = hashKey(operation.compares.length, EMPTY);
  for (const each of operation.success) mixed = Math.imul(mixed ^ part(each), 0x01000193);
  mixed = Math.imul(mixed ^ operation.failure.length, 0x85ebca6b);
  for (const each of operation.failure) mixed = Math.imul(mixed ^ part(each), 0x01000193);
  return mixed >>> 0;
}

function part(operation: WriteOperation | TxnOperation): number {
  switch (operation.kind) {
    case "put":
      return hashKey((operation.value.length << 2) | (operation.sequential === true ? 1 : 0), operation.key);
    case "delete":
      return hashKey(0x40000001, operation.range.key);
    case "range":
      return hashKey(0x40000002, operation.range.key);
    default:
      return hashKey(0x40000003 + operation.kind.length, EMPTY);
  }
}

function withoutReads(result: WriteResult): WriteResult {
  if (result.kind === "put" || result.kind === "delete") return bare(result);
  return result.kind === "txn" ? bare(result) : result;
}

function bare<T extends TxnOperationResult>(response: T): T;
function bare(response: TxnOperationResult): TxnOperationResult {
  if (response.kind === "range") return { ...response, kvs: [], more: true };
  if (response.kind === "delete") return { ...response, previous: [] };
  if (response.kind === "txn") {
    const failures = response.failures.map(({ index }) => ({ index }));
    return { ...response, responses: response.responses.map((inner) => bare(inner)), failures };
  }
  const { kind, revision, key, createRevision, version } = response;
  return { kind, revision, key, createRevision, version };
}
