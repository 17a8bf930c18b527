import * as coordination from "@lockstep/proto/coordination";
import { LockstepError } from "../errors.ts";
import {
  KeyValue,
  type CompareFailure,
  type DeleteResult,
  type OperationResult,
  type PutResult,
  type RangeResult,
  type TxnResult,
  type TxnStepResult,
} from "../types.ts";
import { mapResult } from "./mapping.ts";
import { Reader } from "./reader.ts";

// Field tags of Result, PutResult, RangeResult and KeyValue (proto/lockstep/v1/coordination.proto).
const RESULT_PUT = 0x0a;
const RESULT_DELETE = 0x12;
const RESULT_TXN = 0x1a;
const RESULT_RANGE = 0x42;
const EMPTY = Buffer.alloc(0);

/**
 * The result between two positions of a received frame. What reads and writes keys is read in place; the others
 * through the generated code.
 */
export function readResult(frame: Buffer, start: number, end: number): OperationResult {
  const read = readerOf(frame[start]);
  if (read !== undefined) {
    const reader = new Reader(frame, start + 1, end);
    const contentEnd = reader.fieldEnd();
    // A oneof that is set twice is merged by the last one; no member sends that, but a wrong answer is worse.
    if (contentEnd === end) return read(reader, end);
  }
  const { result } = coordination.Result.decode(frame.subarray(start, end));
  if (result === undefined) {
    throw new LockstepError(
      "protocol-error",
      "unknown",
      "the member answered with a result of an unknown kind",
    );
  }
  return mapResult(result);
}

function readerOf(tag: number | undefined): ((reader: Reader, end: number) => OperationResult) | undefined {
  switch (tag) {
    case RESULT_PUT:
      return readPut;
    case RESULT_DELETE:
      return readDelete;
    case RESULT_TXN:
      return readTxn;
    case RESULT_RANGE:
      return readRange;
    default:
      return undefined;
  }
}

/** The answer as it came, for those alone who asked for it: to everybody else it is no result. */
export function rawResult(frame: Buffer, start: number, end: number): OperationResult {
  return { raw: frame.subarray(start, end) } as unknown as OperationResult;
}

/** What {@link rawResult} wrapped. */
export function bytesOfRaw(result: OperationResult): Uint8Array {
  return (result as unknown as { readonly raw: Uint8Array }).raw;
}

function readPut(reader: Reader, end: number): PutResult {
  let revision = 0;
  let key: Buffer = EMPTY;
  let createRevision = 0;
  let version = 0;
  let previous: KeyValue | undefined;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        revision = reader.varint();
        break;
      case 0x12:
        key = reader.bytes();
        break;
      case 0x18:
        createRevision = reader.varint();
        break;
      case 0x20:
        version = reader.varint();
        break;
      case 0x2a:
        previous = readKeyValue(reader);
        break;
      default:
        reader.skip(tag);
    }
  }
  return previous === undefined
    ? { kind: "put", revision, key, createRevision, version }
    : { kind: "put", revision, key, createRevision, version, previous };
}

function readRange(reader: Reader, end: number): RangeResult {
  let revision = 0;
  const kvs: KeyValue[] = [];
  let count = 0;
  let more = false;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        revision = reader.varint();
        break;
      case 0x12:
        kvs.push(readKeyValue(reader));
        break;
      case 0x18:
        count = reader.varint();
        break;
      case 0x20:
        more = reader.varint() !== 0;
        break;
      default:
        reader.skip(tag);
    }
  }
  return { kind: "range", revision, kvs, count, more };
}

function readDelete(reader: Reader, end: number): DeleteResult {
  let revision = 0;
  let deleted = 0;
  const previous: KeyValue[] = [];
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        revision = reader.varint();
        break;
      case 0x10:
        deleted = reader.varint();
        break;
      case 0x1a:
        previous.push(readKeyValue(reader));
        break;
      default:
        reader.skip(tag);
    }
  }
  return { kind: "delete", revision, deleted, previous };
}

function readTxn(reader: Reader, end: number): TxnResult {
  let succeeded = false;
  let revision = 0;
  const responses: TxnStepResult[] = [];
  const failures: CompareFailure[] = [];
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        succeeded = reader.varint() !== 0;
        break;
      case 0x10:
        revision = reader.varint();
        break;
      case 0x1a:
        responses.push(readStep(reader));
        break;
      case 0x22:
        failures.push(readFailure(reader));
        break;
      default:
        reader.skip(tag);
    }
  }
  return { kind: "txn", succeeded, revision, responses, failures };
}

function readStep(reader: Reader): TxnStepResult {
  const end = reader.fieldEnd();
  let result: TxnStepResult | undefined;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x0a:
        result = readPut(reader, reader.fieldEnd());
        break;
      case 0x12:
        result = readDelete(reader, reader.fieldEnd());
        break;
      case 0x1a:
        result = readRange(reader, reader.fieldEnd());
        break;
      default:
        // Also of a transaction inside, which this client does not send.
        reader.skip(tag);
    }
  }
  if (result === undefined) {
    const message = "a transaction's step has a result of an unknown kind";
    throw new LockstepError("protocol-error", "applied", message);
  }
  return result;
}

function readFailure(reader: Reader): CompareFailure {
  const end = reader.fieldEnd();
  let index = 0;
  let actual: KeyValue | undefined;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        index = reader.varint();
        break;
      case 0x12:
        actual = readKeyValue(reader);
        break;
      default:
        reader.skip(tag);
    }
  }
  return actual === undefined ? { index } : { index, actual };
}

/** Reads the length-delimited KeyValue at the reader's position. */
export function readKeyValue(reader: Reader): KeyValue {
  const end = reader.fieldEnd();
  let key: Buffer = EMPTY;
  let value: Buffer = EMPTY;
  let createRevision = 0;
  let modRevision = 0;
  let version = 0;
  let leaseId = "0";
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x0a:
        key = reader.bytes();
        break;
      case 0x12:
        value = reader.bytes();
        break;
      case 0x18:
        createRevision = reader.varint();
        break;
      case 0x20:
        modRevision = reader.varint();
        break;
      case 0x28:
        version = reader.varint();
        break;
      case 0x30:
        leaseId = reader.decimal();
        break;
      default:
        reader.skip(tag);
    }
  }
  return new KeyValue({ key, value, createRevision, modRevision, version, leaseId });
}
