/** The etcd door's hand-written decoders, against what clients of etcd, and others, may send. */
import { isDeepStrictEqual } from "node:util";
import { etcd } from "@lockstep/proto/etcd";
import { LIMITS } from "@lockstep/gateway/coordinator";
import type { ReadOperation, WriteOperation } from "@lockstep/gateway/coordinator";
import { GrpcError } from "../../../gateway/src/grpc/error.ts";
import { readDelete, readPut, readRange, readTxn } from "../../../gateway/src/etcd/wire/decode-kv.ts";
import { readWatchRequest } from "../../../gateway/src/etcd/wire/watch-codec.ts";
import { MalformedError, ProtoReader } from "../../../gateway/src/native/reader.ts";
import { validateRead, validateWrite } from "../../../gateway/src/validation.ts";
import {
  decodeReadOperation,
  decodeWriteOperation,
  encodeReadOperation,
  encodeWriteOperation,
} from "../../../cell/src/machine/index.ts";
import { BrokenLaw } from "../contract.ts";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { input } from "../generate/mutate.ts";
import { damageMessage } from "../generate/protobuf.ts";
import * as values from "../generate/values.ts";
import { assertLaw, bufferOf, show } from "./laws.ts";

const structured = { structured: damageMessage };
const reader = new ProtoReader();
/** What has an answer of its own: bytes that are no message, and requests that etcd refuses too. */
const isRefusal = (error: unknown): boolean => error instanceof MalformedError || error instanceof GrpcError;

/** 0 counts as absent in every number of this API. */
const signed = (dice: Dice): number => (dice.once(4) ? -values.number(dice) : values.number(dice));
const end = (dice: Dice): Buffer => (dice.once(3) ? Buffer.from([0]) : values.bytes(dice));
/** An empty key is refused. */
const key = (dice: Dice): Buffer => Buffer.concat([Buffer.from([dice.below(256)]), values.bytes(dice)]);

function range(dice: Dice): etcd.RangeRequest {
  return {
    key: key(dice),
    rangeEnd: end(dice),
    limit: signed(dice),
    revision: signed(dice),
    sortOrder: dice.pick([0, 1, 2] as const),
    sortTarget: dice.pick([0, 1, 2, 3, 4] as const),
    serializable: values.flag(dice),
    keysOnly: values.flag(dice),
    countOnly: values.flag(dice),
    minModRevision: signed(dice),
    maxModRevision: signed(dice),
    minCreateRevision: signed(dice),
    maxCreateRevision: signed(dice),
  };
}

function put(dice: Dice): etcd.PutRequest {
  const keepsValue = dice.once(4);
  const keepsLease = dice.once(4);
  return {
    key: key(dice),
    value: keepsValue ? Buffer.alloc(0) : values.bytes(dice),
    lease: keepsLease ? "0" : values.leaseOrNone(dice),
    prevKv: values.flag(dice),
    ignoreValue: keepsValue,
    ignoreLease: keepsLease,
  };
}

function remove(dice: Dice): etcd.DeleteRangeRequest {
  return { key: key(dice), rangeEnd: end(dice), prevKv: values.flag(dice) };
}

function compare(dice: Dice): etcd.Compare {
  const value = values.number(dice);
  return {
    result: dice.pick([0, 1, 2, 3] as const),
    target: dice.pick([0, 1, 2, 3, 4] as const),
    key: key(dice),
    rangeEnd: end(dice),
    targetUnion: dice.pick([
      { $case: "version", value },
      { $case: "createRevision", value },
      { $case: "modRevision", value },
      { $case: "value", value: values.bytes(dice) },
      { $case: "lease", value: values.leaseOrNone(dice) },
    ] as const),
  };
}

function operation(dice: Dice, depth: number): etcd.RequestOp {
  switch (dice.below(depth > 0 ? 4 : 3)) {
    case 0:
      return { request: { $case: "requestPut", value: put(dice) } };
    case 1:
      return { request: { $case: "requestDeleteRange", value: remove(dice) } };
    case 3:
      return { request: { $case: "requestTxn", value: txn(dice, depth - 1) } };
    default:
      return { request: { $case: "requestRange", value: range(dice) } };
  }
}

function txn(dice: Dice, depth = 2): etcd.TxnRequest {
  return {
    compare: dice.list(4, () => compare(dice)),
    success: dice.list(4, () => operation(dice, depth)),
    failure: dice.list(4, () => operation(dice, depth)),
  };
}

function watch(dice: Dice): etcd.WatchRequest {
  switch (dice.below(3)) {
    case 0:
      return { requestUnion: { $case: "cancelRequest", value: { watchId: signed(dice) } } };
    case 1:
      return { requestUnion: { $case: "progressRequest", value: {} } };
    default:
      return {
        requestUnion: {
          $case: "createRequest",
          value: {
            key: values.bytes(dice),
            rangeEnd: end(dice),
            startRevision: signed(dice),
            progressNotify: values.flag(dice),
            filters: dice.list(3, () => dice.pick([0, 1] as const)),
            prevKv: values.flag(dice),
            watchId: signed(dice),
            fragment: values.flag(dice),
          },
        },
      };
  }
}

const encoded = (bytes: Uint8Array): Buffer => bufferOf(bytes);

/** What gets past validation has a form in the log or between members, and comes back from it as it was. */
function assertEncodable(operationOrRead: WriteOperation | ReadOperation): void {
  let first: Uint8Array;
  let second: Uint8Array;
  try {
    if (operationOrRead.kind === "range" || operationOrRead.kind === "txn-read") {
      if (validateRead(operationOrRead, LIMITS) !== undefined) return;
      first = encodeReadOperation(operationOrRead);
      second = encodeReadOperation(decodeReadOperation(first));
    } else {
      if (validateWrite(operationOrRead as WriteOperation, LIMITS) !== undefined) return;
      first = encodeWriteOperation(operationOrRead as WriteOperation);
      second = encodeWriteOperation(decodeWriteOperation(first));
    }
  } catch (error) {
    throw new BrokenLaw(`validated, yet no member can encode it: ${String(error)}\n${show(operationOrRead)}`);
  }
  assertLaw(bufferOf(first).equals(second), "a validated operation comes back from the log as another one");
}

function at<T>(bytes: Buffer, read: (r: ProtoReader) => T): T {
  reader.reset(bytes, 0, bytes.length);
  return read(reader);
}

const RANGE: Target = {
  name: "etcd-range",
  about: "an etcd RangeRequest (gateway/etcd/wire/decode-kv); refused with MalformedError or GrpcError",
  weight: 1,
  generate: (dice) => input(dice, (d) => encoded(etcd.RangeRequest.encode(range(d)).finish()), structured),
  decode: (bytes) => at(bytes, readRange).operation,
  refused: isRefusal,
  check: (value, { bytes, valid }) => {
    assertEncodable(value as ReadOperation);
    if (!valid) return;
    const twin = etcd.RangeRequest.decode(bytes);
    const read = value as Extract<ReadOperation, { kind: "range" }>;
    const { keysOnly = false, countOnly = false, limit = 0, revision = 0 } = read;
    const told = { key: read.range.key, keysOnly, countOnly, limit, revision: Number(revision) };
    const expected = {
      key: twin.key,
      keysOnly: twin.keysOnly,
      countOnly: twin.countOnly,
      limit: Math.max(0, twin.limit),
      revision: Math.max(0, twin.revision),
    };
    if (!isDeepStrictEqual(told, expected)) {
      throw new BrokenLaw(`the generated code reads it otherwise:\n${show(told)}\n${show(expected)}`);
    }
  },
};

const WRITE: Target = {
  name: "etcd-put",
  about: "an etcd PutRequest or DeleteRangeRequest; refused with MalformedError or GrpcError",
  weight: 1,
  generate: (dice) => {
    const asPut = dice.once(2);
    const one = input(
      dice,
      (d) =>
        encoded(
          asPut
            ? etcd.PutRequest.encode(put(d)).finish()
            : etcd.DeleteRangeRequest.encode(remove(d)).finish(),
        ),
      structured,
    );
    // Which of the two it is stands in front.
    return { ...one, bytes: Buffer.concat([Buffer.from([asPut ? 1 : 0]), one.bytes]) };
  },
  decode: (bytes) => at<WriteOperation>(bytes.subarray(1), bytes[0] === 1 ? readPut : readDelete),
  refused: isRefusal,
  check: (value) => assertEncodable(value as WriteOperation),
};

const TXN: Target = {
  name: "etcd-txn",
  about: "an etcd TxnRequest, transactions inside it too; refused with MalformedError or GrpcError",
  weight: 2,
  generate: (dice) => input(dice, (d) => encoded(etcd.TxnRequest.encode(txn(d)).finish()), structured),
  decode: (bytes) => at(bytes, (r) => readTxn(r, LIMITS.txnOperationsMax)).txn,
  refused: isRefusal,
  check: (value, { bytes, valid }) => {
    const read = value as Extract<WriteOperation, { kind: "txn" }>;
    assertEncodable(read);
    if (!valid) return;
    const twin = etcd.TxnRequest.decode(bytes);
    const shape = [read.compares.length, read.success.length, read.failure.length];
    assertLaw(
      isDeepStrictEqual(shape, [twin.compare.length, twin.success.length, twin.failure.length]),
      "the generated code reads other lists",
    );
  },
};

const WATCH: Target = {
  name: "etcd-watch",
  about: "an etcd WatchRequest (gateway/etcd/wire/watch-codec); refused with MalformedError",
  weight: 1,
  generate: (dice) => input(dice, (d) => encoded(etcd.WatchRequest.encode(watch(d)).finish()), structured),
  decode: (bytes) => readWatchRequest(reader, bytes),
  refused: isRefusal,
};

export const ETCD_TARGETS: readonly Target[] = [RANGE, WRITE, TXN, WATCH];
