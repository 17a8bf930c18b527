/** The thread of all clients of this process that are not told to stay on the main one. */
import { parentPort, type MessagePort } from "node:worker_threads";
import { Channel } from "../channel/channel.ts";
import { GrpcTransport } from "../channel/grpc.ts";
import { tlsFromFiles, type TlsOptions, type TlsSource } from "../channel/tls.ts";
import { REAL_RUNTIME } from "../runtime.ts";
import type { RelayOptions, ToRelay } from "./protocol.ts";
import { Relay } from "./relay.ts";
import { Pulse, sharedNowMs } from "./shared-clock.ts";

/** One client. */
export interface OpenMessage {
  readonly port: MessagePort;
  readonly options: RelayOptions;
}

parentPort?.on("message", ({ port, options }: OpenMessage) => open(port, options));
// It listens: whoever began it knows that nothing is missing.
parentPort?.postMessage("loaded");

function open(port: MessagePort, { tls, pulse, ...options }: RelayOptions): void {
  const channel = new Channel({
    ...options,
    transport: new GrpcTransport(tlsSource(tls)),
    runtime: REAL_RUNTIME,
  });
  const relay = new Relay({
    ...{ channel, port, runtime: REAL_RUNTIME, sharedNowMs },
    pulse: new Pulse(pulse),
  });
  port.on("message", (message: ToRelay) => relay.receive(message));
  port.on("close", () => relay.close());
}

function tlsSource(tls: RelayOptions["tls"]): TlsSource | undefined {
  if (tls === undefined) return undefined;
  if ("options" in tls) return withBuffers(tls.options);
  // A file that cannot be read now fails the attempts to connect, which say so.
  return () => tlsFromFiles(tls.paths)();
}

/** A Buffer arrives as the plain bytes that it is. */
function withBuffers({ ca, cert, key, serverName }: TlsOptions): TlsOptions {
  return {
    ...(ca === undefined ? {} : { ca: Buffer.from(ca) }),
    ...(cert === undefined ? {} : { cert: Buffer.from(cert) }),
    ...(key === undefined ? {} : { key: Buffer.from(key) }),
    ...(serverName === undefined ? {} : { serverName }),
  };
}
