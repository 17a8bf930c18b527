import type { ServiceDefinition, handleBidiStreamingCall, handleUnaryCall } from "@grpc/grpc-js";

const asIs = (bytes: Buffer): Buffer => bytes;

interface RawMethod<Streaming extends boolean> {
  readonly path: string;
  readonly requestStream: Streaming;
  readonly responseStream: Streaming;
  readonly requestSerialize: (bytes: Buffer) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => Buffer;
  readonly responseSerialize: (bytes: Buffer) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => Buffer;
}

function method<Streaming extends boolean>(path: string, streaming: Streaming): RawMethod<Streaming> {
  return {
    path,
    requestStream: streaming,
    responseStream: streaming,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  };
}

/**
 * `lockstep.v1.Coordination` with messages left as bytes: the door decodes them itself, so that a malformed one
 * gets the status it should (grpc-js would say INTERNAL), and the usual ones cost no intermediate objects.
 */
export interface RawCoordinationService extends ServiceDefinition {
  readonly channel: RawMethod<true>;
  readonly execute: RawMethod<false>;
  readonly info: RawMethod<false>;
}

export const RAW_COORDINATION_SERVICE: RawCoordinationService = {
  channel: method("/lockstep.v1.Coordination/Channel", true),
  execute: method("/lockstep.v1.Coordination/Execute", false),
  info: method("/lockstep.v1.Coordination/Info", false),
};

/** The implementation that goes with {@link RAW_COORDINATION_SERVICE}. */
export interface RawCoordinationServer {
  readonly [name: string]: handleBidiStreamingCall<Buffer, Buffer> | handleUnaryCall<Buffer, Buffer>;
  readonly channel: handleBidiStreamingCall<Buffer, Buffer>;
  readonly execute: handleUnaryCall<Buffer, Buffer>;
  readonly info: handleUnaryCall<Buffer, Buffer>;
}
