import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { constants } from "node:http2";
import type { TLSSocket } from "node:tls";
import type { CertificateIdentity, IdentityVerdict } from "../tls/identity.ts";
import type { GrpcStatus } from "./call.ts";
import type { Guard } from "./guard.ts";
import type { Methods } from "./head.ts";
import { readHead } from "./head.ts";
import { CONNECTION_WINDOW_BYTES } from "./limits.ts";
import type { GrpcTiming } from "./limits.ts";
import { trailersOf } from "./status.ts";
import { StreamTransportCall } from "./stream-call.ts";
import { refuseStream } from "./transport-call.ts";
import type { CallConnection } from "./transport-call.ts";
import { UnaryTransportCall } from "./unary-call.ts";

/** What all connections of a listener share. */
export interface ConnectionOptions {
  readonly methods: Methods;
  readonly receiveBytesMax: number;
  readonly timing: GrpcTiming;
  /** Absent: everybody may everything. */
  readonly guard: Guard | undefined;
}

const PING_EVERY_CHECKS = 2;
const PING_PAYLOAD = Buffer.from("lockstep");

/** One connection of a client: opens its calls, and notices when it is dead. */
export class Connection implements CallConnection {
  readonly receiveBytesMax: number;
  readonly timing: GrpcTiming;
  unfinishedBytes = 0;
  unreadAnswerBytes = 0;
  private readonly session: ServerHttp2Session;
  private readonly options: ConnectionOptions;
  /** undefined: the listener asks for no identity. */
  private readonly verdict: IdentityVerdict | undefined;
  private readonly timer: NodeJS.Timeout;
  private checks = 0;
  private isPinged = false;

  constructor(session: ServerHttp2Session, options: ConnectionOptions) {
    this.session = session;
    this.options = options;
    this.receiveBytesMax = options.receiveBytesMax;
    this.timing = options.timing;
    this.verdict = options.guard?.read(session.socket as TLSSocket);
    this.timer = setInterval(() => this.check(), options.timing.keepaliveCheckMs);
    this.timer.unref();
    session.on("stream", (stream, headers, flags) => this.open(stream, headers, flags));
    session.once("close", () => clearInterval(this.timer));
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
  }

  get identity(): CertificateIdentity | undefined {
    return this.verdict?.ok === true ? this.verdict.identity : undefined;
  }

  refusal(path: string, request: Buffer | undefined): GrpcStatus | undefined {
    if (this.verdict === undefined) return undefined;
    return this.options.guard?.refusal(this.verdict, path, request);
  }

  /** Without an answer to a ping from one check to the next, the client is dead. */
  private check(): void {
    const { session } = this;
    if (session.destroyed || session.closed) return;
    if (this.isPinged) {
      session.destroy(undefined, constants.NGHTTP2_CANCEL);
      return;
    }
    this.checks += 1;
    if (this.checks % PING_EVERY_CHECKS !== 0) return;
    this.isPinged = true;
    session.ping(PING_PAYLOAD, (error) => {
      if (error === null) this.isPinged = false;
    });
  }

  private open(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number): void {
    // Reset already, before this was told.
    if (stream.destroyed || stream.closed) return;
    const verdict = readHead(headers, this.options.methods);
    const hasEnded = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    const resetDelayMs = hasEnded ? undefined : this.timing.resetDelayMs;
    if (verdict.kind === "refused") {
      refuseStream(stream, verdict.headers, resetDelayMs);
      return;
    }
    const { method, head } = verdict;
    if (this.verdict?.ok === false) {
      const refusal = this.refusal(head.path, undefined);
      if (refusal !== undefined) {
        refuseStream(stream, trailersOf(refusal), resetDelayMs);
        return;
      }
    }
    if (method.kind === "unary") new UnaryTransportCall(stream, head, { connection: this, method });
    else new StreamTransportCall(stream, head, this).start(method);
  }
}
