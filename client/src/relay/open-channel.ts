/** Where a client's channel lives. */
import { Channel } from "../channel/channel.ts";
import type { ChannelOptions } from "../channel/channel-options.ts";
import type { ConnectorEvents } from "../channel/connector.ts";
import { GrpcTransport } from "../channel/grpc.ts";
import { REQUESTS_MAX } from "../channel/pending.ts";
import type { TlsFileSource, TlsSource } from "../channel/tls.ts";
import type { ConnectOptions } from "../options.ts";
import { REAL_RUNTIME } from "../runtime.ts";
import type { RelayOptions } from "./protocol.ts";
import { RelayClient } from "./relay-client.ts";
import { Pulse } from "./shared-clock.ts";
import { openInThread } from "./thread.ts";

const DEFAULT_DEADLINE_MS = 10_000;
const DEFAULT_PENDING_BYTES_MAX = 64 * 1024 * 1024;

type ThreadTls = RelayOptions["tls"];

/** A channel in the thread, or on this one: where `worker` is false, or what it needs cannot go elsewhere. */
export function openChannel(options: ConnectOptions): Channel {
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
  const transport = options.transport ?? new GrpcTransport(options.tls);
  const channelOptions: ChannelOptions = { ...common, transport, runtime };
  const isOrdinary = options.runtime === undefined && options.transport === undefined;
  if (options.worker === false || !isOrdinary) return new Channel(channelOptions);
  const tls = threadTls(options.tls);
  if (tls === "only-here") return new Channel(channelOptions);
  const pulse = new Pulse();
  const port = openInThread({ ...common, pulse: pulse.buffer, ...(tls !== undefined && { tls }) });
  // Identities are given where requests may have to be repeated.
  return new Channel({ ...channelOptions, identity: "none" }, (events: ConnectorEvents) => {
    const client = new RelayClient({ port, pulse, runtime }, events);
    return {
      links: client,
      leases: client.leases,
      cancel: (id, code, message) => client.cancel({ id, code, message }),
    };
  });
}

function threadTls(tls: TlsSource | undefined): ThreadTls | "only-here" {
  if (tls === undefined) return undefined;
  if (typeof tls !== "function") return { options: tls };
  const { paths } = tls as Partial<TlsFileSource>;
  return paths === undefined ? "only-here" : { paths };
}
