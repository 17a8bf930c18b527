import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Stream } from "node:http2";
import {
  connect as connectTcp,
  createServer as createTcpServer,
  type AddressInfo,
  type Server,
} from "node:net";
import { describe, it } from "node:test";
import * as coordination from "@lockstep/proto/coordination";
import { CHANNEL_PATH, GrpcTransport } from "./grpc.ts";
import { withPrefix } from "./grpc-messages.ts";
import type { FrameLink } from "./transport.ts";

const GRPC_HEADERS = { ":status": 200, "content-type": "application/grpc" };

/** A bare HTTP/2 server, to answer as no gRPC library would. */
class RawMember implements Disposable {
  readonly #server: Http2Server;
  readonly #serve: (stream: ServerHttp2Stream) => void;

  constructor(serve: (stream: ServerHttp2Stream) => void) {
    this.#serve = serve;
    this.#server = createHttp2Server();
    this.#server.on("stream", (stream) => {
      stream.on("error", () => undefined);
      this.#serve(stream);
    });
    this.#server.on("session", (session) => this.#sessions.add(session));
  }

  readonly #sessions = new Set<{ destroy(): void; on(event: "ping", listener: () => void): unknown }>();

  async listen(): Promise<string> {
    return listen(this.#server);
  }

  /** Resolves when so many pings have come. */
  pings(count: number): Promise<void> {
    return new Promise((resolve) => {
      let seen = 0;
      for (const session of this.#sessions) session.on("ping", () => ++seen === count && resolve());
    });
  }

  [Symbol.dispose](): void {
    for (const session of this.#sessions) session.destroy();
    this.#server.close();
  }
}

async function listen(server: Server | Http2Server): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `127.0.0.1:${String((server.address() as AddressInfo).port)}`;
}

interface Opened {
  readonly link: FrameLink;
  readonly frames: string[];
  readonly closed: Promise<Error | undefined>;
  readonly isClosed: () => boolean;
  /** The next frame, or drain. */
  readonly next: (event: "frame" | "drained") => Promise<void>;
}

function open(address: string, transport = new GrpcTransport(undefined)): Opened {
  const frames: string[] = [];
  const waiting = { frame: [] as (() => void)[], drained: [] as (() => void)[] };
  const tell = (event: "frame" | "drained"): void => {
    for (const resolve of waiting[event].splice(0)) resolve();
  };
  let over = false;
  let onClosed: (reason: Error | undefined) => void;
  const closed = new Promise<Error | undefined>((resolve) => (onClosed = resolve));
  const link = transport.open(address, {
    frame: (frame) => {
      frames.push(frame.toString());
      tell("frame");
    },
    drained: () => tell("drained"),
    closed: (reason) => {
      assert.equal(over, false, "told once");
      over = true;
      onClosed(reason);
    },
  });
  return {
    ...{ link, frames, closed, isClosed: () => over },
    next: (event) => new Promise((resolve) => waiting[event].push(resolve)),
  };
}

/** Opens a stream to a member that answers like this, and waits for its end. */
async function endOf(serve: (stream: ServerHttp2Stream) => void): Promise<string | undefined> {
  using member = new RawMember(serve);
  return (await open(await member.listen()).closed)?.message;
}

function answer(stream: ServerHttp2Stream, trailers: Record<string, string>): void {
  stream.respond(GRPC_HEADERS, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
}

describe("a stream of frames over HTTP/2", { timeout: 30_000 }, () => {
  it("is the method that the schema names", () => {
    assert.equal(CHANNEL_PATH, coordination.CoordinationService.channel.path);
  });

  it("carries frames both ways, and ends without a reason when the member says that all is well", async () => {
    using member = new RawMember((stream) => {
      answer(stream, { "grpc-status": "0" });
      stream.write(withPrefix(Buffer.from("hello")));
      stream.on("data", (chunk: Buffer) => stream.write(chunk));
      stream.on("end", () => stream.end());
    });
    const { link, frames, closed, next } = open(await member.listen());
    await next("frame");
    assert.equal(link.send(Buffer.from("again")), true);
    await next("frame");
    link.finish();
    assert.equal(await closed, undefined);
    assert.deepEqual(frames, ["hello", "again"]);
  });

  it("ends with what the member says, with or without a body", async () => {
    const failure = { "grpc-status": "14", "grpc-message": "shutting%20down" };
    const inTrailers = await endOf((stream) => {
      answer(stream, failure);
      stream.end();
    });
    assert.equal(inTrailers, "shutting down (gRPC status 14)");
    const inHeaders = await endOf((stream) =>
      stream.respond({ ...GRPC_HEADERS, ...failure }, { endStream: true }),
    );
    assert.equal(inHeaders, inTrailers);
  });

  it("ends with a reason when it stops in the middle, or says nothing of how it ended", async () => {
    const cut = await endOf((stream) => {
      answer(stream, { "grpc-status": "0" });
      stream.end(withPrefix(Buffer.from("half")).subarray(0, 7));
    });
    assert.equal(cut, "the connection was closed");
    const silent = await endOf((stream) => {
      stream.respond(GRPC_HEADERS);
      stream.end();
    });
    assert.equal(silent, "the connection was closed");
    const dropped = await endOf((stream) => stream.session?.destroy());
    assert.equal(typeof dropped, "string");
  });

  it("says so when something else than a cell answers", async () => {
    const page = await endOf((stream) => {
      stream.respond({ ":status": 404, "content-type": "text/html" });
      stream.end("no such page");
    });
    assert.equal(page, "what answers is no cell: HTTP 404, text/html");
  });

  it("says so when nobody listens, and when the address is none", async () => {
    const server = createTcpServer();
    const address = await listen(server);
    server.close();
    assert.equal((await open(address).closed)?.message, `connect ECONNREFUSED ${address}`);
    for (const bad of ["cell-0", "http://cell-0:7400", "user@cell-0:7400", "cell-0:7400/path", ""]) {
      assert.equal((await open(bad).closed)?.message, `"${bad}" is not host:port`);
    }
  });

  it("says no when the member does not read, drains when it does, and loses nothing", async () => {
    let received = 0;
    const streams: ServerHttp2Stream[] = [];
    using member = new RawMember((stream) => {
      answer(stream, { "grpc-status": "0" });
      streams.push(stream);
      stream.write(withPrefix(Buffer.from("hello")));
    });
    const { link, closed, next } = open(await member.listen());
    await next("frame");
    const frame = Buffer.alloc(300_000);
    let sent = 1;
    while (sent < 50 && link.send(frame)) sent += 1;
    assert.ok(sent < 20, `${String(sent)} frames of 300 kB before it said no`);
    const drained = next("drained");
    const [stream] = streams;
    assert.ok(stream !== undefined);
    stream.on("data", (chunk: Buffer) => (received += chunk.length));
    stream.on("end", () => stream.end());
    await drained;
    link.finish();
    assert.equal(await closed, undefined);
    assert.equal(received, sent * (frame.length + 5));
  });

  it("that was given up tells nothing more, and the member sees its end", async () => {
    const gone: Promise<unknown>[] = [];
    using member = new RawMember((stream) => {
      answer(stream, { "grpc-status": "0" });
      gone.push(once(stream, "close"));
      stream.write(withPrefix(Buffer.from("hello")));
    });
    const { link, frames, isClosed, next } = open(await member.listen());
    await next("frame");
    link.destroy();
    await Promise.all(gone);
    assert.deepEqual(frames, ["hello"]);
    assert.equal(isClosed(), false);
  });

  it("is lost when its connection is open and silent, and not while pings are answered", async () => {
    using member = new RawMember((stream) => {
      answer(stream, { "grpc-status": "0" });
      stream.write(withPrefix(Buffer.from("hello")));
    });
    const [host = "", port = ""] = (await member.listen()).split(":");
    const cut: (() => void)[] = [];
    const proxy = createTcpServer((near) => {
      const far = connectTcp(Number(port), host);
      near.pipe(far).pipe(near);
      for (const socket of [near, far]) socket.on("error", () => undefined);
      cut.push(() => {
        near.unpipe(far);
        far.unpipe(near);
      });
      near.on("close", () => far.destroy());
    });
    const { closed, isClosed, next } = open(await listen(proxy), new GrpcTransport(undefined, 50));
    await next("frame");
    await member.pings(4);
    assert.equal(isClosed(), false);
    for (const stop of cut) stop();
    assert.match((await closed)?.message ?? "", /silent for 50 ms/);
    proxy.close();
  });
});
