/** Operations as bytes: in the log, and forwarded between members. The layout is in ../FORMAT.md. */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type {
  Compare,
  CompareOperator,
  CompareTarget,
  DeleteOperation,
  LeaseGrantOperation,
  LeaseId,
  LeaseListOperation,
  LeaseTimeToLiveOperation,
  PutOperation,
  RangeFilter,
  RangeOperation,
  RangeSort,
  ReadOperation,
  Revision,
  SortTarget,
  TxnCommand,
  TxnOperation,
  WriteOperation,
} from "@lockstep/gateway/coordinator";
import { assertNever } from "../../invariant.ts";
import type { ByteReader, ByteWriter } from "./primitives.ts";
import { DecodeError } from "./primitives.ts";

/** Operation kinds on disk and on the wire: never renumbered. */
const PUT = 1;
const DELETE = 2;
const RANGE = 3;
const TXN = 4;
const LEASE_GRANT = 5;
const LEASE_REVOKE = 6;
const COMPACT = 7;
const REGISTER_CLIENT = 8;
const LEASE_TIME_TO_LIVE = 9;
const LEASE_LIST = 10;
const TXN_READ = 11;

const PUT_LEASE = 1;
const PUT_SEQUENTIAL = 2;
const PUT_PREVIOUS = 4;
const PUT_KEEP_VALUE = 8;
const PUT_KEEP_LEASE = 16;
const DELETE_RANGE_END = 1;
const DELETE_PREVIOUS = 2;
const RANGE_END = 1;
const RANGE_REVISION = 2;
const RANGE_LIMIT = 4;
const RANGE_KEYS_ONLY = 8;
const RANGE_COUNT_ONLY = 16;
const RANGE_REVERSE = 32;
const RANGE_SORT = 64;
const RANGE_FILTER = 128;
const FILTER_MIN_MOD = 1;
const FILTER_MAX_MOD = 2;
const FILTER_MIN_CREATE = 4;
const FILTER_MAX_CREATE = 8;
/** In the byte of a sort's target. */
const DESCENDING = 0x80;
const GRANT_LEASE = 1;
const GRANT_OWNER = 2;
const LIST_AFTER = 1;
const LIST_LIMIT = 2;

const TARGETS: readonly CompareTarget[] = ["version", "create-revision", "mod-revision", "value", "lease"];
const OPERATORS: readonly CompareOperator[] = ["=", "!=", "<", ">"];
const SORT_TARGETS: readonly SortTarget[] = ["version", "create-revision", "mod-revision", "value"];
/** In a compare's target byte: it has the end of a range. */
const OVER_RANGE = 0x80;
/** In a compare's operator byte: the operand is below zero. */
const NEGATIVE = 0x10;
/** Smallest encodings, to refuse counts that cannot be true before anything is allocated for them. */
const COMPARE_BYTES_MIN = 4;
const OPERATION_BYTES_MIN = 2;
const TXN_DEPTH_MAX = 256;

export function writeWriteOperation(writer: ByteWriter, operation: WriteOperation): void {
  switch (operation.kind) {
    case "put":
      writePut(writer, operation);
      return;
    case "delete":
      writeDelete(writer, operation);
      return;
    case "txn":
      writeTxn(writer, operation);
      return;
    case "lease-grant":
      writeGrant(writer, operation);
      return;
    case "lease-revoke":
      writer.byte(LEASE_REVOKE);
      writer.leaseId(operation.leaseId);
      return;
    case "compact":
      writer.byte(COMPACT);
      writer.varint(operation.revision);
      return;
    case "register-client":
      writer.byte(REGISTER_CLIENT);
      return;
    default:
      assertNever(operation);
  }
}

export function readWriteOperation(reader: ByteReader): WriteOperation {
  const kind = reader.byte();
  switch (kind) {
    case PUT:
      return readPut(reader);
    case DELETE:
      return readDelete(reader);
    case TXN:
      return readTxn(reader, 0);
    case LEASE_GRANT:
      return readGrant(reader);
    case LEASE_REVOKE:
      return { kind: "lease-revoke", leaseId: readRealLease(reader) };
    case COMPACT:
      return { kind: "compact", revision: reader.varint() as Revision };
    case REGISTER_CLIENT:
      return { kind: "register-client" };
    default:
      throw new DecodeError(`unknown operation ${kind}`);
  }
}

export function writeReadOperation(writer: ByteWriter, operation: ReadOperation): void {
  switch (operation.kind) {
    case "range":
      writeRange(writer, operation);
      return;
    case "lease-time-to-live":
      writer.byte(LEASE_TIME_TO_LIVE);
      writer.byte(operation.keys === true ? 1 : 0);
      writer.leaseId(operation.leaseId);
      return;
    case "lease-list":
      writeLeaseList(writer, operation);
      return;
    case "txn-read":
      writer.byte(TXN_READ);
      writeTxn(writer, operation.txn);
      return;
    default:
      assertNever(operation);
  }
}

export function readReadOperation(reader: ByteReader): ReadOperation {
  const kind = reader.byte();
  switch (kind) {
    case RANGE:
      return readRange(reader);
    case LEASE_TIME_TO_LIVE:
      return readTimeToLive(reader);
    case LEASE_LIST:
      return readLeaseList(reader);
    case TXN_READ:
      if (reader.byte() !== TXN) throw new DecodeError("no transaction to read by");
      return { kind: "txn-read", txn: readTxn(reader, 0) };
    default:
      throw new DecodeError(`unknown operation ${kind}`);
  }
}

function writePut(writer: ByteWriter, put: PutOperation): void {
  const leaseId = put.leaseId;
  const leased = leaseId !== undefined && leaseId !== NO_LEASE;
  writer.byte(PUT);
  writer.byte(
    (leased ? PUT_LEASE : 0) |
      (put.sequential === true ? PUT_SEQUENTIAL : 0) |
      (put.returnPrevious === true ? PUT_PREVIOUS : 0) |
      (put.keep === "value" || put.keep === "both" ? PUT_KEEP_VALUE : 0) |
      (put.keep === "lease" || put.keep === "both" ? PUT_KEEP_LEASE : 0),
  );
  writer.bytes(put.key);
  writer.bytes(put.value);
  if (leased) writer.leaseId(leaseId);
}

function readPut(reader: ByteReader): PutOperation {
  const flags = reader.flags(PUT_LEASE | PUT_SEQUENTIAL | PUT_PREVIOUS | PUT_KEEP_VALUE | PUT_KEEP_LEASE);
  const key = reader.bytes();
  const value = reader.bytes();
  if (flags === 0) return { kind: "put", key, value };
  const put: { -readonly [K in keyof PutOperation]: PutOperation[K] } = { kind: "put", key, value };
  if ((flags & PUT_LEASE) !== 0) put.leaseId = readRealLease(reader);
  if ((flags & PUT_SEQUENTIAL) !== 0) put.sequential = true;
  if ((flags & PUT_PREVIOUS) !== 0) put.returnPrevious = true;
  const keep = flags & (PUT_KEEP_VALUE | PUT_KEEP_LEASE);
  if (keep !== 0) put.keep = keep === PUT_KEEP_VALUE ? "value" : keep === PUT_KEEP_LEASE ? "lease" : "both";
  return put;
}

function writeDelete(writer: ByteWriter, operation: DeleteOperation): void {
  const { key, rangeEnd } = operation.range;
  writer.byte(DELETE);
  writer.byte(
    (rangeEnd !== undefined ? DELETE_RANGE_END : 0) |
      (operation.returnPrevious === true ? DELETE_PREVIOUS : 0),
  );
  writer.bytes(key);
  if (rangeEnd !== undefined) writer.bytes(rangeEnd);
}

function readDelete(reader: ByteReader): DeleteOperation {
  const flags = reader.flags(DELETE_RANGE_END | DELETE_PREVIOUS);
  const key = reader.bytes();
  const range = (flags & DELETE_RANGE_END) !== 0 ? { key, rangeEnd: reader.bytes() } : { key };
  if ((flags & DELETE_PREVIOUS) === 0) return { kind: "delete", range };
  return { kind: "delete", range, returnPrevious: true };
}

function writeRange(writer: ByteWriter, range: RangeOperation): void {
  const { key, rangeEnd } = range.range;
  writer.byte(RANGE);
  writer.byte(
    (rangeEnd !== undefined ? RANGE_END : 0) |
      (range.revision !== undefined ? RANGE_REVISION : 0) |
      (range.limit !== undefined ? RANGE_LIMIT : 0) |
      (range.keysOnly === true ? RANGE_KEYS_ONLY : 0) |
      (range.countOnly === true ? RANGE_COUNT_ONLY : 0) |
      (range.reverse === true ? RANGE_REVERSE : 0) |
      (range.sort !== undefined ? RANGE_SORT : 0) |
      (range.filter !== undefined ? RANGE_FILTER : 0),
  );
  writer.bytes(key);
  if (rangeEnd !== undefined) writer.bytes(rangeEnd);
  if (range.revision !== undefined) writer.varint(range.revision);
  if (range.limit !== undefined) writer.varint(range.limit);
  if (range.sort !== undefined) writeSort(writer, range.sort);
  if (range.filter !== undefined) writeFilter(writer, range.filter);
}

function writeSort(writer: ByteWriter, sort: RangeSort): void {
  const target = SORT_TARGETS.indexOf(sort.target);
  if (target < 0) throw new TypeError("unknown sort target");
  writer.byte(target | (sort.descending === true ? DESCENDING : 0));
}

function readSort(reader: ByteReader): RangeSort {
  const byte = reader.byte();
  const target = SORT_TARGETS[byte & ~DESCENDING];
  if (target === undefined) throw new DecodeError("unknown sort target");
  return (byte & DESCENDING) === 0 ? { target } : { target, descending: true };
}

function writeFilter(writer: ByteWriter, filter: RangeFilter): void {
  const { minModRevision, maxModRevision, minCreateRevision, maxCreateRevision } = filter;
  writer.byte(
    (minModRevision !== undefined ? FILTER_MIN_MOD : 0) |
      (maxModRevision !== undefined ? FILTER_MAX_MOD : 0) |
      (minCreateRevision !== undefined ? FILTER_MIN_CREATE : 0) |
      (maxCreateRevision !== undefined ? FILTER_MAX_CREATE : 0),
  );
  for (const bound of [minModRevision, maxModRevision, minCreateRevision, maxCreateRevision]) {
    if (bound !== undefined) writer.varint(bound);
  }
}

function readFilter(reader: ByteReader): RangeFilter {
  const flags = reader.flags(FILTER_MIN_MOD | FILTER_MAX_MOD | FILTER_MIN_CREATE | FILTER_MAX_CREATE);
  const filter: { -readonly [K in keyof RangeFilter]: RangeFilter[K] } = {};
  if ((flags & FILTER_MIN_MOD) !== 0) filter.minModRevision = reader.varint();
  if ((flags & FILTER_MAX_MOD) !== 0) filter.maxModRevision = reader.varint();
  if ((flags & FILTER_MIN_CREATE) !== 0) filter.minCreateRevision = reader.varint();
  if ((flags & FILTER_MAX_CREATE) !== 0) filter.maxCreateRevision = reader.varint();
  return filter;
}

function readRange(reader: ByteReader): RangeOperation {
  // All eight bits have a meaning.
  const flags = reader.byte();
  const key = reader.bytes();
  const range = (flags & RANGE_END) !== 0 ? { key, rangeEnd: reader.bytes() } : { key };
  if (flags === 0) return { kind: "range", range };
  const operation: { -readonly [K in keyof RangeOperation]: RangeOperation[K] } = { kind: "range", range };
  if ((flags & RANGE_REVISION) !== 0) operation.revision = reader.varint() as Revision;
  if ((flags & RANGE_LIMIT) !== 0) operation.limit = reader.varint();
  if ((flags & RANGE_KEYS_ONLY) !== 0) operation.keysOnly = true;
  if ((flags & RANGE_COUNT_ONLY) !== 0) operation.countOnly = true;
  if ((flags & RANGE_REVERSE) !== 0) operation.reverse = true;
  if ((flags & RANGE_SORT) !== 0) operation.sort = readSort(reader);
  if ((flags & RANGE_FILTER) !== 0) operation.filter = readFilter(reader);
  return operation;
}

function writeTxn(writer: ByteWriter, txn: TxnCommand): void {
  writer.byte(TXN);
  writer.varint(txn.compares.length);
  for (const compare of txn.compares) writeCompare(writer, compare);
  writeBranch(writer, txn.success);
  writeBranch(writer, txn.failure);
}

function writeBranch(writer: ByteWriter, operations: readonly TxnOperation[]): void {
  writer.varint(operations.length);
  for (const operation of operations) {
    if (operation.kind === "range") writeRange(writer, operation);
    else writeWriteOperation(writer, operation);
  }
}

/** `depth`: of transactions that are read already. Each holds at least one operation of its parent's bound. */
function readTxn(reader: ByteReader, depth: number): TxnCommand {
  if (depth > TXN_DEPTH_MAX) throw new DecodeError("transactions too deep in each other");
  const count = reader.count(COMPARE_BYTES_MIN);
  const compares = new Array<Compare>(count);
  for (let i = 0; i < count; i++) compares[i] = readCompare(reader);
  const success = readBranch(reader, depth);
  return { kind: "txn", compares, success, failure: readBranch(reader, depth) };
}

function readBranch(reader: ByteReader, depth: number): TxnOperation[] {
  const count = reader.count(OPERATION_BYTES_MIN);
  const operations = new Array<TxnOperation>(count);
  for (let i = 0; i < count; i++) operations[i] = readOperation(reader, depth);
  return operations;
}

function readOperation(reader: ByteReader, depth: number): TxnOperation {
  const kind = reader.byte();
  switch (kind) {
    case PUT:
      return readPut(reader);
    case DELETE:
      return readDelete(reader);
    case RANGE:
      return readRange(reader);
    case TXN:
      return readTxn(reader, depth + 1);
    default:
      throw new DecodeError(`unknown operation ${kind} in a transaction`);
  }
}

function writeCompare(writer: ByteWriter, compare: Compare): void {
  const target = TARGETS.indexOf(compare.target);
  const operator = OPERATORS.indexOf(compare.operator);
  if (target < 0 || operator < 0) throw new TypeError("unknown compare target or operator");
  const { operand } = compare;
  const negative = typeof operand === "number" && operand < 0;
  writer.byte(target | (compare.rangeEnd !== undefined ? OVER_RANGE : 0));
  writer.byte(operator | (negative ? NEGATIVE : 0));
  writer.bytes(compare.key);
  if (compare.rangeEnd !== undefined) writer.bytes(compare.rangeEnd);
  if (compare.target === "value") {
    if (!(operand instanceof Uint8Array)) throw new TypeError("a value is compared with bytes");
    writer.bytes(operand);
  } else if (compare.target === "lease") {
    if (typeof operand !== "string") throw new TypeError("a lease is compared with a lease id");
    writer.leaseId(operand);
  } else {
    if (typeof operand !== "number") throw new TypeError("a revision or version is compared with a number");
    writer.varint(negative ? -operand : operand);
  }
}

function readCompare(reader: ByteReader): Compare {
  const targetByte = reader.byte();
  const target = TARGETS[targetByte & ~OVER_RANGE];
  const operatorByte = reader.byte();
  const operator = OPERATORS[operatorByte & ~NEGATIVE];
  if (target === undefined || operator === undefined) throw new DecodeError("unknown compare");
  const key = reader.bytes();
  const range = (targetByte & OVER_RANGE) === 0 ? { key } : { key, rangeEnd: reader.bytes() };
  if (target === "value" || target === "lease") {
    if ((operatorByte & NEGATIVE) !== 0) throw new DecodeError("unknown compare");
    return { ...range, target, operator, operand: target === "value" ? reader.bytes() : reader.leaseId() };
  }
  const magnitude = reader.varint();
  if ((operatorByte & NEGATIVE) === 0) return { ...range, target, operator, operand: magnitude };
  if (magnitude === 0) throw new DecodeError("minus zero");
  return { ...range, target, operator, operand: -magnitude };
}

function writeGrant(writer: ByteWriter, grant: LeaseGrantOperation): void {
  const { leaseId, owner } = grant;
  const chosen = leaseId !== undefined && leaseId !== NO_LEASE;
  writer.byte(LEASE_GRANT);
  writer.byte((chosen ? GRANT_LEASE : 0) | (owner !== undefined ? GRANT_OWNER : 0));
  // Anything below one millisecond is raised to the minimum anyway.
  writer.varint(grant.ttlMs > 0 ? Math.ceil(grant.ttlMs) : 0);
  if (chosen) writer.leaseId(leaseId);
  if (owner !== undefined) writer.text(owner);
}

function readGrant(reader: ByteReader): LeaseGrantOperation {
  const flags = reader.flags(GRANT_LEASE | GRANT_OWNER);
  const ttlMs = reader.varint();
  const grant: { -readonly [K in keyof LeaseGrantOperation]: LeaseGrantOperation[K] } = {
    kind: "lease-grant",
    ttlMs,
  };
  if ((flags & GRANT_LEASE) !== 0) grant.leaseId = readRealLease(reader);
  if ((flags & GRANT_OWNER) !== 0) grant.owner = reader.text();
  return grant;
}

function readTimeToLive(reader: ByteReader): LeaseTimeToLiveOperation {
  const flags = reader.flags(1);
  const leaseId = reader.leaseId();
  return flags === 0
    ? { kind: "lease-time-to-live", leaseId }
    : { kind: "lease-time-to-live", leaseId, keys: true };
}

function writeLeaseList(writer: ByteWriter, list: LeaseListOperation): void {
  writer.byte(LEASE_LIST);
  writer.byte((list.after !== undefined ? LIST_AFTER : 0) | (list.limit !== undefined ? LIST_LIMIT : 0));
  if (list.after !== undefined) writer.leaseId(list.after);
  if (list.limit !== undefined) writer.varint(list.limit);
}

function readLeaseList(reader: ByteReader): LeaseListOperation {
  const flags = reader.flags(LIST_AFTER | LIST_LIMIT);
  const list: { -readonly [K in keyof LeaseListOperation]: LeaseListOperation[K] } = { kind: "lease-list" };
  if ((flags & LIST_AFTER) !== 0) list.after = reader.leaseId();
  if ((flags & LIST_LIMIT) !== 0) list.limit = reader.varint();
  return list;
}

/** Where a lease is named, {@link NO_LEASE} is not one. */
function readRealLease(reader: ByteReader): LeaseId {
  const id = reader.leaseId();
  if (id === NO_LEASE) throw new DecodeError("no lease id");
  return id;
}
