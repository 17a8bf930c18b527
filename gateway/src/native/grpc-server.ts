import type { ServiceDefinition, UntypedServiceImplementation } from "@grpc/grpc-js";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { LIMITS } from "../coordinator/index.ts";
import type { BoundAddress, TlsOptions } from "../listen.ts";
import { assertBindAllowed, formatAddress } from "../listen.ts";
import type { DoorLog } from "../log.ts";
import { NO_LOG } from "../log.ts";
import type { Authorize } from "./guard.ts";
import { guardService } from "./guard.ts";
import { RenewableCredentials } from "./renewable-credentials.ts";

/** One service of a listener: the native door, and later the etcd door beside it on the same port. */
export interface GrpcService {
  readonly definition: ServiceDefinition;
  readonly implementation: UntypedServiceImplementation;
}

export interface GrpcServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Absent: plain text, which only loopback may be bound with. */
  readonly tls?: TlsOptions;
  /**
   * With TLS: the cell that callers' certificates must name (docs/security.md); `callIdentity` then tells who calls.
   * Absent: whoever has a certificate of the CA is served.
   */
  readonly cellUid?: string;
  /** Who may call what, asked before every call. Needs `cellUid`. Default: everybody may everything. */
  readonly authorize?: Authorize;
  readonly services: readonly GrpcService[];
  /** Largest message a client may send. Default: `LIMITS.frameBytesMax`. */
  readonly receiveBytesMax?: number;
  /** Streams of one connection. Default 1,000. */
  readonly streamsPerConnectionMax?: number;
  readonly log?: DoorLog;
}

export interface RunningGrpcServer {
  readonly address: BoundAddress;
  /**
   * Renewed certificates, for connections to come; what is open stays open. Only for a listener opened with TLS.
   * @throws Error when key or certificate cannot be used; the old ones go on
   */
  updateTls(tls: TlsOptions): void;
  /** Stops accepting, waits for open calls at most `graceMs` (default 2,000), then cuts what is left. */
  close(graceMs?: number): Promise<void>;
}

/** A dead client is noticed within 15 s, so that its streams do not count for ever. */
const KEEPALIVE_TIME_MS = 10_000;
const KEEPALIVE_TIMEOUT_MS = 5_000;
const CLOSE_GRACE_MS = 2_000;

/**
 * Listens with gRPC. An unknown service or method is answered UNIMPLEMENTED.
 * @throws TypeError when plain text is asked for on anything but loopback; rejects when the port cannot be bound.
 */
export async function startGrpcServer(options: GrpcServerOptions): Promise<RunningGrpcServer> {
  const { host, port, tls, cellUid, authorize, services, log = NO_LOG } = options;
  assertBindAllowed(host, tls);
  const secure = tls === undefined ? undefined : new RenewableCredentials(tls);
  const server = new Server({
    "grpc.max_receive_message_length": options.receiveBytesMax ?? LIMITS.frameBytesMax,
    // Each door bounds what it sends; a limit here would turn an answer into a broken stream.
    "grpc.max_send_message_length": -1,
    "grpc.max_concurrent_streams": options.streamsPerConnectionMax ?? 1_000,
    "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.enable_channelz": 0,
    "grpc.so_reuseport": 0,
  });
  for (const { definition, implementation } of services) {
    const guarded =
      secure === undefined || cellUid === undefined
        ? implementation
        : guardService(definition, implementation, { cellUid, authorize, log });
    server.addService(definition, guarded);
  }
  const boundPort = await new Promise<number>((resolve, reject) => {
    server.bindAsync(
      formatAddress(host, port),
      secure ?? ServerCredentials.createInsecure(),
      (error, bound) => {
        if (error === null) resolve(bound);
        else reject(error);
      },
    );
  });
  log("info", "gRPC listener open", { host, port: boundPort, tls: tls !== undefined });
  return {
    address: { host, port: boundPort },
    updateTls: (renewed) => {
      if (secure === undefined) throw new TypeError("a listener does not change between TLS and plain text");
      secure.renew(renewed);
    },
    close: (graceMs = CLOSE_GRACE_MS) =>
      new Promise<void>((resolve) => {
        const timer = setTimeout(() => server.forceShutdown(), graceMs);
        server.tryShutdown(() => {
          clearTimeout(timer);
          resolve();
        });
      }),
  };
}
