/** The native protocol at both ends: what members read from clients, and clients from members. */
import { isDeepStrictEqual } from "node:util";
import { coordination } from "@lockstep/proto";
import { NATIVE_DOOR_LIMITS } from "@lockstep/gateway";
import { LIMITS } from "@lockstep/gateway/coordinator";
import { FrameDecoder } from "../../../gateway/src/native/decode-frame.ts";
import type { WireExecute, WireFrame, WireRequest } from "../../../gateway/src/native/decode-frame.ts";
import { OperationDecoder } from "../../../gateway/src/native/decode-operation.ts";
import type { DecodedOperation } from "../../../gateway/src/native/decode-operation.ts";
import { MalformedError, ProtoReader } from "../../../gateway/src/native/reader.ts";
import { validateRead, validateRenewal, validateWrite } from "../../../gateway/src/validation.ts";
import { LockstepError } from "../../../client/src/errors.ts";
import type { OperationResult } from "../../../client/src/types.ts";
import { readServerFrame } from "../../../client/src/wire/frames.ts";
import type { FrameHandler } from "../../../client/src/wire/frames.ts";
import type { ReceivedEvents } from "../../../client/src/wire/watch-events.ts";
import { mapInfo, mapResult } from "../../../client/src/wire/mapping.ts";
import { readResult } from "../../../client/src/wire/results.ts";
import {
  decodeReadOperation,
  decodeWriteOperation,
  encodeReadOperation,
  encodeWriteOperation,
} from "../../../cell/src/machine/index.ts";
import { BrokenLaw } from "../contract.ts";
import type { Input, Target } from "../contract.ts";
import { input } from "../generate/mutate.ts";
import { damageMessage } from "../generate/protobuf.ts";
import * as wire from "../generate/wire.ts";
import { assertLaw, bufferOf, show } from "./laws.ts";

const structured = { structured: damageMessage };
const isMalformed = (error: unknown): boolean => error instanceof MalformedError;

const frames = new FrameDecoder(new ProtoReader(), {
  requestsPerFrameMax: LIMITS.requestsPerFrameMax,
  renewalsPerFrameMax: LIMITS.renewalsPerFrameMax,
  watchEntriesPerFrameMax: NATIVE_DOOR_LIMITS.watchEntriesPerFrameMax,
});
const operations = new OperationDecoder(new ProtoReader(), LIMITS.txnOperationsMax);

/** What gets past a door's validation has a form in the log or between members, and comes back from it as it was. */
function assertEncodable(operation: DecodedOperation): void {
  try {
    assertSameBytes(operation);
  } catch (error) {
    if (error instanceof BrokenLaw) throw error;
    throw new BrokenLaw(`validated, yet no member can encode it: ${String(error)}\n${show(operation)}`);
  }
}

function assertSameBytes(operation: DecodedOperation): void {
  let first: Uint8Array;
  let second: Uint8Array;
  switch (operation.kind) {
    case "lease-renew":
      if (validateRenewal(operation.leaseIds, LIMITS) === undefined) JSON.stringify(operation.leaseIds);
      return;
    case "range":
    case "lease-time-to-live":
    case "lease-list":
    case "txn-read":
      if (validateRead(operation, LIMITS) !== undefined) return;
      first = encodeReadOperation(operation);
      second = encodeReadOperation(decodeReadOperation(first));
      break;
    default:
      if (validateWrite(operation, LIMITS) !== undefined) return;
      first = encodeWriteOperation(operation);
      second = encodeWriteOperation(decodeWriteOperation(first));
  }
  assertLaw(bufferOf(first).equals(second), "a validated operation comes back from the log as another one");
}

function assertAsGenerated(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) {
    throw new BrokenLaw(`the generated code reads it otherwise:\n${show(actual)}\n${show(expected)}`);
  }
}

const OPERATION: Target = {
  name: "native-operation",
  about: "an operation of a client (gateway/native/decode-operation); refused with MalformedError",
  weight: 2,
  generate: (dice) => input(dice, wire.operation, structured),
  decode: (bytes) => operations.decode(bytes, 0, bytes.length),
  refused: isMalformed,
  check: (value) => assertEncodable(value as DecodedOperation),
};

interface ReadFrame {
  readonly frame: WireFrame;
  readonly operations: readonly (DecodedOperation | "malformed")[];
}

/** A frame's requests fail one by one: one that is malformed does not harm the others. */
function readFrame(bytes: Buffer): ReadFrame {
  const frame = frames.decode(bytes);
  const read = frame.requests.map(({ start, end }) => {
    try {
      return operations.decode(bytes, start, end);
    } catch (error) {
      if (!isMalformed(error)) throw error;
      return "malformed";
    }
  });
  return { frame, operations: read };
}

function scalars({ id, clientId, sequence, acknowledgedBelow, deadlineMs }: WireRequest): object {
  return { id, clientId, sequence, acknowledgedBelow, deadlineMs };
}

function checkFrame(value: unknown, { bytes, valid }: Input): void {
  const { frame, operations: read } = value as ReadFrame;
  for (const operation of read) if (operation !== "malformed") assertEncodable(operation);
  if (!valid) return;
  assertLaw(!read.includes("malformed"), "an operation that is valid was refused");
  const twin = coordination.ClientFrame.decode(bytes);
  const { namespace, epoch, renewal, watchCancels, watchProgress } = frame;
  assertAsGenerated(
    {
      namespace,
      epoch,
      renew: renewal && { ...renewal },
      watchCancels,
      watchProgress,
      requests: frame.requests.map((request) => ({
        ...scalars(request),
        operation: bytes.toString("hex", request.start, request.end),
      })),
      watches: frame.watchCreates.map(({ range, ...rest }) => ({
        ...rest,
        key: range.key,
        rangeEnd: range.rangeEnd,
      })),
    },
    {
      namespace: twin.namespace,
      epoch: twin.epoch,
      renew: twin.renew,
      watchCancels: twin.watchCancels,
      watchProgress: twin.watchProgress,
      requests: twin.requests.map((request) => ({
        ...request,
        operation: request.operation.toString("hex"),
      })),
      watches: twin.watchCreates.map(({ range, ...rest }) => ({
        ...rest,
        key: range?.key,
        rangeEnd: range?.rangeEnd,
      })),
    },
  );
}

const CLIENT_FRAME: Target = {
  name: "client-frame",
  about:
    "a frame of a client's channel with its operations (gateway/native/decode-frame); refused with MalformedError",
  weight: 3,
  generate: (dice) => input(dice, wire.clientFrame, structured),
  decode: readFrame,
  refused: isMalformed,
  check: checkFrame,
};

const EXECUTE: Target = {
  name: "execute-request",
  about: "the unary request (gateway/native/decode-frame); refused with MalformedError",
  weight: 1,
  generate: (dice) => input(dice, wire.executeRequest, structured),
  decode: (bytes) => {
    const message = frames.decodeExecute(bytes);
    return { message, operation: operations.decode(bytes, message.request.start, message.request.end) };
  },
  refused: isMalformed,
  check: (value, { bytes, valid }) => {
    const { message, operation } = value as { message: WireExecute; operation: DecodedOperation };
    assertEncodable(operation);
    if (!valid) return;
    const twin = coordination.ExecuteRequest.decode(bytes);
    const { request, namespace, epoch } = message;
    assertAsGenerated(
      { ...scalars(request), id: 0, token: request.token, namespace, epoch },
      {
        id: 0,
        clientId: twin.clientId,
        sequence: twin.sequence,
        acknowledgedBelow: twin.acknowledgedBelow,
        deadlineMs: twin.deadlineMs,
        token: twin.requestToken,
        namespace: twin.namespace,
        epoch: twin.epoch,
      },
    );
  },
};

/**
 * What the client's reader documents, and what the generated code throws for parts that it reads; the channel fails
 * its connection for either.
 */
const GENERATED_ERRORS =
  /premature EOF|invalid varint|illegal tag|wire type|MAX_SAFE_INTEGER|MIN_SAFE_INTEGER|end group|recursion depth|index out of range/;

function isProtocolError(error: unknown): boolean {
  if (error instanceof LockstepError) return error.code === "protocol-error";
  return error instanceof Error && !(error instanceof TypeError) && GENERATED_ERRORS.test(error.message);
}

class Collector implements FrameHandler {
  readonly seen: unknown[] = [];
  readonly #frame: Buffer;

  constructor(frame: Buffer) {
    this.#frame = frame;
  }

  response(id: number, start: number, end: number, failure: coordination.Failure | undefined): void {
    this.seen.push([id, failure, start < 0 ? undefined : this.#result(start, end)]);
  }

  renewAck(ack: coordination.RenewAck): void {
    this.seen.push(ack);
  }

  watchCreated(created: coordination.WatchCreated): void {
    this.seen.push(created);
  }

  watchEvents(received: ReceivedEvents): void {
    this.seen.push(received);
  }

  watchProgress(progress: coordination.WatchProgress): void {
    this.seen.push(progress);
  }

  watchEnded(ended: coordination.WatchEnded): void {
    this.seen.push(ended);
  }

  leaseEnded(ended: coordination.LeaseEnded): void {
    this.seen.push(ended);
  }

  info(info: coordination.InfoResponse): void {
    this.seen.push(mapInfo(info));
  }

  /** Only this answer is unreadable. */
  #result(start: number, end: number): OperationResult | "unreadable" {
    try {
      return readResult(this.#frame, start, end);
    } catch (error) {
      if (!isProtocolError(error)) throw error;
      return "unreadable";
    }
  }
}

const SERVER_FRAME: Target = {
  name: "server-frame",
  about: "a member's frame as the client reads it (client/wire); refused with a protocol error",
  weight: 2,
  generate: (dice) => input(dice, wire.serverFrame, structured),
  decode: (bytes) => {
    const collector = new Collector(bytes);
    readServerFrame(bytes, collector);
    return collector.seen;
  },
  refused: isProtocolError,
};

const RESULT: Target = {
  name: "native-result",
  about: "an answer as the client reads it (client/wire/results); refused with a protocol error",
  weight: 2,
  generate: (dice) => input(dice, wire.result, structured),
  decode: (bytes) => readResult(bytes, 0, bytes.length),
  refused: isProtocolError,
  check: (value, { bytes, valid }) => {
    if (!valid) return;
    const twin = coordination.Result.decode(bytes).result;
    if (twin !== undefined) assertAsGenerated(value, mapResult(twin));
  },
};

export const NATIVE_TARGETS: readonly Target[] = [CLIENT_FRAME, OPERATION, EXECUTE, SERVER_FRAME, RESULT];
