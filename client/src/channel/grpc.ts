import {
  connect,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
} from "node:http2";
import { isIP } from "node:net";
import { checkServerIdentity, type ConnectionOptions } from "node:tls";
import { underlying } from "./connect-error.ts";
import { MessageReader, withPrefix } from "./grpc-messages.ts";
import type { TlsOptions, TlsSource } from "./tls.ts";
import type { FrameLink, FrameSink, Transport } from "./transport.ts";

/** The method of the service (proto/lockstep/v1/coordination.proto) that is the channel. */
export const CHANNEL_PATH = "/lockstep.v1.Coordination/Channel";
// A reply of a range is at most 3 MiB, a batch of watch events a few; far above both.
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
/** What a member may send ahead of what was read here. */
const WINDOW_BYTES = 4 * 1024 * 1024;
/** Frames that have not left yet, in bytes; then the channel holds back. */
const UNSENT_BYTES_MAX = 1024 * 1024;
/** A connection that brought nothing from one look to the next, not even the answer to a ping, is lost. */
const LOOK_MS = 4_000;

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
      const session = openSession(address, tls);
      return new GrpcLink({ session, authority: tls?.serverName ?? address, lookMs: this.#lookMs }, sink);
    } catch (error) {
      return failedLink(sink, asError(error));
    }
  }

  /** Does nothing: connections belong to their links. */
  close(): void {
    // Connections belong to links; nothing is kept between them.
  }
}

function openSession(address: string, tls: TlsOptions | undefined): ClientHttp2Session {
  if (!/^([^\s:/@[\]]+|\[[\da-fA-F:.]+\]):\d+$/.test(address)) {
    throw new TypeError(`"${address}" is not host:port`);
  }
  return connect(`${tls === undefined ? "http" : "https"}://${address}`, {
    settings: { enablePush: false, initialWindowSize: WINDOW_BYTES },
    // What is under way is bounded by the channel and by the windows.
    maxSessionMemory: Number.MAX_SAFE_INTEGER,
    ...(tls === undefined ? {} : tlsOptions(tls)),
  });
}

function tlsOptions({ ca, cert, key, serverName }: TlsOptions): ConnectionOptions {
  return {
    ...{ minVersion: "TLSv1.3", rejectUnauthorized: true },
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(serverName === undefined ? {} : expecting(serverName)),
  };
}

function expecting(serverName: string): ConnectionOptions {
  return {
    // The name in a handshake cannot be an address.
    servername: isIP(serverName) === 0 ? serverName : "",
    checkServerIdentity: (_dialled, certificate) => checkServerIdentity(serverName, certificate),
  };
}

interface Connection {
  readonly session: ClientHttp2Session;
  readonly authority: string;
  readonly lookMs: number;
}

type ResponseHeaders = IncomingHttpHeaders & { readonly ":status"?: number | undefined };

class GrpcLink implements FrameLink {
  readonly #session: ClientHttp2Session;
  readonly #lookMs: number;
  readonly #stream: ClientHttp2Stream;
  readonly #sink: FrameSink;
  readonly #reader = new MessageReader(FRAME_BYTES_MAX, (frame) => {
    if (!this.#over) this.#sink.frame(frame);
  });
  #over = false;
  /** The first that went wrong: what follows is its consequence. */
  #problem: Error | undefined;
  /** The member has said how the call ended. */
  #hasStatus = false;
  /** Since the last look. */
  #heard = true;
  #looks: NodeJS.Timeout | undefined;

  constructor({ session, authority, lookMs }: Connection, sink: FrameSink) {
    this.#session = session;
    this.#lookMs = lookMs;
    this.#sink = sink;
    session.on("error", (error: Error) => (this.#problem ??= underlying(error)));
    session.once("connect", () => this.#connected());
    session.once("close", () => this.#finish());
    this.#stream = session.request({
      ":method": "POST",
      ":path": CHANNEL_PATH,
      ":authority": authority,
      "content-type": "application/grpc",
      te: "trailers",
    });
    this.#listen(this.#stream);
  }

  #listen(stream: ClientHttp2Stream): void {
    stream.on("error", (error: Error) => (this.#problem ??= underlying(error)));
    stream.on("response", (headers: ResponseHeaders) => this.#onHeaders(headers));
    stream.on("trailers", (headers: IncomingHttpHeaders) => this.#onStatus(headers));
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("drain", () => {
      if (!this.#over) this.#sink.drained();
    });
    stream.on("end", () => this.#finish());
    stream.on("close", () => this.#finish());
  }

  send(frame: Buffer): boolean {
    this.#stream.write(withPrefix(frame));
    // The stream's own mark is far lower, so it drains after every time this says no.
    return this.#stream.writableLength < UNSENT_BYTES_MAX;
  }

  finish(): void {
    this.#stream.end();
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
      if (!this.#heard) {
        this.#fail(
          new Error(`the connection was silent for ${String(this.#lookMs)} ms, and a ping was not answered`),
        );
        return;
      }
      this.#heard = false;
      this.#session.ping((error) => {
        if (error === null) this.#heard = true;
      });
    });
  }

  #onHeaders(headers: ResponseHeaders): void {
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
    this.#heard = true;
    if (this.#over) return;
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
    if (!this.#hasStatus || this.#reader.isInMessage) {
      this.#problem ??= new Error("the connection was closed");
    }
    this.#release();
    this.#sink.closed(this.#problem);
  }

  #release(): void {
    this.#over = true;
    clearInterval(this.#looks);
    this.#session.destroy();
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
