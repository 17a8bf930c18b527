/** Answers of etcd's KV service, from the coordinator's words. Everything is written back to front. */
import type {
  DeleteResult,
  KeyValue,
  PutResult,
  RangeResult,
  Revision,
  TxnOperationResult,
  TxnResult,
  WatchEvent,
} from "../../coordinator/index.ts";
import type { ReverseWriter } from "../../native/writer.ts";

/** Who answers, as every answer says. */
export interface HeaderFacts {
  readonly clusterId: number;
  readonly memberId: number;
  readonly term: number;
}

/** A ResponseHeader as field 1. */
export function writeHeader(w: ReverseWriter, facts: HeaderFacts, revision: number): void {
  const before = w.length;
  w.uint(0x20, facts.term);
  w.uint(0x18, revision);
  w.uint(0x10, facts.memberId);
  w.uint(0x08, facts.clusterId);
  w.close(0x0a, before);
}

/** The header of an answer inside a transaction's: only its revision. */
function writeInnerHeader(w: ReverseWriter, revision: Revision): void {
  const before = w.length;
  w.uint(0x18, revision);
  w.close(0x0a, before);
}

/** An mvccpb.KeyValue as the field `tag`. */
export function writeKeyValue(w: ReverseWriter, tag: number, kv: KeyValue): void {
  const before = w.length;
  w.int64(0x30, kv.leaseId);
  w.bytes(0x2a, kv.value);
  w.uint(0x20, kv.version);
  w.uint(0x18, kv.modRevision);
  w.uint(0x10, kv.createRevision);
  w.bytes(0x0a, kv.key);
  w.close(tag, before);
}

/** The fields of a PutResponse but its header. */
export function writePutFields(w: ReverseWriter, { previous }: PutResult): void {
  if (previous !== undefined) writeKeyValue(w, 0x12, previous);
}

/** The fields of a DeleteRangeResponse but its header. */
export function writeDeleteFields(w: ReverseWriter, { deleted, previous }: DeleteResult): void {
  for (let i = previous.length - 1; i >= 0; i -= 1) writeKeyValue(w, 0x1a, previous[i] as KeyValue);
  w.uint(0x10, deleted);
}

/** The fields of a RangeResponse but its header. */
export function writeRangeFields(
  w: ReverseWriter,
  { kvs, more, count }: Pick<RangeResult, "kvs" | "more" | "count">,
): void {
  w.uint(0x20, count);
  w.bool(0x18, more);
  writeKeyValues(w, kvs);
}

/** The `kvs` of a RangeResponse. */
export function writeKeyValues(w: ReverseWriter, kvs: readonly KeyValue[]): void {
  for (let i = kvs.length - 1; i >= 0; i -= 1) writeKeyValue(w, 0x12, kvs[i] as KeyValue);
}

/** The fields of a TxnResponse but its header. */
export function writeTxnFields(w: ReverseWriter, { succeeded, responses }: TxnResult): void {
  for (let i = responses.length - 1; i >= 0; i -= 1) writeOperation(w, responses[i] as TxnOperationResult);
  w.bool(0x10, succeeded);
}

function writeOperation(w: ReverseWriter, result: TxnOperationResult): void {
  const before = w.length;
  const tag = writeOperationFields(w, result);
  writeInnerHeader(w, result.revision);
  w.close(tag, before);
  w.close(0x1a, before);
}

/** @returns the tag of the kind of operation. */
function writeOperationFields(w: ReverseWriter, result: TxnOperationResult): number {
  switch (result.kind) {
    case "range":
      writeRangeFields(w, result);
      return 0x0a;
    case "put":
      writePutFields(w, result);
      return 0x12;
    case "delete":
      writeDeleteFields(w, result);
      return 0x1a;
    case "txn":
      writeTxnFields(w, result);
      return 0x22;
  }
}

/** An mvccpb.Event as the field `events` of a WatchResponse. */
export function writeEvent(w: ReverseWriter, event: WatchEvent): void {
  const before = w.length;
  if (event.previous !== undefined) writeKeyValue(w, 0x1a, event.previous);
  writeKeyValue(w, 0x12, event.kv);
  if (event.kind === "delete") w.uint(0x08, 1);
  w.close(0x5a, before);
}

/** About how many bytes a key with its value takes on the wire. */
export function keyValueBytes(kv: KeyValue): number {
  return 48 + kv.key.length + kv.value.length;
}
