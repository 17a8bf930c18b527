import type { Bytes } from "../bytes.ts";
import { bytesSize, leaseSize, varintSize, type Writer } from "./writer.ts";

// Field tags of ClientFrame, Request, Operation, PutOperation, RangeOperation (proto/lockstep/v1/coordination.proto).
const FRAME_REQUEST = 0x1a;
const REQUEST_ID = 0x08;
const REQUEST_CLIENT_ID = 0x10;
const REQUEST_SEQUENCE = 0x18;
const REQUEST_ACKNOWLEDGED_BELOW = 0x20;
const REQUEST_DEADLINE_MS = 0x28;
const REQUEST_OPERATION = 0x32;
const OPERATION_PUT = 0x0a;
const OPERATION_RANGE = 0x42;
const PUT_KEY = 0x0a;
const PUT_VALUE = 0x12;
const PUT_LEASE = 0x18;
const PUT_SEQUENTIAL = 0x20;
const PUT_RETURN_PREVIOUS = 0x28;
const RANGE_RANGE = 0x0a;
const RANGE_CONSISTENCY = 0x38;
const RANGE_KEY = 0x0a;

const SERIALIZABLE = 2;

/** What of a request is on the wire besides its operation. */
export interface RequestHeader {
  readonly id: number;
  /** 0: no identity. */
  readonly clientId: number;
  readonly sequence: number;
  readonly acknowledgedBelow: number;
  readonly deadlineMs: number;
}

export interface PutFields {
  readonly key: Bytes;
  readonly value: Bytes;
  readonly leaseId: string;
  readonly sequential: boolean;
  readonly returnPrevious: boolean;
}

function headerSize(header: RequestHeader): number {
  let size = 1 + varintSize(header.id);
  if (header.clientId !== 0) {
    size += 2 + varintSize(header.clientId) + varintSize(header.sequence);
    if (header.acknowledgedBelow !== 0) size += 1 + varintSize(header.acknowledgedBelow);
  }
  if (header.deadlineMs !== 0) size += 1 + varintSize(header.deadlineMs);
  return size;
}

/** Everything up to the operation's first byte. */
function writeHeader(writer: Writer, header: RequestHeader, operationSize: number): void {
  const size = headerSize(header) + 1 + varintSize(operationSize) + operationSize;
  writer.reserve(size + 8);
  writer.byte(FRAME_REQUEST);
  writer.varint(size);
  writer.byte(REQUEST_ID);
  writer.varint(header.id);
  if (header.clientId !== 0) {
    writer.byte(REQUEST_CLIENT_ID);
    writer.varint(header.clientId);
    writer.byte(REQUEST_SEQUENCE);
    writer.varint(header.sequence);
    if (header.acknowledgedBelow !== 0) {
      writer.byte(REQUEST_ACKNOWLEDGED_BELOW);
      writer.varint(header.acknowledgedBelow);
    }
  }
  if (header.deadlineMs !== 0) {
    writer.byte(REQUEST_DEADLINE_MS);
    writer.varint(header.deadlineMs);
  }
  writer.byte(REQUEST_OPERATION);
  writer.varint(operationSize);
}

/** Appends a put to the frame. */
export function writePut(writer: Writer, header: RequestHeader, put: PutFields): void {
  const keySize = bytesSize(put.key);
  const valueSize = bytesSize(put.value);
  const leased = put.leaseId !== "0";
  let size = 0;
  if (keySize !== 0) size += 1 + varintSize(keySize) + keySize;
  if (valueSize !== 0) size += 1 + varintSize(valueSize) + valueSize;
  if (leased) size += 1 + leaseSize(put.leaseId);
  if (put.sequential) size += 2;
  if (put.returnPrevious) size += 2;
  writeHeader(writer, header, 1 + varintSize(size) + size);
  writer.byte(OPERATION_PUT);
  writer.varint(size);
  if (keySize !== 0) {
    writer.byte(PUT_KEY);
    writer.varint(keySize);
    writer.bytes(put.key, keySize);
  }
  if (valueSize !== 0) {
    writer.byte(PUT_VALUE);
    writer.varint(valueSize);
    writer.bytes(put.value, valueSize);
  }
  if (leased) {
    writer.byte(PUT_LEASE);
    writer.lease(put.leaseId);
  }
  if (put.sequential) {
    writer.byte(PUT_SEQUENTIAL);
    writer.byte(1);
  }
  if (put.returnPrevious) {
    writer.byte(PUT_RETURN_PREVIOUS);
    writer.byte(1);
  }
}

/** Appends a read of one key's newest state to the frame. */
export function writeGet(writer: Writer, header: RequestHeader, key: Bytes, serializable: boolean): void {
  const keySize = bytesSize(key);
  const rangeSize = 1 + varintSize(keySize) + keySize;
  const size = 1 + varintSize(rangeSize) + rangeSize + (serializable ? 2 : 0);
  writeHeader(writer, header, 1 + varintSize(size) + size);
  writer.byte(OPERATION_RANGE);
  writer.varint(size);
  writer.byte(RANGE_RANGE);
  writer.varint(rangeSize);
  writer.byte(RANGE_KEY);
  writer.varint(keySize);
  writer.bytes(key, keySize);
  if (serializable) {
    writer.byte(RANGE_CONSISTENCY);
    writer.byte(SERIALIZABLE);
  }
}

/** Appends a request whose operation was serialized before. */
export function writeRaw(writer: Writer, header: RequestHeader, operation: Uint8Array): void {
  writeHeader(writer, header, operation.length);
  writer.bytes(operation, operation.length);
}

/** Bytes that a request may add to a frame at most; for the frame's bound, not exact. */
export function requestSizeBound(key: Bytes, value: Bytes | undefined): number {
  // A UTF-16 unit takes at most three bytes of UTF-8.
  const keyBound = typeof key === "string" ? key.length * 3 : key.length;
  const valueBound = value === undefined ? 0 : typeof value === "string" ? value.length * 3 : value.length;
  return keyBound + valueBound + 96;
}
