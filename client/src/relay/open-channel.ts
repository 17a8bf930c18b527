/** Where a client's channel lives. */
import { Channel } from "../channel/channel.ts";
import type { ChannelOptions } from "../channel/channel-options.ts";
import type { ConnectorEvents } from "../channel/connector.ts";
import { REQUESTS_MAX } from "../channel/pending.ts";
import type { TlsFileSource, TlsSource } from "../channel/tls.ts";
import type { Transport } from "../channel/transport.ts";
import type { ConnectOptions } from "../options.ts";
import { REAL_RUNTIME } from "../runtime.ts";
import type { RelayOptions } from "./protocol.ts";
import { RelayClient } from "./relay-client.ts";
import { Pulse } from "./shared-clock.ts";
import { openInThread } from "./thread.ts";

const DEFAULT_DEADLINE_MS = 10_000;
const DEFAULT_PENDING_BYTES_MAX = 64 * 1024 * 1024;

type ThreadTls = RelayOptions["tls"];

/** Of a channel whose streams are the thread's. */
const NO_STREAMS: Transport = {
  open: () => {
    throw new Error("streams are opened by the thread");
  },
  close: () => undefined,
};

/** A channel in the thread, or on this one: where `worker` is false, or what it needs cannot go elsewhere. */
export async function openChannel(options: ConnectOptions): Promise<Channel> {
  const common = {
    endpoints: options.endpoints,
    namespace: options.namespace ?? "",
    epoch: options.epoch ?? 0,
    deadlineMs: options.deadlineMs ?? DEFAULT_DEADLINE_MS,
    identity: options.identity ?? "client",
    requestsMax: options.requestsMax ?? REQUESTS_MAX,
    pendingBytesMax: options.pendingBytesMax ?? DEFAULT_PENDING_BYTES_MAX,
  } as const;
  const runtime = options.runtime ?? REAL_RUNTIME;
  const isOrdinary = options.runtime === undefined && options.transport === undefined;
  const tls = threadTls(options.tls);
  if (options.worker === false || !isOrdinary || tls === "only-here") {
    return new Channel({ ...common, runtime, transport: await transportOf(options) });
  }
  const pulse = new Pulse();
  const port = await openInThread({ ...common, pulse: pulse.buffer, ...(tls !== undefined && { tls }) });
  // Identities are given where requests may have to be repeated.
  const channelOptions: ChannelOptions = { ...common, identity: "none", runtime, transport: NO_STREAMS };
  return new Channel(channelOptions, (events: ConnectorEvents) => {
    const client = new RelayClient({ port, pulse, runtime }, events);
    return {
      links: client,
      leases: client.leases,
      cancel: (id, code, message) => client.cancel({ id, code, message }),
    };
  });
}

/** HTTP/2 is loaded by whoever speaks it: with the thread, the main one does not. */
async function transportOf({ transport, tls }: ConnectOptions): Promise<Transport> {
  if (transport !== undefined) return transport;
  const { GrpcTransport } = await import("../channel/grpc.ts");
  return new GrpcTransport(tls);
}

function threadTls(tls: TlsSource | undefined): ThreadTls | "only-here" {
  if (tls === undefined) return undefined;
  if (typeof tls !== "function") return { options: tls };
  const { paths } = tls as Partial<TlsFileSource>;
  return paths === undefined ? "only-here" : { paths };
}
