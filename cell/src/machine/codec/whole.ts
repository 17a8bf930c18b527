/** The codecs for one value in a message of its own. Decoders throw {@link DecodeError} and nothing else. */
import type { Failure, ReadOperation, ReadResult, WriteOperation } from "@lockstep/gateway/coordinator";
import type { CommandOutcome } from "../types.ts";
import {
  readReadOperation,
  readWriteOperation,
  writeReadOperation,
  writeWriteOperation,
} from "./operations.ts";
import { ByteReader, ByteWriter } from "./primitives.ts";
import {
  readFailure,
  readOutcome,
  readReadResult,
  writeFailure,
  writeOutcome,
  writeReadResult,
} from "./results.ts";

const FIRST_CHUNK_BYTES = 256;

function encode<T>(write: (writer: ByteWriter, value: T) => void, value: T): Uint8Array {
  const writer = new ByteWriter(FIRST_CHUNK_BYTES);
  write(writer, value);
  return writer.take();
}

function decode<T>(read: (reader: ByteReader) => T, bytes: Uint8Array): T {
  const reader = new ByteReader(bytes);
  const value = read(reader);
  reader.end();
  return value;
}

export function encodeOutcome(outcome: CommandOutcome): Uint8Array {
  return encode(writeOutcome, outcome);
}

export function decodeOutcome(bytes: Uint8Array): CommandOutcome {
  return decode(readOutcome, bytes);
}

export function encodeWriteOperation(operation: WriteOperation): Uint8Array {
  return encode(writeWriteOperation, operation);
}

/** Keys and values are views of `bytes`. */
export function decodeWriteOperation(bytes: Uint8Array): WriteOperation {
  return decode(readWriteOperation, bytes);
}

export function encodeReadOperation(operation: ReadOperation): Uint8Array {
  return encode(writeReadOperation, operation);
}

export function decodeReadOperation(bytes: Uint8Array): ReadOperation {
  return decode(readReadOperation, bytes);
}

export function encodeReadResult(result: ReadResult): Uint8Array {
  return encode(writeReadResult, result);
}

export function decodeReadResult(bytes: Uint8Array): ReadResult {
  return decode(readReadResult, bytes);
}

export function encodeFailure(failure: Failure): Uint8Array {
  return encode(writeFailure, failure);
}

export function decodeFailure(bytes: Uint8Array): Failure {
  return decode(readFailure, bytes);
}
