import * as coordination from "@lockstep/proto/coordination";
import { LockstepError } from "../errors.ts";
import { KeyValue, type OperationResult, type PutResult, type RangeResult } from "../types.ts";
import { mapResult } from "./mapping.ts";
import { Reader } from "./reader.ts";

// Field tags of Result, PutResult, RangeResult and KeyValue (proto/lockstep/v1/coordination.proto).
const RESULT_PUT = 0x0a;
const RESULT_RANGE = 0x42;
const EMPTY = Buffer.alloc(0);

/**
 * The result between two positions of a received frame. Puts and ranges are read in place; the others through the
 * generated code.
 */
export function readResult(frame: Buffer, start: number, end: number): OperationResult {
  const tag = frame[start];
  if (tag === RESULT_PUT || tag === RESULT_RANGE) {
    const reader = new Reader(frame, start + 1, end);
    const contentEnd = reader.fieldEnd();
    // A oneof that is set twice is merged by the last one; no member sends that, but a wrong answer is worse.
    if (contentEnd === end) return tag === RESULT_PUT ? readPut(reader, end) : readRange(reader, end);
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
