/**
 * Requests of etcd's KV service, straight from the wire into the coordinator's words: keys and values are views of the
 * message. Case labels are whole tags (field number * 8 + wire type).
 */
import type {
  Compare,
  CompareOperator,
  CompareTarget,
  DeleteOperation,
  KeyRange,
  LeaseId,
  PutOperation,
  RangeFilter,
  RangeOperation,
  RangeSort,
  Revision,
  SortTarget,
  TxnCommand,
  TxnOperation,
} from "../../coordinator/index.ts";
import { NO_LEASE } from "../../coordinator/index.ts";
import type { ProtoReader } from "../../native/reader.ts";
import { MalformedError } from "../../native/reader.ts";
import { GrpcError } from "../../grpc/error.ts";
import { ETCD } from "../errors.ts";

const EMPTY: Buffer = Buffer.alloc(0);
/** Transactions inside transactions: each has at least one operation of its parent's bound. */
const TXN_DEPTH_MAX = 128;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** A range with what the coordinator's operation does not say. */
export interface EtcdRange {
  readonly operation: RangeOperation;
  readonly serializable: boolean;
}

/**
 * etcd's bounds of a range in the coordinator's words: no end is the key alone, one zero byte everything from the key on.
 * @throws GrpcError when the key is empty
 */
export function keyRange(key: Buffer, rangeEnd: Buffer): KeyRange {
  if (key.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  if (rangeEnd.length === 0) return { key };
  return { key, rangeEnd: rangeEnd.length === 1 && rangeEnd[0] === 0 ? EMPTY : rangeEnd };
}

/** Reads the message that the reader stands in, up to its limit. @throws MalformedError, GrpcError */
export function readRange(r: ProtoReader): EtcdRange {
  let key: Buffer = EMPTY;
  let rangeEnd: Buffer = EMPTY;
  let limit = 0;
  let revision = 0;
  let order = 0;
  let target = 0;
  let serializable = false;
  let keysOnly = false;
  let countOnly = false;
  let filter: Mutable<RangeFilter> | undefined;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x0a:
        key = r.bytes();
        break;
      case 0x12:
        rangeEnd = r.bytes();
        break;
      case 0x18:
        limit = r.int53();
        break;
      case 0x20:
        revision = r.int53();
        break;
      case 0x28:
        order = r.uint32();
        break;
      case 0x30:
        target = r.uint32();
        break;
      case 0x38:
        serializable = r.bool();
        break;
      case 0x40:
        keysOnly = r.bool();
        break;
      case 0x48:
        countOnly = r.bool();
        break;
      case 0x50:
        filter = bounded(filter, "minModRevision", r.int53());
        break;
      case 0x58:
        filter = bounded(filter, "maxModRevision", r.int53());
        break;
      case 0x60:
        filter = bounded(filter, "minCreateRevision", r.int53());
        break;
      case 0x68:
        filter = bounded(filter, "maxCreateRevision", r.int53());
        break;
      default:
        r.skip(tag);
    }
  }
  const operation: Mutable<RangeOperation> = { kind: "range", range: keyRange(key, rangeEnd) };
  if (limit > 0) operation.limit = limit;
  if (revision > 0) operation.revision = revision as Revision;
  if (keysOnly) operation.keysOnly = true;
  if (countOnly) operation.countOnly = true;
  if (filter !== undefined) operation.filter = filter;
  const sort = sortOf(order, target);
  if (sort === "reverse") operation.reverse = true;
  else if (sort !== undefined) operation.sort = sort;
  return { operation, serializable };
}

/** 0 is no bound. */
function bounded(
  filter: Mutable<RangeFilter> | undefined,
  bound: keyof RangeFilter,
  revision: number,
): Mutable<RangeFilter> | undefined {
  if (revision === 0) return filter;
  return { ...filter, [bound]: Math.max(0, revision) };
}

const SORT_TARGETS: readonly (SortTarget | undefined)[] = [
  undefined,
  "version",
  "create-revision",
  "mod-revision",
  "value",
];
const DESCEND = 2;

/** An order without a direction ascends, as in etcd. */
function sortOf(order: number, target: number): RangeSort | "reverse" | undefined {
  if (order > DESCEND || target >= SORT_TARGETS.length) throw new GrpcError(ETCD.invalidSortOption);
  const sortTarget = SORT_TARGETS[target];
  const descending = order === DESCEND;
  if (sortTarget === undefined) return descending ? "reverse" : undefined;
  return descending ? { target: sortTarget, descending } : { target: sortTarget };
}

/** Reads the message that the reader stands in. @throws MalformedError, GrpcError */
export function readPut(r: ProtoReader): PutOperation {
  let key: Buffer = EMPTY;
  let value: Buffer = EMPTY;
  let leaseId: LeaseId = NO_LEASE;
  let returnPrevious = false;
  let keepValue = false;
  let keepLease = false;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x0a:
        key = r.bytes();
        break;
      case 0x12:
        value = r.bytes();
        break;
      case 0x18:
        leaseId = r.int64();
        break;
      case 0x20:
        returnPrevious = r.bool();
        break;
      case 0x28:
        keepValue = r.bool();
        break;
      case 0x30:
        keepLease = r.bool();
        break;
      default:
        r.skip(tag);
    }
  }
  if (key.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  if (keepValue && value.length > 0) throw new GrpcError(ETCD.valueProvided);
  if (keepLease && leaseId !== NO_LEASE) throw new GrpcError(ETCD.leaseProvided);
  const put: Mutable<PutOperation> = { kind: "put", key, value };
  if (leaseId !== NO_LEASE) put.leaseId = attachable(leaseId);
  if (returnPrevious) put.returnPrevious = true;
  if (keepValue || keepLease) put.keep = keepValue ? (keepLease ? "both" : "value") : "lease";
  return put;
}

/** Leases have positive ids, so there is none of a negative one. */
function attachable(leaseId: LeaseId): LeaseId {
  if (leaseId.startsWith("-")) throw new GrpcError(ETCD.leaseNotFound);
  return leaseId;
}

/** Reads the message that the reader stands in. @throws MalformedError, GrpcError */
export function readDelete(r: ProtoReader): DeleteOperation {
  let key: Buffer = EMPTY;
  let rangeEnd: Buffer = EMPTY;
  let returnPrevious = false;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) key = r.bytes();
    else if (tag === 0x12) rangeEnd = r.bytes();
    else if (tag === 0x18) returnPrevious = r.bool();
    else r.skip(tag);
  }
  const range = keyRange(key, rangeEnd);
  return returnPrevious ? { kind: "delete", range, returnPrevious } : { kind: "delete", range };
}

/** A transaction, and whether all its ranges may be answered by this member as it is. */
export interface EtcdTxn {
  readonly txn: TxnCommand;
  /** It has ranges, and each is serializable. */
  readonly serializable: boolean;
}

/** What is learned of ranges on the way. */
interface RangesSeen {
  any: boolean;
  linearizable: boolean;
}

/**
 * Reads the message that the reader stands in.
 * @param operationsMax of each list; what one leaves over bounds the transactions inside, which the state machine checks
 * @throws MalformedError, GrpcError
 */
export function readTxn(r: ProtoReader, operationsMax: number): EtcdTxn {
  const seen: RangesSeen = { any: false, linearizable: false };
  const txn = readTxnAt(r, { operationsMax, seen }, 0);
  return { txn, serializable: seen.any && !seen.linearizable };
}

interface TxnReading {
  readonly operationsMax: number;
  readonly seen: RangesSeen;
}

function readTxnAt(r: ProtoReader, reading: TxnReading, depth: number): TxnCommand {
  if (depth > TXN_DEPTH_MAX) throw new GrpcError(ETCD.tooManyOperations);
  const compares: Compare[] = [];
  const success: TxnOperation[] = [];
  const failure: TxnOperation[] = [];
  const { operationsMax } = reading;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) add(compares, inside(r, readCompare), operationsMax);
    else if (tag === 0x12) add(success, readOperation(r, reading, depth), operationsMax);
    else if (tag === 0x1a) add(failure, readOperation(r, reading, depth), operationsMax);
    else r.skip(tag);
  }
  return { kind: "txn", compares, success, failure };
}

function add<T>(list: T[], entry: T, most: number): void {
  if (list.length >= most) throw new GrpcError(ETCD.tooManyOperations);
  list.push(entry);
}

function inside<T>(r: ProtoReader, read: (r: ProtoReader) => T): T {
  const outer = r.enter();
  const result = read(r);
  r.leave(outer);
  return result;
}

function readOperation(r: ProtoReader, reading: TxnReading, depth: number): TxnOperation {
  const outer = r.enter();
  let operation: TxnOperation | undefined;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) operation = rangeInTxn(inside(r, readRange), reading.seen);
    else if (tag === 0x12) operation = inside(r, readPut);
    else if (tag === 0x1a) operation = inside(r, readDelete);
    else if (tag === 0x22) operation = inside(r, (reader) => readTxnAt(reader, reading, depth + 1));
    else r.skip(tag);
  }
  r.leave(outer);
  // What etcd says to an operation without content.
  if (operation === undefined) throw new GrpcError(ETCD.keyNotFound);
  return operation;
}

function rangeInTxn({ operation, serializable }: EtcdRange, seen: RangesSeen): RangeOperation {
  seen.any = true;
  if (!serializable) seen.linearizable = true;
  return operation;
}

const OPERATORS: readonly CompareOperator[] = ["=", ">", "<", "!="];
const TARGETS: readonly CompareTarget[] = ["version", "create-revision", "mod-revision", "value", "lease"];

function readCompare(r: ProtoReader): Compare {
  let operator = 0;
  let target = 0;
  let key: Buffer = EMPTY;
  let rangeEnd: Buffer = EMPTY;
  let number = 0;
  let numberOf = 0;
  let value: Buffer = EMPTY;
  let leaseId: LeaseId = NO_LEASE;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x08:
        operator = r.uint32();
        break;
      case 0x10:
        target = r.uint32();
        break;
      case 0x1a:
        key = r.bytes();
        break;
      case 0x20:
      case 0x28:
      case 0x30:
        number = r.int53();
        numberOf = (tag >>> 3) - 4;
        break;
      case 0x3a:
        value = r.bytes();
        break;
      case 0x40:
        leaseId = r.int64();
        break;
      case 0x202:
        rangeEnd = r.bytes();
        break;
      default:
        r.skip(tag);
    }
  }
  const operatorName = OPERATORS[operator];
  const targetName = TARGETS[target];
  if (operatorName === undefined || targetName === undefined) {
    throw new MalformedError("a compare has no known target or result");
  }
  // An operand of another target's kind counts as none.
  const operand =
    targetName === "value" ? value : targetName === "lease" ? leaseId : numberOf === target ? number : 0;
  return { ...keyRange(key, rangeEnd), target: targetName, operator: operatorName, operand };
}

/** Reads the message that the reader stands in: the revision to forget below. @throws MalformedError */
export function readCompaction(r: ProtoReader): number {
  let revision = 0;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) revision = r.int53();
    else r.skip(tag);
  }
  return revision;
}
