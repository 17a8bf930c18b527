import type { etcd } from "@lockstep/proto/etcd";
import type { Coordinator, Limits } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcStatus, Message, StreamCall, UnaryCall, UnaryMethod } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import type { DoorLog } from "../log.ts";
import type { ProtoReader } from "../native/reader.ts";
import { MalformedError } from "../native/reader.ts";
import type { ReverseWriter } from "../native/writer.ts";
import { ETCD } from "./errors.ts";
import type { AnswerFacts } from "./facts.ts";
import type { EtcdDoorLimits } from "./limits.ts";
import type { CallNamespaces } from "./namespaces.ts";
import { writeHeader } from "./wire/encode-kv.ts";

/** What all services of the door share. */
export interface EtcdContext {
  readonly coordinator: Coordinator;
  readonly limits: Limits;
  readonly doorLimits: EtcdDoorLimits;
  readonly facts: AnswerFacts;
  readonly namespaces: CallNamespaces;
  readonly log: DoorLog;
  /** One each for all messages: they are read and written in one go. */
  readonly reader: ProtoReader;
  readonly writer: ReverseWriter;
  readonly inFlight: InFlight;
}

/** Calls that have no answer yet. */
export class InFlight {
  count = 0;
  readonly most: number;
  /** The door is closed: nothing new is taken. */
  closed = false;

  constructor(most: number) {
    this.most = most;
  }
}

/** What a unary method does with a call: it answers once, now or later; what it throws at once is the answer too. */
export type Serve = (call: UnaryCall, request: Buffer, namespace: string) => void;

/**
 * A unary method, bounded and with errors as statuses. Calls that `serve` has under way count until they are over.
 */
export function unary(context: EtcdContext, serve: Serve): UnaryMethod {
  const { inFlight, namespaces } = context;
  return {
    kind: "unary",
    serve: (call, request) => {
      if (inFlight.closed) {
        call.fail(ETCD.stopped);
        return;
      }
      if (inFlight.count >= inFlight.most) {
        call.fail(ETCD.tooManyRequests);
        return;
      }
      inFlight.count += 1;
      const counted = new CountedCall(call, inFlight);
      try {
        serve(counted, request, namespaces.of(call));
      } catch (error) {
        counted.fail(statusOfThrown(error));
      }
    },
  };
}

/**
 * Takes in a stream, unless the door is closed, has `open` streams of its kind too many already, or the stream names no
 * namespace.
 * @returns the namespace it acts in; undefined: it has been refused
 */
export function admitStream(context: EtcdContext, call: StreamCall, open: number): string | undefined {
  const { doorLimits, inFlight, namespaces } = context;
  try {
    if (inFlight.closed) throw new GrpcError(ETCD.stopped);
    if (open >= doorLimits.streamsMax) throw new GrpcError(ETCD.tooManyRequests);
    return namespaces.of(call);
  } catch (error) {
    refuseStream(call, statusOfThrown(error));
    return undefined;
  }
}

/** Ends a stream that nobody subscribed to. */
export function refuseStream(call: StreamCall, status: GrpcStatus): void {
  call.onMessage(() => undefined);
  call.fail(status);
}

/** A generated decoder of a message. */
interface Decoder<T> {
  decode(bytes: Uint8Array): T;
}

/** Decodes a message with generated code, which says in many ways that it cannot. @throws MalformedError */
export function decoded<T>(decoder: Decoder<T>, request: Buffer): T {
  try {
    return decoder.decode(request);
  } catch (error) {
    throw new MalformedError(error instanceof Error ? error.message : String(error));
  }
}

/** @throws what is no refusal of a request */
export function statusOfThrown(error: unknown): GrpcStatus {
  if (error instanceof GrpcError) return error.status;
  if (error instanceof MalformedError) {
    // What a gRPC server says of a message that its codec cannot read.
    return { code: GrpcCode.INTERNAL, details: `grpc: error unmarshalling request: ${error.message}` };
  }
  throw error;
}

/** A call that counts as unanswered until it is answered. */
class CountedCall implements UnaryCall {
  readonly #call: UnaryCall;
  #inFlight: InFlight | undefined;

  constructor(call: UnaryCall, inFlight: InFlight) {
    this.#call = call;
    this.#inFlight = inFlight;
  }

  get path(): string {
    return this.#call.path;
  }

  get authority(): string {
    return this.#call.authority;
  }

  get identity(): UnaryCall["identity"] {
    return this.#call.identity;
  }

  get cancelled(): boolean {
    return this.#call.cancelled;
  }

  header(name: string): string | undefined {
    return this.#call.header(name);
  }

  deadlineMs(): number | undefined {
    return this.#call.deadlineMs();
  }

  onClose(listener: () => void): void {
    this.#call.onClose(listener);
  }

  respond(message: Message): void {
    this.#answered();
    this.#call.respond(message);
  }

  fail(status: GrpcStatus): void {
    this.#answered();
    this.#call.fail(status);
  }

  #answered(): void {
    if (this.#inFlight !== undefined) this.#inFlight.count -= 1;
    this.#inFlight = undefined;
  }
}

/** The header of an answer, for services whose messages are generated. */
export function headerOf({ facts }: EtcdContext, revision: number): etcd.ResponseHeader {
  return { clusterId: facts.clusterId, memberId: facts.memberId, raftTerm: facts.term, revision };
}

/** Writes the header in front of the fields that stand in the writer already. @returns the whole answer */
export function finish({ writer, facts }: EtcdContext, revision: number): Buffer {
  writeHeader(writer, facts, revision);
  return writer.finish();
}
