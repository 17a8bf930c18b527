import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, describe, it } from "node:test";
import type { ServiceError } from "@grpc/grpc-js";
import { Client, Metadata, compressionAlgorithms, credentials, status } from "@grpc/grpc-js";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { EchoService } from "../testing/raw-grpc.ts";
import { GrpcCode } from "./call.ts";
import type { GrpcMethod, UnaryCall } from "./call.ts";
import type { GrpcServerOptions, RunningGrpcServer } from "./server.ts";
import { startGrpcServer } from "./server.ts";

const asIs = (bytes: Buffer): Buffer => bytes;
const ECHO = "/test.Echo/";

interface UnaryOptions {
  readonly metadata?: Metadata;
  readonly deadlineMs?: number;
}

describe("the gRPC server, to a client of grpc-js", { timeout: 20_000 }, () => {
  let service: EchoService;
  let server: RunningGrpcServer;
  let client: Client;

  async function open(over: Partial<GrpcServerOptions> = {}, clientOptions: object = {}): Promise<void> {
    service = new EchoService();
    server = await startGrpcServer({ host: "127.0.0.1", port: 0, services: [service], ...over });
    client = new Client(`127.0.0.1:${server.address.port}`, credentials.createInsecure(), {
      "grpc.use_local_subchannel_pool": 1,
      "grpc.max_receive_message_length": -1,
      ...clientOptions,
    });
  }

  async function shut(): Promise<void> {
    client.close();
    await server.close(100);
  }

  beforeEach(() => open());
  afterEach(() => shut());

  function unary(method: string, message: string | Buffer, options: UnaryOptions = {}): Promise<Buffer> {
    const { metadata = new Metadata(), deadlineMs } = options;
    const callOptions = deadlineMs === undefined ? {} : { deadline: Date.now() + deadlineMs };
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        method.startsWith("/") ? method : ECHO + method,
        asIs,
        asIs,
        Buffer.from(message),
        metadata,
        callOptions,
        (error: ServiceError | null, answer?: Buffer) => {
          if (error === null) resolve(answer ?? Buffer.alloc(0));
          else reject(error);
        },
      );
    });
  }

  function chat(): ClientDuplexStream<Buffer, Buffer> {
    const stream = client.makeBidiStreamRequest(`${ECHO}Chat`, asIs, asIs);
    stream.on("error", () => undefined);
    return stream;
  }

  it("answers unary calls, of any size, empty ones too", async () => {
    for (const bytes of [0, 1, 1_000, 16_379, 16_384, 100_000, 1_000_000]) {
      const message = Buffer.alloc(bytes, "x");
      assert.deepEqual(await unary("Unary", message), message);
    }
    const big = await unary("Big", "5000001");
    assert.equal(big.length, 5_000_001);
    assert.equal(big.subarray(2_499_999, 2_500_001).toString(), "ab");
  });

  it("answers many calls of one connection at once", async () => {
    const answers = await Promise.all(Array.from({ length: 500 }, (_, i) => unary("Unary", `m${i}`)));
    assert.deepEqual(
      answers.map(String),
      Array.from({ length: 500 }, (_, i) => `m${i}`),
    );
  });

  it("refuses with code, text of any kind, and metadata", async () => {
    const details = "no key “/ä%”\nfor you";
    await assert.rejects(unary("Refuse", details), (error: ServiceError) => {
      assert.deepEqual([error.code, error.details], [status.ABORTED, details]);
      assert.deepEqual(error.metadata.get("lockstep-code"), ["overloaded"]);
      return true;
    });
  });

  it("tells an unknown method from an unknown service", async () => {
    const unimplemented = status.UNIMPLEMENTED;
    await assert.rejects(unary("Nothing", ""), {
      code: unimplemented,
      details: /unknown method Nothing for/,
    });
    await assert.rejects(unary("/no.Such/Method", ""), {
      code: unimplemented,
      details: "unknown service no.Such",
    });
  });

  it("shows a method the metadata, authority and deadline of its call", async () => {
    await shut();
    let seen: unknown[] = [];
    const serve = (call: UnaryCall): void => {
      const left = call.deadlineMs();
      assert.ok(left === undefined || (left > 0 && left <= 60_000));
      seen = [
        call.path,
        call.header("x-name"),
        call.header("x-none"),
        call.header("x-bin-bin"),
        left !== undefined,
      ];
      seen.push(call.authority, call.identity);
      call.respond(Buffer.alloc(0));
    };
    const methods = new Map<string, GrpcMethod>([["Look", { kind: "unary", serve }]]);
    await open({ services: [{ name: "test.Look", methods }] });
    const metadata = new Metadata();
    metadata.add("X-Name", "a");
    metadata.add("X-Name", "b");
    metadata.set("x-bin-bin", Buffer.from([1, 2, 255]));
    const authority = `127.0.0.1:${server.address.port}`;
    await unary("/test.Look/Look", "", { metadata, deadlineMs: 60_000 });
    assert.deepEqual(seen, ["/test.Look/Look", "a, b", undefined, "AQL/", true, authority, undefined]);
    await unary("/test.Look/Look", "");
    assert.equal(seen[4], false);
  });

  it("refuses a message above the bound, and takes one at the bound", async () => {
    await shut();
    await open({ receiveBytesMax: 10_000 });
    assert.equal((await unary("Unary", Buffer.alloc(10_000))).length, 10_000);
    for (const bytes of [10_001, 1_000_000]) {
      await assert.rejects(unary("Unary", Buffer.alloc(bytes)), { code: status.RESOURCE_EXHAUSTED });
    }
    const stream = chat();
    stream.resume();
    stream.write(Buffer.alloc(20_000));
    const [error] = (await once(stream, "error")) as [ServiceError];
    assert.equal(error.code, status.RESOURCE_EXHAUSTED);
  });

  it("reads compressed requests", async () => {
    await shut();
    await open({}, { "grpc.default_compression_algorithm": compressionAlgorithms.gzip });
    const message = Buffer.alloc(50_000, "pack me");
    assert.deepEqual(await unary("Unary", message), message);
  });

  it("ends calls at their deadline, and whoever serves them learns it", async () => {
    await assert.rejects(unary("Hold", "", { deadlineMs: 50 }), { code: status.DEADLINE_EXCEEDED });
    await service.until(() => service.heard.includes("over"));
    const [call] = service.held;
    assert.equal(call?.cancelled, true);
    // Too late, and no harm.
    call.respond(Buffer.from("late"));
    call.fail({ code: GrpcCode.ABORTED, details: "late" });
    assert.equal(String(await unary("Unary", "next")), "next");
  });

  it("tells who serves a call that its client cancelled it, once", async () => {
    const path = `${ECHO}Hold`;
    const sent = client.makeUnaryRequest(path, asIs, asIs, Buffer.alloc(0), () => undefined);
    await service.until(() => service.held.length === 1);
    sent.cancel();
    await service.until(() => service.heard.includes("over"));
    const [call] = service.held;
    assert.equal(call?.cancelled, true);
    call.respond(Buffer.from("late"));
    await new Promise<void>((resolve) => call.onClose(resolve));
    assert.deepEqual(service.heard, ["held", "over"]);
  });

  it("drops what is written to a stream that is over, and says so", async () => {
    const stream = chat();
    stream.resume();
    await service.until(() => service.chats.length === 1);
    const [call] = service.chats;
    assert.ok(call);
    const over = new Promise<void>((resolve) => call.onClose(resolve));
    stream.cancel();
    await over;
    const sent = new Promise<void>((resolve) =>
      assert.equal(call.write(Buffer.from("late"), resolve), false),
    );
    await sent;
    call.end();
    assert.equal(call.bufferedBytes, 0);
  });

  it("carries messages both ways in order, and ends after the client's end", async () => {
    const stream = chat();
    const came: string[] = [];
    stream.on("data", (message: Buffer) => came.push(String(message)));
    const sent = Array.from({ length: 300 }, (_, i) => `m${i}-${"x".repeat((i * 97) % 1_000)}`);
    for (const message of sent) stream.write(Buffer.from(message));
    stream.end();
    const [end] = (await once(stream, "status")) as [{ code: number }];
    assert.equal(end.code, status.OK);
    assert.deepEqual(came, sent);
    await service.until(() => service.heard.includes("over"));
    assert.deepEqual(service.heard.slice(-2), ["half-close", "over"]);
    assert.equal(service.chats[0]?.cancelled, false);
  });

  it("ends a stream from its side while the client still talks: with OK, or with a status behind what was written", async () => {
    const good = chat();
    good.resume();
    await service.until(() => service.chats.length === 1);
    service.chats[0]?.end();
    const [end] = (await once(good, "status")) as [{ code: number }];
    assert.equal(end.code, status.OK);
    const bad = chat();
    const came: string[] = [];
    bad.on("data", (message: Buffer) => came.push(String(message)));
    await service.until(() => service.chats.length === 2);
    service.chats[1]?.write(Buffer.from("last words"));
    service.chats[1]?.fail({ code: GrpcCode.ABORTED, details: "enough", metadata: { "lockstep-code": "x" } });
    const [error] = (await once(bad, "error")) as [ServiceError];
    assert.deepEqual([error.code, error.details, came], [status.ABORTED, "enough", ["last words"]]);
    assert.deepEqual(error.metadata.get("lockstep-code"), ["x"]);
    await service.until(() => service.heard.filter((what) => what === "over").length === 2);
    assert.ok(service.chats.every((call) => !call.cancelled));
  });

  it("refuses to be two services of one name", async () => {
    const services = [new EchoService(), new EchoService()];
    await assert.rejects(startGrpcServer({ host: "127.0.0.1", port: 0, services }), /two services/);
  });

  it("rejects when its port is taken", async () => {
    const { port } = server.address;
    await assert.rejects(startGrpcServer({ host: "127.0.0.1", port, services: [] }), { code: "EADDRINUSE" });
  });

  it("lets open calls end when it closes, and takes no new ones", async () => {
    const held = unary("Hold", "");
    await service.until(() => service.held.length === 1);
    const closed = server.close(10_000);
    await assert.rejects(unary("Unary", ""), { code: status.UNAVAILABLE });
    service.held[0]?.respond(Buffer.from("done"));
    assert.equal(String(await held), "done");
    client.close();
    await closed;
  });

  it("cuts what does not end in time when it closes", async () => {
    const held = unary("Hold", "");
    const stream = chat();
    stream.resume();
    await service.until(() => service.held.length === 1 && service.chats.length === 1);
    await Promise.all([
      server.close(50),
      assert.rejects(held, { code: status.UNAVAILABLE }),
      once(stream, "error"),
    ]);
    await service.until(() => service.heard.filter((what) => what === "over").length === 2);
    assert.equal(service.held[0]?.cancelled, true);
  });
});
