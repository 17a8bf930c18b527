import assert from "node:assert/strict";
import { once } from "node:events";
import { constants } from "node:http2";
import { afterEach, beforeEach, describe, it } from "node:test";
import { EchoService, RawConnection, answerOf, frameOf } from "../testing/raw-grpc.ts";
import { GrpcCode } from "./call.ts";
import type { StreamCall } from "./call.ts";
import { CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, UNREAD_ANSWER_BYTES_MAX } from "./limits.ts";
import type { RunningGrpcServer } from "./server.ts";
import { startGrpcServer } from "./server.ts";

const KIB = 1024;
const UNARY = "/test.Echo/Unary";
const BIG = "/test.Echo/Big";
const CHAT = "/test.Echo/Chat";

describe("flow control of the gRPC server", { timeout: 20_000 }, () => {
  let service: EchoService;
  let server: RunningGrpcServer;

  beforeEach(async () => {
    service = new EchoService();
    server = await startGrpcServer({
      ...{ host: "127.0.0.1", port: 0, services: [service] },
      timing: { failLingerMs: 50, resetDelayMs: 50 },
    });
  });
  afterEach(() => server.close(0));

  /** A connection whose streams take 16 KiB and then wait for their reader. */
  function slow(): Promise<RawConnection> {
    return RawConnection.open(server.address.port, { initialWindowSize: 16 * KIB });
  }

  async function chatOn(connection: RawConnection): Promise<{
    readonly stream: ReturnType<RawConnection["start"]>;
    readonly call: StreamCall;
  }> {
    const stream = connection.start(CHAT);
    const count = service.chats.length;
    await service.until(() => service.chats.length > count);
    return { stream, call: service.chats[count] as StreamCall };
  }

  it("holds a writer back whose client does not read, tells it when there is room, and loses nothing", async () => {
    await using connection = await slow();
    const { stream, call } = await chatOn(connection);
    let written = 0;
    let sent = 0;
    const message = Buffer.alloc(10 * KIB, "x");
    const writeMore = (): void => {
      let hasRoom = true;
      while (hasRoom && written < 200) {
        hasRoom = call.write(message, () => (sent += 1));
        written += 1;
      }
    };
    call.onDrain(writeMore);
    writeMore();
    // Others of the connection are not held back.
    const other = await connection.call(UNARY, [frameOf("other")]);
    assert.equal(other.trailers["grpc-status"], "0");
    assert.ok(written < 30, `${written} written`);
    assert.ok(call.bufferedBytes > 0 && call.bufferedBytes < 300 * KIB, String(call.bufferedBytes));
    const answer = answerOf(stream);
    while (written < 200) await once(stream, "data");
    stream.end();
    assert.equal((await answer).body.length, 200 * (10 * KIB + 5));
    assert.equal(sent, 200);
    assert.equal(call.bufferedBytes, 0);
  });

  it("bounds the big answers that a client leaves unread, and not its small ones", async () => {
    await using connection = await slow();
    const unread = Array.from({ length: 4 }, () => {
      const stream = connection.start(BIG);
      stream.end(frameOf(String(UNREAD_ANSWER_BYTES_MAX / 4)));
      return stream;
    });
    const refused = await connection.call(BIG, [frameOf(String(20 * KIB))]);
    assert.equal(refused.trailers["grpc-status"], String(GrpcCode.RESOURCE_EXHAUSTED));
    assert.equal((await connection.call(UNARY, [frameOf("small")])).trailers["grpc-status"], "0");
    await using other = await RawConnection.open(server.address.port);
    assert.equal((await other.call(BIG, [frameOf("100000")])).body.length, 100_005);
    // What was unread and is given up makes room again.
    unread[0]?.close(constants.NGHTTP2_CANCEL);
    const again = async (): Promise<string> => {
      const answer = await connection.call(BIG, [frameOf(String(20 * KIB))]);
      return String(answer.trailers["grpc-status"]);
    };
    while ((await again()) !== "0") assert.equal(connection.session.destroyed, false);
  });

  it("holds a client back whose messages are not read, keeps back what came already, and loses nothing", async () => {
    await using connection = await RawConnection.open(server.address.port);
    const { stream, call } = await chatOn(connection);
    const answer = answerOf(stream);
    let taken = 0;
    call.onMessage((message) => {
      taken += 1;
      assert.equal(message.length, KIB);
      // In the middle of whatever came in one piece.
      if (taken === 3) call.pause();
    });
    const messages = 2_000;
    let flushed = 0;
    for (let i = 0; i < messages; i += 1) stream.write(frameOf(Buffer.alloc(KIB)), () => (flushed += 1));
    stream.end();
    for (let before = -1; before !== flushed;) {
      before = flushed;
      await connection.call(UNARY, [frameOf("turn")]);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal(taken, 3);
    const bound = (STREAM_WINDOW_BYTES + 256 * KIB) / KIB;
    assert.ok(flushed < bound, `${flushed} of at most ${bound} KiB left the client`);
    assert.ok(!service.heard.includes("half-close"));
    call.resume();
    assert.equal((await answer).trailers["grpc-status"], "0");
    assert.deepEqual([taken, service.heard.includes("half-close")], [messages, true]);
  });

  it("does not let calls that are not read stop the others of their connection", async () => {
    await using connection = await RawConnection.open(server.address.port);
    const paused = CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES + 10;
    for (let i = 0; i < paused; i += 1) {
      const { stream, call } = await chatOn(connection);
      call.onMessage(() => call.pause());
      stream.write(frameOf(Buffer.alloc(STREAM_WINDOW_BYTES)));
      stream.write(frameOf(Buffer.alloc(STREAM_WINDOW_BYTES)));
    }
    const message = frameOf(Buffer.alloc(100 * KIB));
    assert.deepEqual((await connection.call(UNARY, [message])).body, message);
  });

  it("closes a paused call that its client resets, whatever the code", async () => {
    await using connection = await RawConnection.open(server.address.port);
    for (const code of [
      constants.NGHTTP2_CANCEL,
      constants.NGHTTP2_NO_ERROR,
      constants.NGHTTP2_PROTOCOL_ERROR,
    ]) {
      const { stream, call } = await chatOn(connection);
      call.onMessage(() => call.pause());
      for (let i = 0; i < 50; i += 1) stream.write(frameOf(Buffer.alloc(KIB)));
      const over = new Promise<void>((resolve) => call.onClose(resolve));
      await connection.call(UNARY, [frameOf("turn")]);
      stream.close(code);
      await over;
      assert.equal(call.cancelled, true);
    }
  });

  it("closes a paused call that is ended or failed by who serves it", async () => {
    await using connection = await RawConnection.open(server.address.port);
    for (const end of ["end", "fail"] as const) {
      const { stream, call } = await chatOn(connection);
      call.onMessage(() => call.pause());
      for (let i = 0; i < 50; i += 1) stream.write(frameOf(Buffer.alloc(KIB)));
      await connection.call(UNARY, [frameOf("turn")]);
      const answer = answerOf(stream);
      if (end === "end") call.end();
      else call.fail({ code: GrpcCode.ABORTED, details: "" });
      assert.equal((await answer).trailers["grpc-status"], end === "end" ? "0" : "10");
    }
  });

  it("resets a failed call whose client does not take what was written before", async () => {
    await using connection = await slow();
    const { stream, call } = await chatOn(connection);
    for (let i = 0; i < 10; i += 1) call.write(Buffer.alloc(10 * KIB));
    const over = new Promise<void>((resolve) => call.onClose(resolve));
    const closed = once(stream, "close");
    call.fail({ code: GrpcCode.ABORTED, details: "" });
    await Promise.all([over, closed]);
    assert.equal(stream.rstCode, constants.NGHTTP2_CANCEL);
  });
});
