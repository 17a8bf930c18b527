/**
 * Operations of the native protocol, straight from the wire into the coordinator's words: keys and values are views
 * of the frame. Case labels are whole tags (field number * 8 + wire type), so a field with an unexpected wire type
 * is skipped like an unknown one.
 */
import type {
  Compare,
  CompareOperator,
  CompareTarget,
  CompactOperation,
  DeleteOperation,
  KeyRange,
  LeaseGrantOperation,
  LeaseId,
  LeaseListOperation,
  LeaseRevokeOperation,
  LeaseTimeToLiveOperation,
  PutOperation,
  RangeOperation,
  ReadOperation,
  Revision,
  TxnCommand,
  TxnOperation,
  WriteOperation,
} from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import type { ProtoReader } from "./reader.ts";
import { MalformedError } from "./reader.ts";

/** Renewal as an operation, for unary clients. */
export interface LeaseRenewOperation {
  readonly kind: "lease-renew";
  readonly leaseIds: readonly LeaseId[];
}

export type DecodedOperation = WriteOperation | ReadOperation | LeaseRenewOperation;

const EMPTY: Buffer = Buffer.alloc(0);
const NO_RANGE: KeyRange = { key: EMPTY };

function decodeRange(r: ProtoReader): KeyRange {
  const outer = r.enter();
  let key: Buffer = EMPTY;
  let rangeEnd: Buffer | undefined;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) key = r.bytes();
    else if (tag === 0x12) rangeEnd = r.bytes();
    else r.skip(tag);
  }
  r.leave(outer);
  return rangeEnd === undefined ? { key } : { key, rangeEnd };
}

/** A KeyRange field of a message that the reader stands at. */
export function readKeyRange(r: ProtoReader): KeyRange {
  return decodeRange(r);
}

function decodePut(r: ProtoReader): PutOperation {
  const outer = r.enter();
  let key: Buffer = EMPTY;
  let value: Buffer = EMPTY;
  let leaseId = NO_LEASE;
  let sequential = false;
  let returnPrevious = false;
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
        sequential = r.bool();
        break;
      case 0x28:
        returnPrevious = r.bool();
        break;
      default:
        r.skip(tag);
    }
  }
  r.leave(outer);
  return leaseId === NO_LEASE
    ? { kind: "put", key, value, sequential, returnPrevious }
    : { kind: "put", key, value, leaseId, sequential, returnPrevious };
}

function decodeDelete(r: ProtoReader): DeleteOperation {
  const outer = r.enter();
  let range = NO_RANGE;
  let returnPrevious = false;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) range = decodeRange(r);
    else if (tag === 0x10) returnPrevious = r.bool();
    else r.skip(tag);
  }
  r.leave(outer);
  return { kind: "delete", range, returnPrevious };
}

const CONSISTENCY_SERIALIZABLE = 2;

const TARGETS: readonly (CompareTarget | undefined)[] = [
  undefined,
  "version",
  "create-revision",
  "mod-revision",
  "value",
  "lease",
];
const OPERATORS: readonly (CompareOperator | undefined)[] = [undefined, "=", "!=", "<", ">"];

function decodeCompare(r: ProtoReader): Compare {
  const outer = r.enter();
  let key: Buffer = EMPTY;
  let target = 0;
  let operator = 0;
  let number = 0;
  let value: Buffer = EMPTY;
  let leaseId = NO_LEASE;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x0a:
        key = r.bytes();
        break;
      case 0x10:
        target = r.uint32();
        break;
      case 0x18:
        operator = r.uint32();
        break;
      case 0x20:
        number = r.uint53();
        break;
      case 0x2a:
        value = r.bytes();
        break;
      case 0x30:
        leaseId = r.int64();
        break;
      default:
        r.skip(tag);
    }
  }
  r.leave(outer);
  const targetName = TARGETS[target];
  const operatorName = OPERATORS[operator];
  if (targetName === undefined) throw new MalformedError("a compare has no known target");
  if (operatorName === undefined) throw new MalformedError("a compare has no known operator");
  const operand = targetName === "value" ? value : targetName === "lease" ? leaseId : number;
  return { key, target: targetName, operator: operatorName, operand };
}

function decodeLeaseGrant(r: ProtoReader): LeaseGrantOperation {
  const outer = r.enter();
  let leaseId = NO_LEASE;
  let ttlMs = 0;
  let owner = "";
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) leaseId = r.int64();
    else if (tag === 0x10) ttlMs = r.uint53();
    else if (tag === 0x1a) owner = r.string();
    else r.skip(tag);
  }
  r.leave(outer);
  return leaseId === NO_LEASE
    ? { kind: "lease-grant", ttlMs, owner }
    : { kind: "lease-grant", leaseId, ttlMs, owner };
}

function decodeLeaseRevoke(r: ProtoReader): LeaseRevokeOperation {
  const outer = r.enter();
  let leaseId = NO_LEASE;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) leaseId = r.int64();
    else r.skip(tag);
  }
  r.leave(outer);
  return { kind: "lease-revoke", leaseId };
}

function decodeTimeToLive(r: ProtoReader): LeaseTimeToLiveOperation {
  const outer = r.enter();
  let leaseId = NO_LEASE;
  let keys = false;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) leaseId = r.int64();
    else if (tag === 0x10) keys = r.bool();
    else r.skip(tag);
  }
  r.leave(outer);
  return { kind: "lease-time-to-live", leaseId, keys };
}

function decodeLeaseList(r: ProtoReader): LeaseListOperation {
  const outer = r.enter();
  let after = NO_LEASE;
  let limit = 0;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) after = r.int64();
    else if (tag === 0x10) limit = r.uint32();
    else r.skip(tag);
  }
  r.leave(outer);
  return after === NO_LEASE ? { kind: "lease-list", limit } : { kind: "lease-list", after, limit };
}

function decodeCompact(r: ProtoReader): CompactOperation {
  const outer = r.enter();
  let revision = 0;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) revision = r.uint53();
    else r.skip(tag);
  }
  r.leave(outer);
  return { kind: "compact", revision: revision as Revision };
}

/** Appends lease ids, packed or one by one, refusing more than `most`. */
export function readLeaseIds(r: ProtoReader, tag: number, into: LeaseId[], most: number): void {
  const packed = (tag & 7) === 2;
  const outer = packed ? r.enter() : 0;
  do {
    if (packed && r.position >= r.limit) break;
    if (into.length >= most) throw new MalformedError(`more than ${most} leases in one renewal`);
    into.push(r.int64());
  } while (packed);
  if (packed) r.leave(outer);
}

const UNARY_RENEWALS_MAX = 10_000;

function decodeLeaseRenew(r: ProtoReader): LeaseRenewOperation {
  const outer = r.enter();
  const leaseIds: LeaseId[] = [];
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a || tag === 0x08) readLeaseIds(r, tag, leaseIds, UNARY_RENEWALS_MAX);
    else r.skip(tag);
  }
  r.leave(outer);
  return { kind: "lease-renew", leaseIds };
}

/**
 * Decodes one `Operation`. What a range says about consistency is not part of the coordinator's operation: it is
 * left in {@link serializable} and {@link minRevision} until the next call.
 */
export class OperationDecoder {
  serializable = false;
  minRevision = 0;
  private readonly reader: ProtoReader;
  private readonly txnOperationsMax: number;

  constructor(reader: ProtoReader, txnOperationsMax: number) {
    this.reader = reader;
    this.txnOperationsMax = txnOperationsMax;
  }

  /** @throws MalformedError */
  decode(buffer: Buffer, start: number, end: number): DecodedOperation {
    const r = this.reader;
    r.reset(buffer, start, end);
    this.serializable = false;
    this.minRevision = 0;
    let operation: DecodedOperation | undefined;
    while (r.position < r.limit) {
      const tag = r.uint32();
      const next = this.decodeField(tag);
      if (next === undefined) r.skip(tag);
      else operation = next;
    }
    if (operation === undefined) throw new MalformedError("the request has no operation that is known here");
    return operation;
  }

  private decodeField(tag: number): DecodedOperation | undefined {
    const r = this.reader;
    switch (tag) {
      case 0x0a:
        return decodePut(r);
      case 0x12:
        return decodeDelete(r);
      case 0x1a:
        return this.decodeTxn(0);
      case 0x22:
        return decodeLeaseGrant(r);
      case 0x2a:
        return decodeLeaseRevoke(r);
      case 0x32:
        return decodeCompact(r);
      case 0x3a:
        r.leave(r.enter());
        return { kind: "register-client" };
      case 0x42:
        return this.decodeRangeOperation();
      case 0x4a:
        return decodeTimeToLive(r);
      case 0x52:
        return decodeLeaseList(r);
      case 0x5a:
        return decodeLeaseRenew(r);
      default:
        return undefined;
    }
  }

  private decodeRangeOperation(): RangeOperation {
    const r = this.reader;
    const outer = r.enter();
    let range = NO_RANGE;
    let revision = 0;
    let limit = 0;
    let keysOnly = false;
    let countOnly = false;
    let reverse = false;
    let consistency = 0;
    let minRevision = 0;
    while (r.position < r.limit) {
      const tag = r.uint32();
      switch (tag) {
        case 0x0a:
          range = decodeRange(r);
          break;
        case 0x10:
          revision = r.uint53();
          break;
        case 0x18:
          limit = r.uint32();
          break;
        case 0x20:
          keysOnly = r.bool();
          break;
        case 0x28:
          countOnly = r.bool();
          break;
        case 0x30:
          reverse = r.bool();
          break;
        case 0x38:
          consistency = r.uint32();
          break;
        case 0x40:
          minRevision = r.uint53();
          break;
        default:
          r.skip(tag);
      }
    }
    r.leave(outer);
    this.serializable = consistency === CONSISTENCY_SERIALIZABLE;
    this.minRevision = minRevision;
    return revision === 0
      ? { kind: "range", range, limit, keysOnly, countOnly, reverse }
      : { kind: "range", range, revision: revision as Revision, limit, keysOnly, countOnly, reverse };
  }

  /** `depth`: of transactions around this one. */
  private decodeTxn(depth: number): TxnCommand {
    const r = this.reader;
    const outer = r.enter();
    const compares: Compare[] = [];
    const success: TxnOperation[] = [];
    const failure: TxnOperation[] = [];
    // One more than allowed is enough for validation to say so; a frame full of two-byte steps is not decoded.
    const most = this.txnOperationsMax + 1;
    if (depth > this.txnOperationsMax) throw new MalformedError("transactions are too deep in each other");
    while (r.position < r.limit) {
      const tag = r.uint32();
      if (tag === 0x0a && compares.length < most) compares.push(decodeCompare(r));
      else if (tag === 0x12 && success.length < most) success.push(this.decodeStep(depth));
      else if (tag === 0x1a && failure.length < most) failure.push(this.decodeStep(depth));
      else r.skip(tag);
    }
    r.leave(outer);
    return { kind: "txn", compares, success, failure };
  }

  private decodeStep(depth: number): TxnOperation {
    const r = this.reader;
    const outer = r.enter();
    let step: TxnOperation | undefined;
    while (r.position < r.limit) {
      const tag = r.uint32();
      if (tag === 0x0a) step = decodePut(r);
      else if (tag === 0x12) step = decodeDelete(r);
      else if (tag === 0x1a) step = this.decodeRangeOperation();
      else if (tag === 0x22) step = this.decodeTxn(depth + 1);
      else r.skip(tag);
    }
    r.leave(outer);
    if (step === undefined) throw new MalformedError("a step of the transaction has no operation");
    return step;
  }
}
