import type { FrameLink, FrameSink, Transport } from "@lockstep/client";
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from "node:http2";

const PATH = "/lockstep.v1.Coordination/Channel";
const PREFIX_BYTES = 5;

/** Puts messages together again from what the connection brings, which is cut anywhere. */
export class MessageReader {
  readonly #onMessage: (message: Buffer) => void;
  #rest: Buffer = Buffer.alloc(0);

  constructor(onMessage: (message: Buffer) => void) {
    this.#onMessage = onMessage;
  }

  push(chunk: Buffer): void {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (bytes.length >= PREFIX_BYTES) {
      const end = PREFIX_BYTES + bytes.readUInt32BE(1);
      if (bytes.length < end) break;
      this.#onMessage(bytes.subarray(PREFIX_BYTES, end));
      bytes = bytes.subarray(end);
    }
    this.#rest = bytes;
  }
}

export function withPrefix(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, PREFIX_BYTES);
  return framed;
}

class PooledLink implements FrameLink {
  readonly #stream: ClientHttp2Stream;
  #over = false;

  constructor(stream: ClientHttp2Stream, sink: FrameSink) {
    this.#stream = stream;
    const reader = new MessageReader((message) => {
      if (!this.#over) sink.frame(message);
    });
    let problem: Error | undefined;
    stream.on("data", (chunk: Buffer) => reader.push(chunk));
    stream.on("drain", () => {
      if (!this.#over) sink.drained();
    });
    stream.on("error", (error: Error) => (problem = error));
    stream.on("close", () => {
      if (this.#over) return;
      this.#over = true;
      sink.closed(problem);
    });
  }

  send(frame: Buffer): boolean {
    return this.#over || this.#stream.write(withPrefix(frame));
  }

  finish(): void {
    this.#stream.end();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }
}

/**
 * Streams of many clients over few connections, as behind a proxy: at most `connectionsMax` to a member, which streams
 * take in turn. A connection that was lost is made anew for the next stream that would have been on it.
 */
export class PooledTransport implements Transport {
  readonly #connectionsMax: number;
  readonly #pools = new Map<string, (ClientHttp2Session | undefined)[]>();
  #turn = 0;

  constructor(connectionsMax: number) {
    this.#connectionsMax = connectionsMax;
  }

  open(address: string, sink: FrameSink): FrameLink {
    const stream = this.#session(address).request({
      [constants.HTTP2_HEADER_METHOD]: "POST",
      [constants.HTTP2_HEADER_PATH]: PATH,
      [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
      te: "trailers",
    });
    return new PooledLink(stream, sink);
  }

  #session(address: string): ClientHttp2Session {
    const pool = this.#pools.get(address) ?? [];
    this.#pools.set(address, pool);
    const index = this.#turn % this.#connectionsMax;
    this.#turn += 1;
    const present = pool[index];
    if (present !== undefined && !present.destroyed && !present.closed) return present;
    const session = connect(`http://${address}`);
    // Each stream that waits for the connection listens to it.
    session.setMaxListeners(0);
    // What goes wrong with a connection is told by its streams.
    session.on("error", () => undefined);
    pool[index] = session;
    return session;
  }

  /** Closes nothing: the connections are shared by clients. See {@link closeAll}. */
  close(): void {
    // See above.
  }

  closeAll(): void {
    for (const pool of this.#pools.values()) for (const session of pool) session?.destroy();
  }
}
