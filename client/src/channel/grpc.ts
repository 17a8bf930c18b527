import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import { closedUnanswered, explained } from "./connect-error.ts";
import { Connection, WINDOW_BYTES } from "./connection.ts";
import { MessageReader, withPrefix } from "./grpc-messages.ts";
import type { TlsSource } from "./tls.ts";
import type { FrameLink, FrameSink, LinkProgress, Transport } from "./transport.ts";
import { Upload } from "./upload.ts";

/** The method of the service (proto/lockstep/v1/coordination.proto) that is the channel. */
export const CHANNEL_PATH = "/lockstep.v1.Coordination/Channel";
// A reply of a range is at most 3 MiB, a batch of watch events a few; far above both.
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
/** Frames that have not left yet, in bytes; then the channel holds back. On a slow line a renewal waits behind them. */
const UNSENT_BYTES_MAX = 256 * 1024;
/** A connection that brought nothing from one look to the next, not even the answer to a ping, is lost. */
const LOOK_MS = 4_000;
/** A stream that ended without a status may still be reset, with a reason, for this long. */
const RESET_MS_MAX = 20;

/** Frames as messages of a gRPC stream, each stream with an HTTP/2 connection of its own. */
export class GrpcTransport implements Transport {
  readonly #tls: TlsSource | undefined;
  readonly #lookMs: number;

  /**
   * @param tls undefined: plain text
   * @param lookMs how often a connection is looked at; one that is silent is lost within two of these. Default 4,000
   */
  constructor(tls: TlsSource | undefined, lookMs: number = LOOK_MS) {
    this.#tls = tls;
    this.#lookMs = lookMs;
  }

  /** Begins a stream to the member at `address`, `host:port`. */
  open(address: string, sink: FrameSink): FrameLink {
    try {
      const tls = typeof this.#tls === "function" ? this.#tls() : this.#tls;
      const connection = new Connection(address, tls);
      return new GrpcLink(
        { connection, isTls: tls !== undefined, authority: tls?.serverName ?? address, lookMs: this.#lookMs },
        sink,
      );
    } catch (error) {
      return failedLink(sink, asError(error));
    }
  }

  /** Does nothing: connections belong to their links. */
  close(): void {
    // Connections belong to links; nothing is kept between them.
  }
}

interface Dialled {
  readonly connection: Connection;
  readonly isTls: boolean;
  readonly authority: string;
  readonly lookMs: number;
}

type ResponseHeaders = IncomingHttpHeaders & { readonly ":status"?: number | undefined };

class GrpcLink implements FrameLink {
  readonly #connection: Connection;
  readonly #isTls: boolean;
  readonly #session: ClientHttp2Session;
  readonly #lookMs: number;
  readonly #upload: Upload;
  readonly #sink: FrameSink;
  readonly #reader = new MessageReader(FRAME_BYTES_MAX, (frame) => {
    if (!this.#over) this.#sink.frame(frame);
  });
  readonly #progress = { sentBytes: 0, arrivedBytes: 0, receivedBytes: 0 };
  #over = false;
  /** The first that went wrong: what follows is its consequence. */
  #problem: Error | undefined;
  /** Something that speaks HTTP/2 has answered the call. */
  #isAnswered = false;
  /** The member has said how the call ended. */
  #hasStatus = false;
  /** Of the connection, at the last look. */
  #receivedBytes = 0;
  #isPinged = false;
  #looks: NodeJS.Timeout | undefined;
  #resetTimer: NodeJS.Timeout | undefined;

  constructor({ connection, isTls, authority, lookMs }: Dialled, sink: FrameSink) {
    const { session } = connection;
    this.#connection = connection;
    this.#isTls = isTls;
    this.#session = session;
    this.#lookMs = lookMs;
    this.#sink = sink;
    session.on("error", (error: Error) => (this.#problem ??= explained(error)));
    session.once("connect", () => this.#connected());
    session.on("goaway", () => {
      if (!this.#over) sink.leaving?.();
    });
    session.once("close", () => this.#finish());
    const stream = session.request({
      ":method": "POST",
      ":path": CHANNEL_PATH,
      ":authority": authority,
      "content-type": "application/grpc",
      te: "trailers",
    });
    this.#listen(session, stream);
    this.#upload = new Upload(
      { session, stream, unsentBytesMax: UNSENT_BYTES_MAX },
      {
        arrived: (bytes) => (this.#progress.arrivedBytes += bytes),
        drained: () => {
          if (!this.#over) sink.drained();
        },
      },
    );
  }

  #listen(session: ClientHttp2Session, stream: ClientHttp2Stream): void {
    stream.on("error", (error: Error) => (this.#problem ??= explained(error)));
    stream.on("response", (headers: ResponseHeaders) => this.#onHeaders(headers));
    stream.on("trailers", (headers: IncomingHttpHeaders) => this.#onStatus(headers));
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("end", () => {
      // A stream that is reset may end first: why is told when it closes.
      if (this.#hasStatus) this.#finish();
      else this.#resetTimer = setTimeout(() => this.#finish(), RESET_MS_MAX).unref();
    });
    stream.on("close", () => {
      const { rstCode } = stream;
      // Where the connection is gone, it is our own side's code.
      if (rstCode !== 0 && !session.destroyed)
        this.#problem ??= new Error(`the stream was reset (HTTP/2 code ${String(rstCode)})`);
      this.#finish();
    });
  }

  get progress(): LinkProgress {
    return this.#progress;
  }

  send(frame: Buffer): boolean {
    const bytes = withPrefix(frame);
    this.#progress.sentBytes += bytes.length;
    return this.#upload.send(bytes);
  }

  finish(): void {
    this.#upload.finish();
  }

  destroy(): void {
    if (!this.#over) this.#release();
  }

  #connected(): void {
    if (this.#over) return;
    this.#session.setLocalWindowSize(WINDOW_BYTES);
    this.#looks = setInterval(() => this.#look(), this.#lookMs).unref();
  }

  #look(): void {
    // After the input of this turn: a process that was stopped finds there what came meanwhile.
    setImmediate(() => {
      if (this.#over) return;
      const { receivedBytes } = this.#connection;
      if (this.#isPinged && receivedBytes === this.#receivedBytes) {
        this.#fail(
          new Error(`the connection was silent for ${String(this.#lookMs)} ms, and a ping was not answered`),
        );
        return;
      }
      this.#receivedBytes = receivedBytes;
      // After GOAWAY no ping is sent any more, and silence says nothing.
      this.#isPinged = !this.#session.closed;
      if (this.#isPinged) this.#session.ping(() => undefined);
    });
  }

  #onHeaders(headers: ResponseHeaders): void {
    this.#isAnswered = true;
    const { ":status": status, "content-type": type } = headers;
    if (status !== 200 || type?.startsWith("application/grpc") !== true) {
      this.#fail(new Error(`what answers is no cell: HTTP ${String(status)}, ${type ?? "no content type"}`));
    } else if (headers["grpc-status"] !== undefined) {
      this.#onStatus(headers);
    }
  }

  #onStatus(headers: IncomingHttpHeaders): void {
    const status = headers["grpc-status"];
    this.#hasStatus = status !== undefined;
    if (status === undefined || status === "0") return;
    const details = unescaped(String(headers["grpc-message"] ?? "no message"));
    this.#problem ??= new Error(`${details} (gRPC status ${String(status)})`);
  }

  #onData(chunk: Buffer): void {
    if (this.#over) return;
    this.#progress.receivedBytes += chunk.length;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#fail(asError(error));
    }
  }

  #fail(problem: Error): void {
    this.#problem ??= problem;
    this.#finish();
  }

  #finish(): void {
    if (this.#over) return;
    if (!this.#isAnswered) {
      this.#problem = closedUnanswered(this.#problem, this.#isTls);
    } else if (!this.#hasStatus || this.#reader.isInMessage) {
      this.#problem ??= new Error("the connection was closed");
    }
    this.#release();
    this.#sink.closed(this.#problem);
  }

  #release(): void {
    this.#over = true;
    clearInterval(this.#looks);
    clearTimeout(this.#resetTimer);
    this.#connection.destroy();
  }
}

/** A stream that could not even be begun: told in a turn of its own, as everything else about a stream. */
function failedLink(sink: FrameSink, reason: Error): FrameLink {
  let over = false;
  setImmediate(() => {
    if (over) return;
    over = true;
    sink.closed(reason);
  });
  return { send: () => true, finish: () => undefined, destroy: () => (over = true) };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** gRPC escapes a status's text as URLs do. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
