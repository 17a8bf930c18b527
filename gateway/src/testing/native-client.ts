/** A bare client of the native protocol over the generated code, for the tests of the door. */
import assert from "node:assert/strict";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { Client } from "@grpc/grpc-js";
import { coordination as proto } from "@lockstep/proto";

export type Stream = ClientDuplexStream<proto.ClientFrame, proto.ServerFrame>;

export const EMPTY_FRAME: proto.ClientFrame = {
  namespace: "",
  epoch: 0,
  requests: [],
  renew: undefined,
  watchCreates: [],
  watchCancels: [],
  watchProgress: [],
};

export function operationBytes(operation: NonNullable<proto.Operation["operation"]>): Buffer {
  return Buffer.from(proto.Operation.encode({ operation }).finish());
}

export function putOf(key: string, value: string, leaseId = "0"): Buffer {
  return operationBytes({
    $case: "put",
    value: {
      key: Buffer.from(key),
      value: Buffer.from(value),
      leaseId,
      sequential: false,
      returnPrevious: false,
    },
  });
}

export function rangeOf(key: string, over: Partial<proto.RangeOperation> = {}): Buffer {
  const value: proto.RangeOperation = {
    range: { key: Buffer.from(key), rangeEnd: undefined },
    revision: 0,
    limit: 0,
    keysOnly: false,
    countOnly: false,
    reverse: false,
    consistency: 0,
    minRevision: 0,
    ...over,
  };
  return operationBytes({ $case: "range", value });
}

export function request(id: number, operation: Buffer, over: Partial<proto.Request> = {}): proto.Request {
  return { id, clientId: 0, sequence: 0, acknowledgedBelow: 0, deadlineMs: 0, operation, ...over };
}

export function watchOf(
  watchId: number,
  key: string,
  over: Partial<proto.WatchCreate> = {},
): proto.WatchCreate {
  const range = { key: Buffer.from(key), rangeEnd: undefined };
  return {
    watchId,
    range,
    startRevision: 0,
    returnPrevious: false,
    omitPuts: false,
    omitDeletes: false,
    ...over,
  };
}

/** Frames of a stream, awaited one at a time or by a condition over all of them. */
export class Reader {
  readonly frames: proto.ServerFrame[] = [];
  readonly ended: Promise<ServiceError | undefined>;
  private wake: () => void = () => undefined;

  constructor(stream: Stream) {
    stream.on("data", (frame: proto.ServerFrame) => {
      this.frames.push(frame);
      this.wake();
    });
    this.ended = new Promise((resolve) => {
      stream.on("error", (error: ServiceError) => resolve(error));
      stream.on("end", () => resolve(undefined));
    });
  }

  async until<T>(found: (frames: proto.ServerFrame[]) => T | undefined): Promise<T> {
    for (;;) {
      const result = found(this.frames);
      if (result !== undefined) return result;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  response(id: number): Promise<proto.Response> {
    return this.until((frames) =>
      frames.flatMap((frame) => frame.responses).find((entry) => entry.id === id),
    );
  }
}

export function resultOf(response: proto.Response): NonNullable<proto.Result["result"]> {
  assert.equal(response.failure, undefined, response.failure?.message);
  assert.ok(response.result);
  const { result } = proto.Result.decode(response.result);
  assert.ok(result);
  return result;
}

export class RawClient extends Client {
  channel(): Stream {
    const { path, requestSerialize, responseDeserialize } = proto.CoordinationService.channel;
    const stream = this.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
    // A test that ends while its stream is open sees it cut.
    stream.on("error", () => undefined);
    return stream;
  }

  /** A channel whose frames are bytes as given. */
  rawChannel(): ClientDuplexStream<Buffer, Buffer> {
    const { path } = proto.CoordinationService.channel;
    return this.makeBidiStreamRequest(
      path,
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
    );
  }

  unary(path: string, message: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const done = (error: ServiceError | null, answer?: Buffer): void => {
        if (error !== null) reject(error);
        else resolve(answer ?? Buffer.alloc(0));
      };
      this.makeUnaryRequest(
        path,
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => bytes,
        message,
        done,
      );
    });
  }

  async execute(over: Partial<proto.ExecuteRequest>): Promise<proto.ExecuteResponse> {
    const message: proto.ExecuteRequest = {
      namespace: "",
      epoch: 0,
      clientId: 0,
      sequence: 0,
      acknowledgedBelow: 0,
      requestToken: "",
      deadlineMs: 0,
      operation: undefined,
      ...over,
    };
    const encoded = Buffer.from(proto.ExecuteRequest.encode(message).finish());
    return proto.ExecuteResponse.decode(await this.unary(proto.CoordinationService.execute.path, encoded));
  }
}
