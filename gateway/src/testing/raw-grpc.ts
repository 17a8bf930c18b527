/** A client of bare HTTP/2, for what no gRPC client would send; and a service to send it to. */
import { once } from "node:events";
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  OutgoingHttpHeaders,
} from "node:http2";
import { connect } from "node:http2";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcMethod, GrpcService, ServerCall, StreamCall, UnaryCall } from "../grpc/call.ts";
import { framed } from "../grpc/messages.ts";

/** How a call ended, as bare HTTP/2 tells it. */
export interface RawAnswer {
  readonly headers: IncomingHttpHeaders;
  /** `grpc-status` and the like, from the trailers or, without an answer, from the headers. */
  readonly trailers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly resetCode: number;
}

/** A gRPC message behind its prefix. */
export function frameOf(message: string | Buffer): Buffer {
  const bytes = Buffer.from(message);
  return framed(bytes, bytes.length);
}

/** Collects what comes on a stream until it closes; resets and lost connections are part of the answer. */
export async function answerOf(stream: ClientHttp2Stream): Promise<RawAnswer> {
  const came: { headers: IncomingHttpHeaders; trailers?: IncomingHttpHeaders } = { headers: {} };
  const pieces: Buffer[] = [];
  stream.on("response", (headers) => (came.headers = headers));
  stream.on("trailers", (trailers: IncomingHttpHeaders) => (came.trailers = trailers));
  stream.on("data", (piece: Buffer) => pieces.push(piece));
  stream.on("error", () => undefined);
  await new Promise<void>((resolve) => stream.once("close", () => resolve()));
  const { headers, trailers = headers } = came;
  return { headers, trailers, body: Buffer.concat(pieces), resetCode: stream.rstCode };
}

/** One connection. */
export class RawConnection implements AsyncDisposable {
  readonly session: ClientHttp2Session;

  private constructor(session: ClientHttp2Session) {
    this.session = session;
    session.on("error", () => undefined);
  }

  /** @param settings of the client; a small `initialWindowSize` makes one that takes little at a time */
  static async open(
    port: number,
    settings: { readonly initialWindowSize?: number } = {},
  ): Promise<RawConnection> {
    const session = connect(`http://127.0.0.1:${port}`, { settings, maxSessionMemory: 1_000 });
    const connection = new RawConnection(session);
    // The server has said what it bears.
    await once(session, "remoteSettings");
    return connection;
  }

  /** A stream whose body is still to be written. */
  start(path: string, over: OutgoingHttpHeaders = {}): ClientHttp2Stream {
    const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };
    const stream = this.session.request({ ...headers, ...over }, { endStream: false });
    stream.on("error", () => undefined);
    return stream;
  }

  /** A whole call; the pieces of the body go out as DATA frames of their own. */
  async call(path: string, body: readonly Buffer[], over: OutgoingHttpHeaders = {}): Promise<RawAnswer> {
    const stream = this.start(path, over);
    const answer = answerOf(stream);
    for (const piece of body) {
      if (stream.destroyed) break;
      await new Promise<void>((resolve) => stream.write(piece, () => resolve()));
    }
    stream.end();
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.session.destroyed) return;
    const closed = once(this.session, "close");
    this.session.destroy();
    await closed;
  }
}

/** `test.Echo`, with everything that calls do recorded. */
export class EchoService implements GrpcService {
  readonly name = "test.Echo";
  readonly methods: ReadonlyMap<string, GrpcMethod>;
  /** Calls that `Hold` left open, oldest first. */
  readonly held: UnaryCall[] = [];
  readonly chats: StreamCall[] = [];
  /** What happened, in order: `unary hello`, `message a`, `half-close`, `over`, `drain`. */
  readonly heard: string[] = [];
  private readonly wakes = new Set<() => void>();

  constructor() {
    this.methods = new Map<string, GrpcMethod>([
      ["Unary", { kind: "unary", serve: (call, request) => this.unary(call, request) }],
      ["Hold", { kind: "unary", serve: (call) => this.hold(call) }],
      ["Refuse", { kind: "unary", serve: (call, request) => this.refuse(call, request) }],
      ["Big", { kind: "unary", serve: (call, request) => call.respond(bytesOf(request)) }],
      ["Chat", { kind: "stream", serve: (call) => this.chat(call) }],
    ]);
  }

  /** Waits for a condition over what happened. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) await new Promise<void>((resolve) => this.wakes.add(resolve));
  }

  private say(what: string): void {
    this.heard.push(what);
    for (const wake of this.wakes) wake();
    this.wakes.clear();
  }

  private note(call: ServerCall): void {
    call.onClose(() => this.say("over"));
  }

  private unary(call: UnaryCall, request: Buffer): void {
    this.note(call);
    this.say(`unary ${request.toString()}`);
    call.respond(request);
  }

  private hold(call: UnaryCall): void {
    this.note(call);
    this.held.push(call);
    this.say("held");
  }

  private refuse(call: UnaryCall, request: Buffer): void {
    const metadata = { "lockstep-code": "overloaded" };
    call.fail({ code: GrpcCode.ABORTED, details: request.toString(), metadata });
  }

  private chat(call: StreamCall): void {
    this.note(call);
    this.chats.push(call);
    call.onMessage((message) => {
      this.say(`message ${message.toString()}`);
      call.write(Buffer.from(message));
    });
    call.onHalfClose(() => {
      this.say("half-close");
      call.end();
    });
    call.onDrain(() => this.say("drain"));
    this.say("chat");
  }
}

/** As many bytes as the request says, in two buffers. */
function bytesOf(request: Buffer): readonly Uint8Array[] {
  const bytes = Number(request.toString());
  const half = Math.floor(bytes / 2);
  return [Buffer.alloc(half, "a"), Buffer.alloc(bytes - half, "b")];
}
