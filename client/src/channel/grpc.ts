import { Client, credentials, Metadata, type ChannelCredentials, type ClientOptions } from "@grpc/grpc-js";
import { coordination } from "@lockstep/proto";
import type { TlsOptions, TlsSource } from "./tls.ts";
import type { FrameLink, FrameSink, Transport } from "./transport.ts";

// A reply of a range is at most 3 MiB, a batch of watch events a few; far above both.
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
const KEEPALIVE_TIME_MS = 5_000;
const KEEPALIVE_TIMEOUT_MS = 3_000;
const FLOW_CONTROL_WINDOW_BYTES = 4 * 1024 * 1024;

const identity = (bytes: Buffer): Buffer => bytes;

/** Frames over grpc-js, as raw bytes: encoding and decoding are the channel's. */
export class GrpcTransport implements Transport {
  readonly #tls: TlsSource | undefined;

  constructor(tls: TlsSource | undefined) {
    this.#tls = tls;
  }

  open(address: string, sink: FrameSink): FrameLink {
    let client: Client;
    try {
      const tls = typeof this.#tls === "function" ? this.#tls() : this.#tls;
      client = new Client(address, credentialsOf(tls), optionsOf(tls));
    } catch (error) {
      return failedLink(sink, error instanceof Error ? error : new Error(String(error)));
    }
    return openLink(client, sink);
  }

  close(): void {
    // Connections belong to links; nothing is kept between them.
  }
}

function credentialsOf(tls: TlsOptions | undefined): ChannelCredentials {
  if (tls === undefined) return credentials.createInsecure();
  return credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null);
}

function optionsOf(tls: TlsOptions | undefined): ClientOptions {
  return {
    "grpc.max_receive_message_length": FRAME_BYTES_MAX,
    "grpc.max_send_message_length": FRAME_BYTES_MAX,
    "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    "grpc.keepalive_permit_without_calls": 1,
    // A pool shared by the process would tie this client's streams to the back-off of another's connection.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_retries": 0,
    "grpc.service_config_disable_resolution": 1,
    "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
    ...(tls?.serverName === undefined ? {} : { "grpc.ssl_target_name_override": tls.serverName }),
  };
}

function openLink(client: Client, sink: FrameSink): FrameLink {
  const call = client.makeBidiStreamRequest(
    coordination.CoordinationService.channel.path,
    identity,
    identity,
    new Metadata(),
  );
  let over = false;
  const finish = (reason: Error | undefined): void => {
    if (over) return;
    over = true;
    client.close();
    sink.closed(reason);
  };
  call.on("data", (frame: Buffer) => {
    if (!over) sink.frame(frame);
  });
  call.on("drain", () => {
    if (!over) sink.drained();
  });
  call.on("error", finish);
  call.on("end", () => finish(undefined));
  return {
    send: (frame) => call.write(frame),
    finish: () => call.end(),
    destroy: () => {
      if (over) return;
      over = true;
      call.cancel();
      client.close();
    },
  };
}

/** A stream that could not even be begun: told in a turn of its own, as everything else about a stream. */
function failedLink(sink: FrameSink, reason: Error): FrameLink {
  let over = false;
  setImmediate(() => {
    if (over) return;
    over = true;
    sink.closed(reason);
  });
  return { send: () => true, finish: () => undefined, destroy: () => (over = true) };
}
