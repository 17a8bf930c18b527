import assert from "node:assert/strict";
import { once } from "node:events";
import { constants } from "node:http2";
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { after, before, describe, it } from "node:test";
import { EchoService, RawConnection, answerOf, frameOf } from "../testing/raw-grpc.ts";
import type { RawAnswer } from "../testing/raw-grpc.ts";
import { GrpcCode } from "./call.ts";
import { UNFINISHED_BYTES_MAX } from "./limits.ts";
import type { RunningGrpcServer } from "./server.ts";
import { startGrpcServer } from "./server.ts";

const MIB = 1024 * 1024;
const UNARY = "/test.Echo/Unary";
const CHAT = "/test.Echo/Chat";

function codeOf(answer: RawAnswer): number {
  return Number(answer.trailers["grpc-status"] ?? -1);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function prefix(flag: number, length: number): Buffer {
  const bytes = Buffer.from([flag, 0, 0, 0, 0]);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

describe("the gRPC server, to a client that does it wrong", { timeout: 20_000 }, () => {
  let service: EchoService;
  let server: RunningGrpcServer;

  before(async () => {
    service = new EchoService();
    server = await startGrpcServer({
      ...{ host: "127.0.0.1", port: 0, services: [service], receiveBytesMax: 8 * MIB },
      timing: { resetDelayMs: 50 },
    });
  });
  after(() => server.close(0));

  async function call(
    body: readonly Buffer[],
    over: OutgoingHttpHeaders = {},
    path = UNARY,
  ): Promise<RawAnswer> {
    await using connection = await RawConnection.open(server.address.port);
    const answer = await connection.call(path, body, over);
    // Whatever it was, the connection and its next call are well.
    const next = await connection.call(UNARY, [frameOf("well")]);
    assert.deepEqual([codeOf(next), next.body], [GrpcCode.OK, frameOf("well")]);
    return answer;
  }

  it("still answers what is right, with the headers of gRPC and nothing more", async () => {
    const { headers, trailers, body, resetCode } = await call([frameOf("hello")]);
    assert.deepEqual(Object.entries(headers), [
      [":status", 200],
      ["content-type", "application/grpc"],
    ]);
    assert.deepEqual(Object.entries(trailers), [["grpc-status", "0"]]);
    assert.deepEqual([body, resetCode], [frameOf("hello"), constants.NGHTTP2_NO_ERROR]);
  });

  it("takes a request in pieces, however it is cut", async () => {
    const frame = frameOf("pieces");
    for (const cut of [1, 4, 5, 6, 10]) {
      const answer = await call([frame.subarray(0, cut), frame.subarray(cut)]);
      assert.deepEqual([codeOf(answer), answer.body], [GrpcCode.OK, frame]);
    }
    const answer = await call([...frame].map((byte) => Buffer.from([byte])));
    assert.deepEqual(answer.body, frame);
  });

  it("refuses what is not gRPC as HTTP does", async () => {
    for (const type of ["application/json", "application/grpcx", "application/grpc-web", ""]) {
      const { headers } = await call([frameOf("")], { "content-type": type });
      assert.equal(headers[":status"], 415, type);
    }
    for (const type of ["application/grpc+proto", "application/grpc;charset=utf-8"]) {
      assert.equal(codeOf(await call([frameOf("")], { "content-type": type })), GrpcCode.OK, type);
    }
    for (const method of ["GET", "PUT", "HEAD"]) {
      assert.equal((await call([], { ":method": method })).headers[":status"], 405, method);
    }
  });

  it("answers UNIMPLEMENTED to methods there are not, without an answer's headers", async () => {
    for (const path of ["/test.Echo/None", "/none.Such/Unary", "/", "/test.Echo", "/test.Echo/Unary/"]) {
      const answer = await call([frameOf("")], {}, path);
      assert.equal(answer.headers[":status"], 200);
      assert.deepEqual([codeOf(answer), answer.headers["grpc-status"]], [GrpcCode.UNIMPLEMENTED, "12"], path);
    }
  });

  it("refuses none, half a request, more than one, and what is behind the last", async () => {
    const { INTERNAL, UNIMPLEMENTED } = GrpcCode;
    const frame = frameOf("one");
    for (const [body, code] of [
      [[], UNIMPLEMENTED],
      [[Buffer.from([0, 0])], INTERNAL],
      [[frame.subarray(0, 7)], INTERNAL],
      [[frame, frame], UNIMPLEMENTED],
      [[Buffer.concat([frame, frame])], UNIMPLEMENTED],
      [[frame, Buffer.from([0])], INTERNAL],
    ] as const) {
      const before = service.heard.length;
      assert.equal(codeOf(await call(body)), code);
      assert.deepEqual(
        service.heard.slice(before).filter((what) => what === "unary one"),
        [],
      );
    }
    const chat = await call([frame, frame.subarray(0, 6)], {}, CHAT);
    assert.deepEqual([codeOf(chat), chat.body], [INTERNAL, frame]);
  });

  it("refuses compression it was not told of, or does not know", async () => {
    const packed = Buffer.concat([prefix(1, 2), Buffer.from("xx")]);
    assert.equal(codeOf(await call([packed])), GrpcCode.INTERNAL);
    assert.equal(codeOf(await call([packed], { "grpc-encoding": "identity" })), GrpcCode.INTERNAL);
    assert.equal(codeOf(await call([packed], { "grpc-encoding": "gzip" })), GrpcCode.INTERNAL);
    const unknown = await call([packed], { "grpc-encoding": "snappy" });
    assert.equal(codeOf(unknown), GrpcCode.UNIMPLEMENTED);
    assert.equal(unknown.headers["grpc-accept-encoding"], "identity,gzip");
    assert.equal(codeOf(await call([prefix(7, 0)])), GrpcCode.INTERNAL);
  });

  it("refuses a message above the bound at its prefix, and tells the client to stop", async () => {
    await using connection = await RawConnection.open(server.address.port);
    for (const path of [UNARY, CHAT]) {
      const stream = connection.start(path);
      const answer = answerOf(stream);
      stream.write(prefix(0, 8 * MIB + 1));
      const { trailers, resetCode } = await answer;
      assert.deepEqual([trailers["grpc-status"], resetCode], ["8", constants.NGHTTP2_NO_ERROR]);
    }
  });

  it("bounds the unfinished messages of a connection", async () => {
    await using connection = await RawConnection.open(server.address.port);
    const count = UNFINISHED_BYTES_MAX / (8 * MIB) + 1;
    const answers = Array.from({ length: count }, () => {
      const stream = connection.start(UNARY);
      stream.write(prefix(0, 8 * MIB));
      stream.write(Buffer.alloc(8 * MIB - 1));
      return once(stream, "response") as Promise<[IncomingHttpHeaders]>;
    });
    const [headers] = await Promise.race(answers);
    assert.equal(headers["grpc-status"], String(GrpcCode.RESOURCE_EXHAUSTED));
    assert.equal(codeOf(await connection.call(UNARY, [frameOf("small")])), GrpcCode.OK);
  });

  it("refuses a grpc-timeout that is none, and ends at once what has no time left", async () => {
    for (const timeout of ["", "soon", "123456789m", "-1S", "1.5S"]) {
      assert.equal(
        codeOf(await call([frameOf("")], { "grpc-timeout": timeout })),
        GrpcCode.INTERNAL,
        timeout,
      );
    }
    assert.equal(codeOf(await call([frameOf("")], { "grpc-timeout": "99999999H" })), GrpcCode.OK);
    const held = await call([frameOf("")], { "grpc-timeout": "1n" }, "/test.Echo/Hold");
    assert.equal(codeOf(held), GrpcCode.DEADLINE_EXCEEDED);
  });

  it("resets calls with too many or too long headers, and serves the next", async () => {
    const many = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`x-${i}`, "v"]));
    for (const over of [many, { "x-long": "v".repeat(60_000) }]) {
      const { resetCode } = await call([], over);
      assert.notEqual(resetCode, constants.NGHTTP2_NO_ERROR);
    }
  });

  it("survives resets at every moment", async () => {
    await using connection = await RawConnection.open(server.address.port);
    const reset = async (path: string, code: number): Promise<void> => {
      for (const body of [[], [Buffer.from([0])], [frameOf("x")]]) {
        for (const turns of [0, 1, 2, 4]) {
          const stream = connection.start(path);
          for (const piece of body) stream.write(piece);
          for (let i = 0; i < turns; i += 1) await nextTurn();
          stream.close(code);
        }
      }
    };
    const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR, NGHTTP2_INTERNAL_ERROR } = constants;
    for (const code of [NGHTTP2_CANCEL, NGHTTP2_NO_ERROR, NGHTTP2_INTERNAL_ERROR]) {
      for (const path of [UNARY, CHAT, "/test.Echo/Hold", "/none"]) await reset(path, code);
    }
    assert.equal(codeOf(await connection.call(UNARY, [frameOf("still here")])), GrpcCode.OK);
  });

  it("closes a connection that floods it with resets, and serves others", async () => {
    await using connection = await RawConnection.open(server.address.port);
    const { session } = connection;
    const isOpen = (): boolean => !session.destroyed && !session.closed;
    for (let sent = 0; isOpen(); sent += 500) {
      assert.ok(sent < 200_000, "nobody minds");
      const streams = Array.from({ length: 500 }, () => connection.start("/test.Echo/Hold"));
      await nextTurn();
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      await nextTurn();
    }
    assert.equal(codeOf(await call([frameOf("other")])), GrpcCode.OK);
  });
});

describe("the gRPC server, to a client that does not speak HTTP/2", { timeout: 20_000 }, () => {
  let server: RunningGrpcServer;

  before(async () => {
    server = await startGrpcServer({
      ...{ host: "127.0.0.1", port: 0, services: [new EchoService()] },
      timing: { keepaliveCheckMs: 50 },
    });
  });
  after(() => server.close(0));

  function dial(bytes: string | Buffer): Socket {
    const socket = connect(server.address.port, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.resume();
    socket.write(bytes);
    return socket;
  }

  const PREFACE = Buffer.concat([
    Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    // An empty SETTINGS frame.
    Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
  ]);

  it("hangs up on anything else", async () => {
    for (const bytes of ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", Buffer.alloc(100, 0xff)]) {
      await once(dial(bytes), "close");
    }
    // A frame of 16 MB, and HEADERS that no table explains.
    for (const frame of [
      [255, 255, 255, 0, 0, 0, 0, 0, 1],
      [0, 0, 1, 1, 4, 0, 0, 0, 1, 0xff],
    ]) {
      await once(dial(Buffer.concat([PREFACE, Buffer.from(frame)])), "close");
    }
  });

  it("notices one that gives no sign of life", async () => {
    const started = performance.now();
    await once(dial(PREFACE), "close");
    assert.ok(performance.now() - started >= 100);
    await using connection = await RawConnection.open(server.address.port);
    // This one answers.
    for (let pings = 0; pings < 3; pings += 1) await once(connection.session, "ping");
    assert.equal(codeOf(await connection.call(UNARY, [frameOf("alive")])), GrpcCode.OK);
  });
});
