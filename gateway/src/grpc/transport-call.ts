import { constants } from "node:http2";
import type {
  IncomingHttpHeaders,
  OutgoingHttpHeaders,
  ServerHttp2Stream,
  ServerStreamResponseOptions,
} from "node:http2";
import type { CertificateIdentity } from "../tls/identity.ts";
import { GrpcCode } from "./call.ts";
import type { GrpcStatus, Message, ServerCall } from "./call.ts";
import { BIG_MESSAGE_BYTES } from "./limits.ts";
import type { GrpcTiming } from "./limits.ts";
import { PREFIX_BYTES, framed, writePrefix } from "./messages.ts";
import type { UnfinishedBytes } from "./messages.ts";
import { OK_TRAILERS, trailersOf } from "./status.ts";

/** What calls need of their connection. */
export interface CallConnection extends UnfinishedBytes {
  readonly identity: CertificateIdentity | undefined;
  readonly receiveBytesMax: number;
  readonly timing: GrpcTiming;
  /** Big answers that were given and have not left. */
  unreadAnswerBytes: number;
  /** @returns why the caller may not make this call */
  refusal(path: string, request: Buffer | undefined): GrpcStatus | undefined;
}

/** A call's headers, read once. */
export interface CallHead {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** Milliseconds, possibly a fraction; undefined: the caller gave none. */
  readonly timeoutMs: number | undefined;
  readonly encoding: string | undefined;
}

type ResponseOptions = ServerStreamResponseOptions & { readonly sendDate: boolean };

const RESPONSE_HEADERS: OutgoingHttpHeaders = { ":status": 200, "content-type": "application/grpc" };
// No `date`: 35 bytes of every answer that no gRPC client reads.
const WITH_TRAILERS: ResponseOptions = { waitForTrailers: true, sendDate: false };
const ENDED: ResponseOptions = { endStream: true, sendDate: false };

/** Timers of one length share a list in Node: lengths are rounded up to few. */
const DEADLINE_STEP_MS = 16;
const TIMER_MS_MAX = 2 ** 31 - 1;

const CALL: unique symbol = Symbol("call");

/** The call stands on its stream, so that all calls share their listeners. */
interface Carrier extends ServerHttp2Stream {
  [CALL]: TransportCall;
}

/** A call over one HTTP/2 stream: headers, deadline, status and the end, whatever its messages are. */
export abstract class TransportCall implements ServerCall {
  readonly path: string;
  protected readonly stream: ServerHttp2Stream;
  protected readonly connection: CallConnection;
  /** Its end has been decided: nothing that comes or is said after that counts. */
  protected ended = false;
  /** The client has said everything. */
  protected clientEnded = false;
  private readonly headers: IncomingHttpHeaders;
  private readonly expiresAtMs: number;
  private timer: NodeJS.Timeout | undefined;
  private trailers: OutgoingHttpHeaders = OK_TRAILERS;
  private closeListeners: (() => void)[] | undefined;
  private hasExpired = false;
  private isCloseWatched = false;
  private over = false;

  constructor(stream: ServerHttp2Stream, head: CallHead, connection: CallConnection) {
    this.stream = stream;
    this.connection = connection;
    this.path = head.path;
    this.headers = head.headers;
    const { timeoutMs } = head;
    this.expiresAtMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
    const carrier = stream as Carrier;
    carrier[CALL] = this;
    carrier.on("data", onData);
    carrier.on("end", onEnd);
    carrier.on("wantTrailers", onWantTrailers);
    carrier.on("error", onError);
    if (timeoutMs !== undefined) this.startTimer(timeoutMs);
  }

  get cancelled(): boolean {
    return this.hasExpired || (!this.ended && this.isGone);
  }

  get authority(): string {
    return this.header(":authority") ?? "";
  }

  get identity(): CertificateIdentity | undefined {
    return this.connection.identity;
  }

  header(name: string): string | undefined {
    const value = this.headers[name];
    return typeof value === "object" ? value.join(", ") : value;
  }

  deadlineMs(): number | undefined {
    if (this.expiresAtMs === Number.POSITIVE_INFINITY) return undefined;
    return Math.max(0, this.expiresAtMs - performance.now());
  }

  onClose(listener: () => void): void {
    this.watchClose();
    if (this.over) queueMicrotask(listener);
    else if (this.closeListeners === undefined) this.closeListeners = [listener];
    else this.closeListeners.push(listener);
  }

  fail(status: GrpcStatus): void {
    if (!this.finish()) return;
    const { stream } = this;
    const trailers = trailersOf(status);
    if (!stream.headersSent) {
      stream.respond({ ...RESPONSE_HEADERS, ...trailers }, ENDED);
      this.stopClient();
      return;
    }
    this.trailers = trailers;
    stream.end();
    this.watchClose();
    this.timer = setTimeout(giveUp, this.connection.timing.failLingerMs, stream);
  }

  // ---- from the stream ----

  abstract received(chunk: Buffer): void;

  /** The client has said everything. */
  abstract halfClosed(): void;

  sendTrailers(): void {
    this.stream.sendTrailers(this.trailers);
    this.stopClient();
  }

  closed(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.release();
    const { closeListeners } = this;
    if (closeListeners === undefined) return;
    this.closeListeners = undefined;
    for (const listener of closeListeners) listener();
  }

  expired(): void {
    if (this.ended) return;
    const details = "the deadline of the call has passed";
    this.fail({ code: GrpcCode.DEADLINE_EXCEEDED, details });
    this.hasExpired = true;
  }

  noteClientEnd(): void {
    this.clientEnded = true;
    if (!this.ended && !this.isGone) this.halfClosed();
  }

  // ---- for kinds of calls ----

  /** The stream takes nothing more, though the call may not have heard of it yet. */
  protected get isGone(): boolean {
    return this.stream.closed || this.stream.destroyed;
  }

  /** Decides the end. @returns false when that is too late */
  protected finish(): boolean {
    if (this.ended || this.isGone) return false;
    this.ended = true;
    clearTimeout(this.timer);
    return true;
  }

  protected sendHeaders(): void {
    this.stream.respond(RESPONSE_HEADERS, WITH_TRAILERS);
  }

  /** Hands a message to the stream, with the response's headers before the first. */
  protected send(message: Message, length: number, sent?: () => void): boolean {
    const { stream } = this;
    if (!stream.headersSent) this.sendHeaders();
    if (length < BIG_MESSAGE_BYTES) return stream.write(framed(message, length), sent);
    const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
    writePrefix(prefix, length);
    // Several buffers, one write.
    stream.cork();
    let hasRoom = stream.write(prefix);
    if (message instanceof Uint8Array) {
      hasRoom = stream.write(message, sent);
    } else {
      const last = message.length - 1;
      for (const [i, part] of message.entries()) hasRoom = stream.write(part, i === last ? sent : undefined);
    }
    stream.uncork();
    return hasRoom;
  }

  /**
   * From now on the end of the stream is heard of. Not from the start: each listener of a stream costs, and a short call
   * with nothing to give back needs to hear of none.
   */
  protected watchClose(): void {
    if (this.isCloseWatched) return;
    this.isCloseWatched = true;
    if (this.stream.destroyed) this.over = true;
    else (this.stream as Carrier).on("close", onClose);
  }

  /** The call is over: what it holds on to is given back. */
  protected abstract release(): void;

  /** A client that still sends is told to stop. */
  private stopClient(): void {
    clearTimeout(this.timer);
    if (this.clientEnded) return;
    this.watchClose();
    this.timer = setTimeout(closeQuietly, this.connection.timing.resetDelayMs, this.stream);
  }

  private startTimer(timeoutMs: number): void {
    this.watchClose();
    const ms = Math.ceil(timeoutMs / DEADLINE_STEP_MS) * DEADLINE_STEP_MS;
    if (ms <= TIMER_MS_MAX) this.timer = setTimeout(expire, ms, this);
  }
}

function onData(this: Carrier, chunk: Buffer): void {
  this[CALL].received(chunk);
}

function onEnd(this: Carrier): void {
  this[CALL].noteClientEnd();
}

function onWantTrailers(this: Carrier): void {
  this[CALL].sendTrailers();
}

function onClose(this: Carrier): void {
  this[CALL].closed();
}

/** What ends a stream with an error closes it too, and that is what counts. */
function onError(): void {
  return undefined;
}

function expire(call: TransportCall): void {
  call.expired();
}

function giveUp(stream: ServerHttp2Stream): void {
  stream.close(constants.NGHTTP2_CANCEL);
}

function closeQuietly(stream: ServerHttp2Stream): void {
  if (!stream.destroyed) stream.close(constants.NGHTTP2_NO_ERROR);
}

/**
 * Answers a stream that does not become a call.
 * @param headers with the status, `:status` included
 * @param resetDelayMs undefined: the client sends nothing more
 */
export function refuseStream(
  stream: ServerHttp2Stream,
  headers: OutgoingHttpHeaders,
  resetDelayMs: number | undefined,
): void {
  stream.on("error", onError);
  // What still comes is not looked at.
  stream.resume();
  stream.respond({ ...RESPONSE_HEADERS, ...headers }, ENDED);
  if (resetDelayMs !== undefined) setTimeout(closeQuietly, resetDelayMs, stream).unref();
}
