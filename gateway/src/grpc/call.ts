import type { CertificateIdentity } from "../tls/identity.ts";

/** gRPC status codes by name (https://grpc.io/docs/guides/status-codes). */
export const GrpcCode = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

export type GrpcCodeName = keyof typeof GrpcCode;
export type GrpcCode = (typeof GrpcCode)[GrpcCodeName];

/** How a call ends, as its trailers tell it. */
export interface GrpcStatus {
  readonly code: GrpcCode;
  /** For people; may be any text. */
  readonly details: string;
  /** More trailers: lower-case names, printable ASCII values, e.g. `{"lockstep-code": "overloaded"}`. Default: none. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** One gRPC message: one buffer, or several that stand for it one behind the other. */
export type Message = Uint8Array | readonly Uint8Array[];

/** What every call has. A call is over once its {@link ServerCall.onClose} listeners were called. */
export interface ServerCall {
  /** `/package.Service/Method`. */
  readonly path: string;
  /** What the client called the server (`:authority`); `""` when it did not say. */
  readonly authority: string;
  /**
   * Request metadata.
   * @param name in lower case; a name that ends in `-bin` has base64 for a value
   * @returns several values of one name as one, with commas; undefined: absent
   */
  header(name: string): string | undefined;
  /** Who calls, as its certificate proves; undefined without TLS, or where the listener asks for no identity. */
  readonly identity: CertificateIdentity | undefined;
  /** Milliseconds that are left of the time the caller gave (`grpc-timeout`), not below 0; undefined: it gave none. */
  deadlineMs(): number | undefined;
  /** The client went away, or its deadline passed, before the call was answered: nothing can be sent any more. */
  readonly cancelled: boolean;
  /**
   * `listener` is called once when the call is over, however it ended (answered and flushed, reset, deadline, connection
   * lost), never from within a method of the call. On a call that is over already: in a microtask.
   */
  onClose(listener: () => void): void;
}

/** A call with one request and one answer. The first of `respond` and `fail` counts; what comes later is ignored. */
export interface UnaryCall extends ServerCall {
  /**
   * The answer, with status OK. Its memory must not change until the call is over. (Big answers are not copied
   * together.)
   */
  respond(message: Message): void;
  fail(status: GrpcStatus): void;
}

/** A call whose answer is any number of messages. */
export interface StreamCall extends ServerCall {
  /**
   * Sends one message. Its memory must not change until `sent` was called (or, without `sent`, until the call is over).
   * @param sent called once, in a later turn or microtask: the kernel has taken the message, or the call ended before
   * @returns false when more waits for the transport than it should: hold back until `onDrain`. Also on a call that has
   * ended, where the message is dropped.
   */
  write(message: Message, sent?: () => void): boolean;
  /**
   * Every message of the client, in order. Only from within the method's `serve`, or messages are lost. A message is a
   * view of the connection's read buffer, which stays in memory as long as the view does.
   */
  onMessage(listener: (message: Buffer) => void): void;
  /** The client has said everything; behind its last message. */
  onHalfClose(listener: () => void): void;
  /** There is room again after `write` returned false. */
  onDrain(listener: () => void): void;
  /**
   * No more messages for now, and with the flow-control window full no more is sent by the client. In force at once:
   * even what came in one piece with the last message is kept back.
   */
  pause(): void;
  resume(): void;
  /** Status OK, behind what was written. */
  end(): void;
  /**
   * Ends with another status. What was written before goes first, since a message cannot be cut in half; a client that
   * does not take it within ten seconds is reset without a status.
   */
  fail(status: GrpcStatus): void;
  /** Bytes written that the kernel has not taken yet. */
  readonly bufferedBytes: number;
}

/** One request, one answer. */
export interface UnaryMethod {
  readonly kind: "unary";
  /**
   * @param request the message, undecoded: a view of the connection's read buffer, which stays in memory as long as the
   * view does
   */
  serve(call: UnaryCall, request: Buffer): void;
}

/** Messages in both directions. A method that only the server streams gets its one request as a message. */
export interface StreamMethod {
  readonly kind: "stream";
  /** Called with the call's headers; it must subscribe before it returns. */
  serve(call: StreamCall): void;
}

export type GrpcMethod = UnaryMethod | StreamMethod;

/**
 * A service of a listener, on raw bytes: it decodes messages itself, so that a malformed one gets the status it should.
 * What a `serve` throws is not caught: it is a defect, and stops the process.
 */
export interface GrpcService {
  /** With its package: `lockstep.v1.Coordination`. */
  readonly name: string;
  /** By name: `Channel`. */
  readonly methods: ReadonlyMap<string, GrpcMethod>;
}
