import { GrpcCode } from "./call.ts";
import type { GrpcMethod, GrpcService, GrpcStatus, ServerCall, StreamCall, UnaryCall } from "./call.ts";
import { GrpcError } from "./error.ts";

/** A method as generated code describes it. */
interface MethodDefinition {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
  readonly requestDeserialize: (bytes: Buffer) => unknown;
  readonly responseSerialize: (value: never) => Buffer;
}

/** A service as generated code describes it. */
export type ServiceDefinition = Readonly<Record<string, MethodDefinition>>;

/** What a method that streams answers with. */
export interface AnswerStream<A> extends ServerCall {
  /**
   * @returns when there is room for more, or the call is over (`cancelled`)
   */
  write(answer: A): Promise<void>;
}

/**
 * Serves one method: answers by returning (or, where the server streams, by writing), refuses by throwing a
 * {@link GrpcError}. Anything else that is thrown becomes INTERNAL with its message.
 */
export type Handler<M> = M extends {
  readonly requestStream: false;
  readonly responseStream: infer Streams;
  readonly requestDeserialize: (bytes: Buffer) => infer Q;
  readonly responseSerialize: (value: infer A) => Buffer;
}
  ? Streams extends false
    ? (request: Q, call: ServerCall) => Promise<A> | A
    : (request: Q, stream: AnswerStream<A>) => Promise<void>
  : never;

/** A handler for every method of a service; methods whose requests stream cannot be served this way. */
export type Implementation<D extends ServiceDefinition> = { readonly [K in keyof D]: Handler<D[K]> };

type AnyUnary = (request: unknown, call: ServerCall) => unknown;
type AnyStreaming = (request: unknown, stream: AnswerStream<unknown>) => Promise<void>;

/** Serves a service that generated code describes; for doors that are called too seldom to decode messages themselves. */
export function serviceOf<D extends ServiceDefinition>(
  definition: D,
  implementation: Implementation<D>,
): GrpcService {
  const methods = new Map<string, GrpcMethod>();
  const handlers: Readonly<Record<string, unknown>> = implementation;
  let service = "";
  for (const [key, method] of Object.entries(definition)) {
    const [, name, methodName] = method.path.split("/");
    if (name === undefined || methodName === undefined) throw new TypeError(`${method.path} names no method`);
    service = name;
    const handler = handlers[key];
    methods.set(
      methodName,
      method.responseStream
        ? { kind: "stream", serve: (call) => serveStreaming(method, handler as AnyStreaming, call) }
        : {
            kind: "unary",
            serve: (call, request) => serveUnary(method, handler as AnyUnary, { call, request }),
          },
    );
  }
  return { name: service, methods };
}

function serveUnary(
  method: MethodDefinition,
  handler: AnyUnary,
  { call, request }: { readonly call: UnaryCall; readonly request: Buffer },
): void {
  const answer = async (): Promise<Buffer> =>
    method.responseSerialize((await handler(decoded(method, request), call)) as never);
  answer().then(
    (bytes) => call.respond(bytes),
    (error: unknown) => call.fail(statusOf(error)),
  );
}

function serveStreaming(method: MethodDefinition, handler: AnyStreaming, call: StreamCall): void {
  let request: Buffer | undefined;
  call.onMessage((message) => {
    if (request === undefined) request = message;
    else call.fail({ code: GrpcCode.UNIMPLEMENTED, details: "the method takes one message, and more came" });
  });
  call.onHalfClose(() => {
    if (request === undefined) {
      call.fail({ code: GrpcCode.UNIMPLEMENTED, details: "the method takes one message, and none came" });
      return;
    }
    const message = request;
    const stream = answersTo(method, call);
    const answer = async (): Promise<void> => handler(decoded(method, message), stream);
    answer().then(
      () => call.end(),
      (error: unknown) => call.fail(statusOf(error)),
    );
  });
}

function answersTo(method: MethodDefinition, call: StreamCall): AnswerStream<unknown> {
  let wake: () => void = () => undefined;
  call.onDrain(() => wake());
  call.onClose(() => wake());
  return {
    path: call.path,
    authority: call.authority,
    header: (name) => call.header(name),
    identity: call.identity,
    deadlineMs: () => call.deadlineMs(),
    get cancelled() {
      return call.cancelled;
    },
    onClose: (listener) => call.onClose(listener),
    write: (answer) => {
      const hasRoom = call.write(method.responseSerialize(answer as never));
      if (hasRoom || call.cancelled) return Promise.resolve();
      return new Promise((resolve) => (wake = resolve));
    },
  };
}

function decoded({ requestDeserialize }: MethodDefinition, request: Buffer): unknown {
  try {
    return requestDeserialize(request);
  } catch (error) {
    const details = `malformed request: ${error instanceof Error ? error.message : String(error)}`;
    throw new GrpcError({ code: GrpcCode.INVALID_ARGUMENT, details });
  }
}

function statusOf(error: unknown): GrpcStatus {
  if (error instanceof GrpcError) return error.status;
  return { code: GrpcCode.INTERNAL, details: error instanceof Error ? error.message : String(error) };
}
