/** How an outcome is kept for retries: its keys come from the retried operation, large answers are left out. */
import type { TxnOperationResult, WriteOperation, WriteResult } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { ByteReader, ByteWriter } from "./codec/primitives.ts";
import { DecodeError } from "./codec/primitives.ts";
import { readOutcome, writeOutcome } from "./codec/results.ts";
import type { CommandOutcome } from "./types.ts";

/**
 * An outcome that takes more is kept without what it read: ranges are empty with `more` set, previous states and
 * failed compares' actual states are absent. What it *did* (revisions, counts, branch taken) is always kept.
 */
export const REMEMBERED_BYTES_MAX = 4096;
const LENGTH_BYTES = 2;
const LENGTH_MAX = 0xffff;

/** Two bytes of length, then the outcome. */
export function rememberOutcome(
  writer: ByteWriter,
  outcome: CommandOutcome,
  operation: WriteOperation,
): void {
  writer.ensure(LENGTH_BYTES);
  writer.position += LENGTH_BYTES;
  const start = writer.length;
  writeOutcome(writer, outcome, operation);
  if (writer.length - start > REMEMBERED_BYTES_MAX && outcome.ok && outcome.result !== undefined) {
    writer.rewind(start);
    writeOutcome(writer, { ...outcome, result: withoutReads(outcome.result) }, operation);
  }
  const length = writer.length - start;
  assert(length <= LENGTH_MAX, "a remembered outcome fits its length field", { length });
  const at = writer.position - length - LENGTH_BYTES;
  writer.buffer[at] = length >>> 8;
  writer.buffer[at + 1] = length;
}

export function recallOutcome(reader: ByteReader, operation: WriteOperation): CommandOutcome {
  skipLength(reader);
  const outcome = readOutcome(reader, operation);
  return outcome.ok && outcome.result !== undefined
    ? { ok: true, result: outcome.result, replayed: true }
    : outcome;
}

export function skipOutcome(reader: ByteReader): void {
  const length = skipLength(reader);
  if (length > reader.left) throw new DecodeError("cut short");
  reader.position += length;
}

function skipLength(reader: ByteReader): number {
  return (reader.byte() << 8) | reader.byte();
}

function withoutReads(result: WriteResult): WriteResult {
  if (result.kind === "put" || result.kind === "delete") return bare(result);
  if (result.kind !== "txn") return result;
  return {
    ...result,
    responses: result.responses.map(bare),
    failures: result.failures.map(({ index }) => ({ index })),
  };
}

function bare<T extends TxnOperationResult>(response: T): T;
function bare(response: TxnOperationResult): TxnOperationResult {
  if (response.kind === "range") return { ...response, kvs: [], more: true };
  if (response.kind === "delete") return { ...response, previous: [] };
  const { kind, revision, key, createRevision, version } = response;
  return { kind, revision, key, createRevision, version };
}
