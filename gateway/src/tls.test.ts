import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { describe, it } from "node:test";
import { connect } from "node:tls";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import { credentials, status } from "@grpc/grpc-js";
import { coordination as proto } from "@lockstep/proto";
import type { GrpcMethod } from "./grpc/call.ts";
import type { Authorize } from "./grpc/guard.ts";
import type { GrpcServerOptions, RunningGrpcServer } from "./grpc/server.ts";
import { startGrpcServer } from "./grpc/server.ts";
import { startHttpDoor } from "./http/server.ts";
import type { RunningHttpDoor } from "./http/server.ts";
import type { TlsOptions } from "./listen.ts";
import { isLoopback } from "./listen.ts";
import { createNativeDoor } from "./native/door.ts";
import { TestAuthority } from "./testing/certificates.ts";
import { MemoryCoordinator } from "./testing/memory-coordinator.ts";
import { EMPTY_FRAME, RawClient, Reader, putOf, request as requestOf } from "./testing/native-client.ts";

const CELL = "cell-1";
const old = new TestAuthority("old authority");
const fresh = new TestAuthority("new authority");
const both = old.cert + fresh.cert;

function uri(kind: string, name: string, cell: string = CELL): { uris: string[] } {
  return { uris: [`lockstep://${cell}/${kind}/${name}`] };
}

const server = old.issue(uri("member", "m1"));
const client = old.issue(uri("client", "app"));
const stranger = old.issue(uri("client", "app", "cell-2"));
const renewedServer = fresh.issue(uri("member", "m1"));
const renewedClient = fresh.issue(uri("client", "app"));

type Credentials = Partial<TlsOptions> & { readonly ca: string };

class Http implements AsyncDisposable {
  readonly door: RunningHttpDoor;
  readonly lines: string[];

  private constructor(door: RunningHttpDoor, lines: string[]) {
    this.door = door;
    this.lines = lines;
  }

  static async start(): Promise<Http> {
    const lines: string[] = [];
    const door = await startHttpDoor({
      coordinator: new MemoryCoordinator(),
      host: "127.0.0.1",
      port: 0,
      tls: { ...server, ca: old.cert },
      cellUid: CELL,
      log: (_level, message, fields) => lines.push(`${message} ${JSON.stringify(fields)}`),
    });
    return new Http(door, lines);
  }

  /** On a connection of its own. */
  async get(using: Credentials, path = "/v1/info", method = "GET", body = ""): Promise<IncomingMessage> {
    const { port } = this.door.address;
    const headers = { accept: "application/x-ndjson" };
    const sent = request({ host: "127.0.0.1", port, path, method, headers, agent: false, ...using });
    sent.end(body);
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    return response;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.door.close(100);
  }
}

class Grpc implements AsyncDisposable {
  readonly listener: RunningGrpcServer;
  readonly callers: string[] = [];
  readonly #close: () => void;

  private constructor(listener: RunningGrpcServer, callers: string[], close: () => void) {
    this.listener = listener;
    this.callers = callers;
    this.#close = close;
  }

  static async start(options: Partial<GrpcServerOptions> = {}): Promise<Grpc> {
    const door = createNativeDoor({ coordinator: new MemoryCoordinator() });
    const callers: string[] = [];
    const info = door.methods.get("Info");
    assert.ok(info?.kind === "unary");
    const recording: GrpcMethod = {
      kind: "unary",
      serve: (call, request) => {
        callers.push(call.identity?.name ?? "?");
        info.serve(call, request);
      },
    };
    const listener = await startGrpcServer({
      host: "127.0.0.1",
      port: 0,
      tls: { ...server, ca: old.cert },
      cellUid: CELL,
      services: [{ name: door.name, methods: new Map([...door.methods, ["Info", recording]]) }],
      ...options,
    });
    return new Grpc(listener, callers, () => door.close());
  }

  client(using: Credentials): RawClient {
    const { ca, key, cert } = using;
    const buffer = (pem: string | Buffer | undefined): Buffer | null => (pem ? Buffer.from(pem) : null);
    return new RawClient(
      `127.0.0.1:${this.listener.address.port}`,
      credentials.createSsl(Buffer.from(ca), buffer(key), buffer(cert)),
      { "grpc.use_local_subchannel_pool": 1 },
    );
  }

  /** On a connection of its own. */
  async info(using: Credentials): Promise<number> {
    const raw = this.client(using);
    try {
      const answer = await raw.unary(proto.CoordinationService.info.path, Buffer.alloc(0));
      return proto.InfoResponse.decode(answer).memberId;
    } finally {
      raw.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#close();
    await this.listener.close(100);
  }
}

const limits = { timeout: 20_000 };

describe("doors with TLS", limits, () => {
  it("HTTP: serves an identity of this cell; others of the authority learn why not; strangers get no answer", async () => {
    await using http = await Http.start();
    const good = await http.get({ ca: old.cert, ...client });
    assert.equal(good.statusCode, 200);
    good.resume();
    const bad = await http.get({ ca: old.cert, ...stranger }, "/v1/kv/a");
    assert.equal(bad.statusCode, 403);
    const body = JSON.parse(Buffer.concat(await bad.toArray()).toString()) as {
      code: string;
      detail: string;
    };
    assert.equal(body.code, "permission-denied");
    assert.match(body.detail, /belongs to cell cell-2, and this is cell cell-1/);
    assert.equal(http.lines.filter((line) => line.includes("belongs to cell cell-2")).length, 1);
    await assert.rejects(http.get({ ca: old.cert }));
    await assert.rejects(http.get({ ca: old.cert, ...fresh.issue(uri("client", "app")) }));
  });

  it("gRPC: serves an identity of this cell; others of the authority learn why not; strangers get no answer", async () => {
    await using grpc = await Grpc.start();
    assert.equal(await grpc.info({ ca: old.cert, ...client }), 1);
    assert.deepEqual(grpc.callers, ["app"]);
    const denied = { code: status.PERMISSION_DENIED, details: /belongs to cell cell-2/ };
    await assert.rejects(grpc.info({ ca: old.cert, ...stranger }), denied);
    const raw = grpc.client({ ca: old.cert, ...stranger });
    const error = await new Reader(raw.channel()).ended;
    assert.equal(error?.code, status.PERMISSION_DENIED);
    assert.deepEqual(error.metadata.get("lockstep-code"), ["permission-denied"]);
    raw.close();
    await assert.rejects(grpc.info({ ca: old.cert }), { code: status.UNAVAILABLE });
    await assert.rejects(grpc.info({ ca: old.cert, ...renewedClient }), { code: status.UNAVAILABLE });
    assert.deepEqual(grpc.callers, ["app"]);
  });

  it("gRPC: who may call what is asked with identity, method and request", async () => {
    const asked: string[] = [];
    const authorize: Authorize = ({ path, identity, request: body }) => {
      asked.push(`${path} ${identity.kind}/${identity.name} ${String(body?.length)}`);
      return identity.name === "app" ? "not you" : undefined;
    };
    await using grpc = await Grpc.start({ authorize });
    const refused = { code: status.PERMISSION_DENIED, details: "not you" };
    await assert.rejects(grpc.info({ ca: old.cert, ...client }), refused);
    assert.equal(await grpc.info({ ca: old.cert, ...old.issue(uri("admin", "root")) }), 1);
    const path = proto.CoordinationService.info.path;
    assert.deepEqual(asked, [`${path} client/app 0`, `${path} admin/root 0`]);
  });

  it("gRPC: renewed certificates hold for connections to come, and an open stream goes on", async () => {
    await using grpc = await Grpc.start();
    const raw = grpc.client({ ca: both, ...client });
    const channel = raw.channel();
    const reader = new Reader(channel);
    await reader.until((frames) => frames[0]);
    grpc.listener.updateTls({ ...renewedServer, ca: both });
    // The old server certificate is gone: who trusts only its authority does not connect any more.
    await assert.rejects(grpc.info({ ca: old.cert, ...client }), { code: status.UNAVAILABLE });
    assert.equal(await grpc.info({ ca: fresh.cert, ...client }), 1);
    grpc.listener.updateTls({ ...renewedServer, ca: fresh.cert });
    await assert.rejects(grpc.info({ ca: fresh.cert, ...client }), { code: status.UNAVAILABLE });
    assert.equal(await grpc.info({ ca: fresh.cert, ...renewedClient }), 1);
    assert.throws(() => grpc.listener.updateTls({ ...renewedServer, key: client.key, ca: both }));
    assert.equal(await grpc.info({ ca: fresh.cert, ...renewedClient }), 1);
    // The stream that was open all the time still works.
    channel.write({ ...EMPTY_FRAME, requests: [requestOf(7, putOf("a", "1"))] });
    assert.equal((await reader.response(7)).failure, undefined);
    channel.end();
    assert.equal(await reader.ended, undefined);
    raw.close();
  });

  it("HTTP: renewed certificates hold for connections to come, and an open watch goes on", async () => {
    await using http = await Http.start();
    const watch = await http.get({ ca: both, ...client }, "/v1/watch?key=/a");
    const lines = watch.setEncoding("utf8")[Symbol.asyncIterator]() as AsyncIterator<string>;
    assert.match((await lines.next()).value as string, /created/);
    http.door.updateTls({ ...renewedServer, ca: fresh.cert });
    await assert.rejects(http.get({ ca: both, ...client }));
    assert.throws(() => http.door.updateTls({ ...renewedServer, key: client.key, ca: both }));
    const put = await http.get({ ca: fresh.cert, ...renewedClient }, "/v1/kv/a", "PUT", "x");
    assert.equal(put.statusCode, 201);
    put.resume();
    assert.match((await lines.next()).value as string, /"events"/);
    watch.destroy();
  });
});

describe("sessions are not resumed", limits, () => {
  /** Connects, offering `session`; gives the ticket it got, if any, and whether the session was resumed. */
  async function visit(
    port: number,
    options: ConnectionOptions,
  ): Promise<{ readonly session: Buffer | undefined; readonly resumed: boolean }> {
    const socket: TLSSocket = connect({ host: "127.0.0.1", port, ca: both, ...options });
    let session: Buffer | undefined;
    socket.on("session", (ticket) => (session = ticket));
    const answered = new Promise<void>((resolve, reject) => {
      socket.once("data", () => resolve());
      socket.once("error", reject);
      // A certificate that is refused ends the connection after the client's half of the handshake.
      socket.once("close", () => reject(new Error("closed without an answer")));
    });
    socket.once("secureConnect", () => {
      const h2 = socket.alpnProtocol === "h2";
      socket.write(h2 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    });
    try {
      // Tickets come before the first answer.
      await answered;
      return { session, resumed: socket.isSessionReused() };
    } finally {
      socket.destroy();
    }
  }

  it("so an identity whose authority was dropped does not come back with an old ticket", async () => {
    await using grpc = await Grpc.start({ tls: { ...server, ca: both } });
    await using http = await Http.start();
    for (const [door, port, more] of [
      [grpc.listener, grpc.listener.address.port, { ALPNProtocols: ["h2"] }],
      [http.door, http.door.address.port, {}],
    ] as const) {
      const first = await visit(port, { ...client, ...more });
      const offer = first.session === undefined ? {} : { session: first.session };
      const second = await visit(port, { ...client, ...more, ...offer });
      assert.equal(second.resumed, false);
      door.updateTls({ ...renewedServer, ca: fresh.cert });
      await assert.rejects(visit(port, { ...client, ...more, ...offer }));
      await visit(port, { ...renewedClient, ...more, ...offer });
    }
  });

  it("and nothing older than TLS 1.3 is spoken, before a renewal and after it", async () => {
    await using http = await Http.start();
    const { port } = http.door.address;
    await assert.rejects(visit(port, { ...client, maxVersion: "TLSv1.2" }));
    http.door.updateTls({ ...server, ca: old.cert });
    await assert.rejects(visit(port, { ...client, maxVersion: "TLSv1.2" }));
    await visit(port, client);
  });
});

it("only literal loopback addresses and localhost may be bound without TLS", () => {
  for (const host of ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
    assert.equal(isLoopback(host), true, host);
  for (const host of ["0.0.0.0", "::", "10.0.0.1", "127.example.com", "localhost.example.com", ""]) {
    assert.equal(isLoopback(host), false, host);
  }
});
