import { readFileSync } from "node:fs";
import type { IncomingMessage, RequestListener, Server, ServerOptions } from "node:http";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { Server as TlsServer, TLSSocket } from "node:tls";
import { join } from "node:path";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import fastify from "fastify";
import type { Coordinator, Limits } from "../coordinator/index.ts";
import { LIMITS } from "../coordinator/index.ts";
import type { BoundAddress, TlsOptions } from "../listen.ts";
import { assertBindAllowed } from "../listen.ts";
import type { DoorLog } from "../log.ts";
import { NO_LOG } from "../log.ts";
import type { CertificateIdentity } from "../tls/identity.ts";
import { socketIdentity } from "../tls/identity.ts";
import { TLS_HANDSHAKE_MS_MAX, usableContextOptions } from "../tls/secure-context.ts";
import { Seldom } from "../tls/seldom.ts";
import { refusal } from "../validation.ts";
import { Backend } from "./backend.ts";
import { leaderJson } from "./info.ts";
import type { HttpDoorLimits } from "./limits.ts";
import { HTTP_DOOR_LIMITS } from "./limits.ts";
import { PROBLEM_TYPE, ProblemError, failureProblem, httpProblem } from "./problem.ts";
import { addRoutes, allowedMethods } from "./routes.ts";
import { isKeyTarget, splitTarget } from "./target.ts";
import { WatchRoute } from "./watch-route.ts";

export interface HttpDoorOptions {
  readonly coordinator: Coordinator;
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Absent: plain text, which only loopback may be bound with. */
  readonly tls?: TlsOptions;
  /**
   * With TLS: the cell that callers' certificates must name (docs/security.md); `requestIdentity` then tells who calls.
   * Absent: whoever has a certificate of the CA is served.
   */
  readonly cellUid?: string;
  readonly log?: DoorLog;
  /** Default: {@link LIMITS}. */
  readonly limits?: Limits;
  /** Overrides of {@link HTTP_DOOR_LIMITS}. */
  readonly doorLimits?: Partial<HttpDoorLimits>;
}

export interface RunningHttpDoor {
  readonly address: BoundAddress;
  /**
   * Renewed certificates, for connections to come; what is open stays open. Only for a door opened with TLS.
   * @throws Error when key or certificate cannot be used; the old ones go on
   */
  updateTls(tls: TlsOptions): void;
  /** Ends watches, waits for open requests at most `graceMs` (default 2,000), then cuts what is left. */
  close(graceMs?: number): Promise<void>;
}

const CLOSE_GRACE_MS = 2_000;
const CONNECTIONS_CHECK_MS = 2_000;

/** The interface's description, read once. */
function openapiText(): string {
  return readFileSync(join(import.meta.dirname, "../../openapi.yaml"), "utf8");
}

function serverOptions(limits: HttpDoorLimits): ServerOptions {
  return {
    maxHeaderSize: limits.headerBytesMax,
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: Math.min(CONNECTIONS_CHECK_MS, limits.headersTimeoutMs),
    requireHostHeader: true,
  };
}

function createListener(
  tls: TlsOptions | undefined,
  limits: HttpDoorLimits,
  handler: RequestListener,
): Server {
  const options = serverOptions(limits);
  const server =
    tls === undefined
      ? createServer(options, handler)
      : createTlsServer(
          {
            ...options,
            ...usableContextOptions(tls),
            handshakeTimeout: TLS_HANDSHAKE_MS_MAX,
            ...(tls.ca === undefined ? {} : { requestCert: true, rejectUnauthorized: true }),
          },
          handler,
        );
  server.maxConnections = limits.connectionsMax;
  // There is nobody to explain it to: an answer could not be read outside of the session that did not come to be.
  if (tls !== undefined)
    server.prependListener("tlsClientError", (_error, socket: Socket) => socket.destroy());
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => refuseConnection(error, socket));
  return server;
}

const CLIENT_ERRORS: Readonly<Record<string, readonly [string, string]>> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", "the request line and headers are too long"],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", "the request did not arrive in time"],
};

/** A request that never became one: answered on the bare socket. */
function refuseConnection(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const [line, detail] = CLIENT_ERRORS[error.code ?? ""] ?? [
    "400 Bad Request",
    "the request is not valid HTTP",
  ];
  const { problem } = failureProblem(refusal("invalid-argument", detail));
  const body = JSON.stringify({ ...problem, status: Number(line.slice(0, 3)) });
  socket.end(
    `HTTP/1.1 ${line}\r\nConnection: close\r\nContent-Type: ${PROBLEM_TYPE}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

function sendProblem(reply: FastifyReply, { problem, headers }: ProblemError): void {
  void reply.code(problem.status).headers(headers).type(PROBLEM_TYPE).send(JSON.stringify(problem));
}

/** The problem of whatever a handler or the framework threw. */
function problemOf(error: unknown, log: DoorLog): ProblemError {
  if (error instanceof ProblemError) return error;
  const { code, statusCode, message, name } = error as NodeJS.ErrnoException & { statusCode?: number };
  if (name === "InvariantError") {
    // A broken invariant must stop the process, not become one client's 500.
    queueMicrotask(() => {
      throw error;
    });
  }
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return failureProblem(refusal("request-too-large", "the body is larger than this path takes"));
  }
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return failureProblem(refusal("invalid-argument", message));
  }
  log("error", "an HTTP request failed", { error: message });
  return failureProblem({ code: "internal", outcome: "unknown", message: "something went wrong inside" });
}

const identities = new WeakMap<FastifyRequest, CertificateIdentity>();

/** Who makes a request, as the certificate proves; undefined without TLS, or where the door asks for no identity. */
export function requestIdentity(request: FastifyRequest): CertificateIdentity | undefined {
  return identities.get(request);
}

/** Lets nobody through whose certificate does not name this cell. */
function addGuard(app: FastifyInstance, cellUid: string, log: DoorLog): void {
  const seldom = new Seldom();
  app.addHook("onRequest", (request, _reply, done) => {
    const { socket } = request.raw;
    const verdict =
      socket instanceof TLSSocket
        ? socketIdentity(socket, cellUid)
        : { ok: false as const, reason: "there is none" };
    if (verdict.ok) {
      identities.set(request, verdict.identity);
      done();
      return;
    }
    seldom.say((unsaid) => log("warn", "refused an HTTP request", { reason: verdict.reason, unsaid }));
    const message = `the caller's certificate is not taken: ${verdict.reason}`;
    done(failureProblem(refusal("permission-denied", message)));
  });
}

function notFound(request: FastifyRequest, reply: FastifyReply): void {
  const { path } = splitTarget(request.originalUrl);
  const methods = allowedMethods(path);
  const problem =
    methods === undefined
      ? httpProblem("route-not-found", `there is nothing at ${path}`)
      : httpProblem("method-not-allowed", `${path} takes ${methods}, not ${request.method}`);
  sendProblem(reply, new ProblemError(problem, methods === undefined ? {} : { allow: methods }));
}

/** Keys are bytes: the router must not see, decode or normalise them. */
function routedUrl(request: Pick<IncomingMessage, "url">): string {
  const url = request.url ?? "/";
  const { path, query } = splitTarget(url);
  const suffix = query === "" ? "" : `?${query}`;
  return isKeyTarget(path) ? `/v1/kv${suffix}` : path + suffix;
}

function createApp(options: HttpDoorOptions, backend: Backend, watches: WatchRoute): FastifyInstance {
  const { tls, cellUid, log = NO_LOG } = options;
  const app = fastify({
    logger: false,
    bodyLimit: backend.limits.requestBytesMax,
    rewriteUrl: (request) => routedUrl(request),
    // fastify hands over an untyped listener of the same shape
    serverFactory: (handler) => createListener(tls, backend.doorLimits, handler),
    forceCloseConnections: "idle",
    return503OnClosing: false,
    frameworkErrors: (error, _request, reply) =>
      sendProblem(reply as unknown as FastifyReply, problemOf(error, log)),
  });
  app.removeAllContentTypeParsers();
  // A value is whatever bytes were sent, whatever type the client calls them.
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  app.setErrorHandler((error, _request, reply) => sendProblem(reply, problemOf(error, log)));
  app.setNotFoundHandler(notFound);
  if (tls !== undefined && cellUid !== undefined) addGuard(app, cellUid, log);
  const openapi = openapiText();
  addRoutes(app, backend, { watches, openapi, info: () => leaderJson(options.coordinator.info()) });
  return app;
}

/**
 * Opens the HTTP/JSON door over a coordinator. gateway/openapi.yaml describes it.
 * @throws TypeError when plain text is asked for on anything but loopback; rejects when the port cannot be bound.
 */
export async function startHttpDoor(options: HttpDoorOptions): Promise<RunningHttpDoor> {
  const { coordinator, host, port, tls, log = NO_LOG, limits = LIMITS } = options;
  assertBindAllowed(host, tls);
  const backend = new Backend(coordinator, limits, { ...HTTP_DOOR_LIMITS, ...options.doorLimits });
  const watches = new WatchRoute(backend);
  const app = createApp(options, backend, watches);
  // One listener, whatever the resolver thinks of the name.
  await app.listen({ host: host === "localhost" ? "127.0.0.1" : host, port });
  const bound = app.server.address() as AddressInfo;
  log("info", "HTTP listener open", { host: bound.address, port: bound.port, tls: tls !== undefined });
  return {
    address: { host: bound.address, port: bound.port },
    updateTls: (renewed) => {
      const server: Server = app.server;
      if (!(server instanceof TlsServer)) {
        throw new TypeError("a door does not change between TLS and plain text");
      }
      server.setSecureContext(usableContextOptions(renewed));
    },
    close: async (graceMs = CLOSE_GRACE_MS) => {
      watches.close();
      const timer = setTimeout(() => app.server.closeAllConnections(), graceMs);
      await app.close();
      clearTimeout(timer);
    },
  };
}
