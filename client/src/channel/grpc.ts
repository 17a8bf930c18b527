import { Client, credentials, Metadata, type ChannelCredentials, type ClientOptions } from "@grpc/grpc-js";
import { coordination } from "@lockstep/proto";
import type { FrameLink, FrameSink, Transport } from "./transport.ts";

/** PEM files' content. `cert` and `key` go together (mutual TLS). */
export interface TlsOptions {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
  /** Verify the member's certificate against this name instead of the dialled host. */
  readonly serverName?: string;
}

// A reply of a range is at most 3 MiB, a batch of watch events a few; far above both.
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
const KEEPALIVE_TIME_MS = 5_000;
const KEEPALIVE_TIMEOUT_MS = 3_000;
const FLOW_CONTROL_WINDOW_BYTES = 4 * 1024 * 1024;

const identity = (bytes: Buffer): Buffer => bytes;

/** Frames over grpc-js, as raw bytes: encoding and decoding are the channel's. */
export class GrpcTransport implements Transport {
  readonly #credentials: ChannelCredentials;
  readonly #options: ClientOptions;

  constructor(tls: TlsOptions | undefined) {
    this.#credentials =
      tls === undefined
        ? credentials.createInsecure()
        : credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null);
    this.#options = {
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

  open(address: string, sink: FrameSink): FrameLink {
    const client = new Client(address, this.#credentials, this.#options);
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

  close(): void {
    // Connections belong to links; nothing is kept between them.
  }
}
