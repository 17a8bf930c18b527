import { createSecureServer, createServer } from "node:http2";
import type { ServerHttp2Session, ServerOptions } from "node:http2";
import type { AddressInfo, Server, Socket } from "node:net";
import { LIMITS } from "../coordinator/index.ts";
import type { BoundAddress, TlsOptions } from "../listen.ts";
import { assertBindAllowed } from "../listen.ts";
import type { DoorLog } from "../log.ts";
import { NO_LOG } from "../log.ts";
import { TLS_HANDSHAKE_MS_MAX, usableContextOptions } from "../tls/secure-context.ts";
import { Seldom } from "../tls/seldom.ts";
import type { GrpcMethod, GrpcService } from "./call.ts";
import { Connection } from "./connection.ts";
import type { Authorize } from "./guard.ts";
import { Guard } from "./guard.ts";
import type { Methods } from "./head.ts";
import {
  GRPC_TIMING,
  HEADER_BYTES_MAX,
  HEADER_PAIRS_MAX,
  REJECTED_STREAMS_MAX,
  RESETS_PER_SECOND,
  RESET_BURST,
  SESSION_MEMORY_MIB,
  STREAM_WINDOW_BYTES,
} from "./limits.ts";
import type { GrpcTiming } from "./limits.ts";

export interface GrpcServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Absent: plain text, which only loopback may be bound with. */
  readonly tls?: TlsOptions;
  /**
   * With TLS: the cell that callers' certificates must name (docs/security.md); `ServerCall.identity` then tells who
   * calls. Absent: whoever has a certificate of the CA is served.
   */
  readonly cellUid?: string;
  /** Who may call what, asked before every call. Needs `cellUid`. Default: everybody may everything. */
  readonly authorize?: Authorize;
  /** All on the one port; no two of one name. */
  readonly services: readonly GrpcService[];
  /** Largest message a client may send. Default: `LIMITS.frameBytesMax`. */
  readonly receiveBytesMax?: number;
  /** Streams of one connection. Default 1,000. */
  readonly streamsPerConnectionMax?: number;
  /** Overrides of {@link GRPC_TIMING}. */
  readonly timing?: Partial<GrpcTiming>;
  readonly log?: DoorLog;
}

export interface RunningGrpcServer {
  readonly address: BoundAddress;
  /**
   * Renewed certificates, for connections to come; what is open stays open. Only for a listener opened with TLS.
   * @throws Error when key or certificate cannot be used; the old ones go on
   */
  updateTls(tls: TlsOptions): void;
  /**
   * Stops accepting, tells clients to go (GOAWAY), waits for open calls at most `graceMs` (default 2,000), then cuts
   * what is left.
   */
  close(graceMs?: number): Promise<void>;
}

const CLOSE_GRACE_MS = 2_000;
const TCP_KEEPALIVE_MS = 10_000;
const STREAMS_PER_CONNECTION_MAX = 1_000;

/**
 * Listens with gRPC. An unknown service or method is answered UNIMPLEMENTED.
 * @throws TypeError when plain text is asked for on anything but loopback, or two services have one name; rejects when
 * the port cannot be bound.
 */
export async function startGrpcServer(options: GrpcServerOptions): Promise<RunningGrpcServer> {
  const { host, port, tls, cellUid, authorize, log = NO_LOG } = options;
  assertBindAllowed(host, tls);
  const { server, updateTls } = createListener(options);
  const sessions = new Set<ServerHttp2Session>();
  const sockets = new Set<Socket>();
  const connectionOptions = {
    methods: methodsOf(options.services),
    receiveBytesMax: options.receiveBytesMax ?? LIMITS.frameBytesMax,
    timing: { ...GRPC_TIMING, ...options.timing },
    guard: tls === undefined || cellUid === undefined ? undefined : new Guard({ cellUid, authorize, log }),
  };
  server.on("connection", (socket: Socket) => {
    socket.setNoDelay(true);
    // Behind our own pings: they end when a client has said that it goes, and its last calls may hang.
    socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    new Connection(session, connectionOptions);
  });
  const boundPort = await listen(server, host, port);
  const seldom = new Seldom();
  server.on("error", (error: Error) =>
    seldom.say((unsaid) => log("error", "a connection was not accepted", { reason: error.message, unsaid })),
  );
  log("info", "gRPC listener open", { host, port: boundPort, tls: tls !== undefined });
  return {
    address: { host, port: boundPort },
    updateTls,
    close: (graceMs = CLOSE_GRACE_MS) =>
      new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          // Not the sessions: they would reset each call, which says less to a client than a lost connection.
          for (const socket of sockets) socket.destroy();
        }, graceMs);
        server.close(() => {
          clearTimeout(timer);
          resolve();
        });
        for (const session of sessions) session.close();
      }),
  };
}

interface Listener {
  readonly server: Server;
  readonly updateTls: (tls: TlsOptions) => void;
}

function createListener({ tls, streamsPerConnectionMax }: GrpcServerOptions): Listener {
  const options: ServerOptions = {
    maxSessionMemory: SESSION_MEMORY_MIB,
    maxHeaderListPairs: HEADER_PAIRS_MAX,
    maxSessionRejectedStreams: REJECTED_STREAMS_MAX,
    streamResetBurst: RESET_BURST,
    streamResetRate: RESETS_PER_SECOND,
    settings: {
      enablePush: false,
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: streamsPerConnectionMax ?? STREAMS_PER_CONNECTION_MAX,
      maxHeaderListSize: HEADER_BYTES_MAX,
    },
  };
  if (tls === undefined) {
    const updateTls = (): void => {
      throw new TypeError("a listener does not change between TLS and plain text");
    };
    return { server: createServer(options), updateTls };
  }
  const mutual = tls.ca !== undefined;
  const server = createSecureServer({
    ...options,
    ...usableContextOptions(tls),
    handshakeTimeout: TLS_HANDSHAKE_MS_MAX,
    requestCert: mutual,
    rejectUnauthorized: mutual,
  });
  server.on("unknownProtocol", (socket: Socket) => socket.destroy());
  return { server, updateTls: (renewed) => server.setSecureContext(usableContextOptions(renewed)) };
}

function methodsOf(services: readonly GrpcService[]): Methods {
  const byPath = new Map<string, GrpcMethod>();
  const names = new Set<string>();
  for (const { name, methods } of services) {
    if (names.has(name)) throw new TypeError(`two services are named ${name}`);
    names.add(name);
    for (const [method, served] of methods) byPath.set(`/${name}/${method}`, served);
  }
  return { byPath, services: names };
}

function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}
