import assert from "node:assert/strict";
import { channel as diagnosticsChannel } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer as createHttp1Server } from "node:http";
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Stream } from "node:http2";
import {
  connect as connectTcp,
  createServer as createTcpServer,
  type AddressInfo,
  type Server,
  type Socket,
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

  /** @param windowBytes what may be sent to it ahead of what it read */
  constructor(serve: (stream: ServerHttp2Stream) => void, windowBytes = 65_535) {
    this.#serve = serve;
    this.#server = createHttp2Server({ settings: { initialWindowSize: windowBytes } });
    this.#server.on("session", (session) => session.setLocalWindowSize(windowBytes));
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

type Told = "frame" | "drained" | "leaving";

interface Opened {
  readonly link: FrameLink;
  readonly frames: string[];
  readonly closed: Promise<Error | undefined>;
  readonly isClosed: () => boolean;
  /** The next frame, or drain, or that it is to be left. */
  readonly next: (event: Told) => Promise<void>;
}

function open(address: string, transport = new GrpcTransport(undefined)): Opened {
  const frames: string[] = [];
  const waiting = {
    frame: [] as (() => void)[],
    drained: [] as (() => void)[],
    leaving: [] as (() => void)[],
  };
  const tell = (event: Told): void => {
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
    leaving: () => tell("leaving"),
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

function greet(stream: ServerHttp2Stream): void {
  answer(stream, { "grpc-status": "0" });
  stream.write(withPrefix(Buffer.from("hello")));
}

/** A line between a client and a member, which may be slow on the way up, and may be cut without a word. */
class Proxy implements Disposable {
  readonly #server: Server;
  readonly #sockets: Socket[] = [];
  readonly #waiting: Buffer[] = [];
  readonly #timers: NodeJS.Timeout[] = [];

  /** @param rate of the way up. Default: none */
  constructor(member: string, rate?: { readonly bytes: number; readonly everyMs: number }) {
    const [host = "", port = ""] = member.split(":");
    this.#server = createTcpServer((near) => {
      const far = connectTcp(Number(port), host);
      for (const socket of [near, far]) socket.on("error", () => undefined);
      this.#sockets.push(near, far);
      far.pipe(near);
      near.on("close", () => far.destroy());
      if (rate === undefined) {
        near.pipe(far);
        return;
      }
      near.on("data", (chunk: Buffer) => this.#waiting.push(chunk));
      this.#timers.push(setInterval(() => this.#pass(far, rate.bytes), rate.everyMs));
    });
  }

  listen(): Promise<string> {
    return listen(this.#server);
  }

  cut(): void {
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearInterval(timer);
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #pass(far: Socket, bytes: number): void {
    for (let left = bytes; left > 0;) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      far.write(next.subarray(0, left));
      if (next.length > left) this.#waiting.unshift(next.subarray(left));
      left -= next.length;
    }
  }
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
    assert.equal(dropped, "the connection was closed before anything was answered; does it expect TLS?");
  });

  it("ends with why it was reset, before or after an answer", async () => {
    const after = (code: number): Promise<string | undefined> =>
      endOf((stream) => {
        stream.respond(GRPC_HEADERS);
        stream.write(withPrefix(Buffer.from("hello")));
        stream.on("data", () => undefined);
        setImmediate(() => stream.close(code));
      });
    assert.equal(await after(11), "Stream closed with error code NGHTTP2_ENHANCE_YOUR_CALM");
    assert.equal(await after(8), "the stream was reset (HTTP/2 code 8)");
    const before = await endOf((stream) => stream.close(7));
    assert.equal(before, "Stream closed with error code NGHTTP2_REFUSED_STREAM");
  });

  it("says so when something else than a cell answers", async () => {
    const page = await endOf((stream) => {
      stream.respond({ ":status": 404, "content-type": "text/html" });
      stream.end("no such page");
    });
    assert.equal(page, "what answers is no cell: HTTP 404, text/html");
  });

  it("says so when what answers speaks HTTP/1.1", async () => {
    const server = createHttp1Server();
    const { closed } = open(await listen(server));
    assert.equal((await closed)?.message, "what answers does not speak HTTP/2");
    server.close();
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
    using member = new RawMember(greet);
    using proxy = new Proxy(await member.listen());
    const { link, closed, isClosed, next } = open(await proxy.listen(), new GrpcTransport(undefined, 50));
    await next("frame");
    await member.pings(4);
    assert.equal(isClosed(), false);
    proxy.cut();
    link.send(Buffer.alloc(100_000));
    assert.match((await closed)?.message ?? "", /silent for 50 ms/);
    assert.deepEqual(link.progress, { sentBytes: 100_005, arrivedBytes: 0, receivedBytes: 10 });
  });

  it("tells what of a large frame has arrived, and is not lost while that grows on a slow line", async () => {
    using member = new RawMember((stream) => {
      greet(stream);
      let received = 0;
      stream.on("data", (chunk: Buffer) => {
        received += chunk.length;
        if (received === 1_000_005) stream.write(withPrefix(Buffer.from("done")));
      });
    }, 4_000_000);
    // A ping behind the whole frame would be answered after five looks.
    using proxy = new Proxy(await member.listen(), { bytes: 10_000, everyMs: 20 });
    const { link, frames, closed, next } = open(await proxy.listen(), new GrpcTransport(undefined, 400));
    await next("frame");
    link.send(Buffer.alloc(1_000_000));
    await Promise.race([next("frame"), closed.then((reason) => assert.fail(reason?.message))]);
    assert.deepEqual(frames, ["hello", "done"]);
    const { arrivedBytes = 0 } = link.progress ?? {};
    assert.ok(arrivedBytes > 950_000 && arrivedBytes <= 1_000_005, String(arrivedBytes));
    link.destroy();
  });

  it("whose member goes on for a while and asks to be left works on, without a word of silence", async () => {
    using member = new RawMember((stream) => {
      greet(stream);
      stream.on("data", (chunk: Buffer) => stream.write(chunk));
      // Twice, as a proxy that drains.
      stream.session?.goaway(0);
      setImmediate(() => stream.session?.goaway(0));
    });
    const { link, frames, isClosed, next } = open(await member.listen(), new GrpcTransport(undefined, 20));
    await next("leaving");
    // Looks at the connection go by meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 150));
    assert.equal(isClosed(), false);
    const answered = next("frame");
    link.send(Buffer.alloc(300_000, "x"));
    await answered;
    assert.equal(frames.at(-1)?.length, 300_000);
    link.destroy();
  });

  it("that was given up frees its socket, though the member reads nothing, or never accepted", async () => {
    const sockets: Socket[] = [];
    const note = (message: unknown): number => sockets.push((message as { socket: Socket }).socket);
    const server = createTcpServer((socket) => socket.on("error", () => undefined).pause());
    const address = await listen(server);
    diagnosticsChannel("net.client.socket").subscribe(note);
    const transport = new GrpcTransport(undefined);
    const reading = open(address, transport);
    await once(server, "connection");
    reading.link.send(Buffer.alloc(10_000_000));
    // Nobody is there to answer: a network that is for documentation.
    const dialling = open("192.0.2.1:7400", transport);
    diagnosticsChannel("net.client.socket").unsubscribe(note);
    assert.equal(sockets.length, 2);
    const closed = sockets.map((socket) => new Promise((resolve) => socket.once("close", resolve)));
    reading.link.destroy();
    dialling.link.destroy();
    await Promise.all(closed);
    server.close();
  });
});
