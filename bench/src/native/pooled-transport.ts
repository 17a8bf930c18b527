import {
  CHANNEL_PATH,
  MessageReader,
  withPrefix,
  type FrameLink,
  type FrameSink,
  type Transport,
} from "@lockstep/client/transport";
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from "node:http2";

/** Of a message: nothing that a member sends comes near it. */
const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

class PooledLink implements FrameLink {
  readonly #stream: ClientHttp2Stream;
  #over = false;

  constructor(stream: ClientHttp2Stream, sink: FrameSink) {
    this.#stream = stream;
    const reader = new MessageReader(MESSAGE_BYTES_MAX, (message) => {
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
      [constants.HTTP2_HEADER_PATH]: CHANNEL_PATH,
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
