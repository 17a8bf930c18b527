/** The client library's transport over the simulated network: frames of one stream to one member's native door. */
import { status } from "@grpc/grpc-js";
import type { FrameLink, FrameSink, Transport } from "@lockstep/client";
import { GrpcCode } from "@lockstep/gateway";
import type { GrpcStatus, NativeDoor } from "@lockstep/gateway";
import type { SimProcess } from "../contract.ts";
import { watchLife } from "./keepalive.ts";
import type { SimNetwork } from "./network.ts";
import { SimServerCall, messageBytes } from "./server-call.ts";
import type { Downward, Upward } from "./server-call.ts";
import type { StreamEnd, StreamHandler } from "./stream.ts";

/** A member that listens for clients. */
export interface OpenDoor {
  readonly host: string;
  readonly process: SimProcess;
  readonly door: NativeDoor;
}

/** @returns who listens at an address now; undefined: connections are refused. */
export type DoorLookup = (address: string) => OpenDoor | undefined;

/** The system gives up connecting after this long; the client does long before. */
const CONNECT_MS_MAX = 20_000;
/** As the client's transport (client/src/channel/grpc.ts): silent from one look to the next, a ping unanswered, is lost. */
const LIFE_CHECK_MS = 4_000;
const LIFE_MISSES_MAX = 2;
const HEADER_BYTES = 128;

/** @returns the transport of one client process; links it opened end with the process. */
export function createClientTransport(
  process: SimProcess,
  network: SimNetwork,
  doorAt: DoorLookup,
): Transport {
  return {
    open: (address, sink) => {
      const link = new SimFrameLink(process, sink);
      const target = doorAt(address);
      if (target?.process.alive !== true) {
        const roundTripUs = network.delayUs() + network.delayUs();
        process.deliver(roundTripUs, () => link.over(unavailable(`connect ECONNREFUSED ${address}`)));
      } else if (network.blocked(process.host, target.host) || network.blocked(target.host, process.host)) {
        link.watch(process.after(CONNECT_MS_MAX, () => link.over(unavailable("connecting timed out"))));
      } else {
        link.attach(dial(network, link, { process, target }));
      }
      return link;
    },
    close: () => undefined,
  };
}

function dial(
  network: SimNetwork,
  link: SimFrameLink,
  { process, target }: { readonly process: SimProcess; readonly target: OpenDoor },
): StreamEnd<Upward, Downward> {
  const call = new SimServerCall(target.process, (stream) => target.door.openChannel(stream));
  const { dialled, accepted } = network.connect<Upward, Downward>(
    { process, handler: link },
    { process: target.process, handler: call },
  );
  call.attach(accepted);
  dialled.send({ kind: "headers" }, HEADER_BYTES);
  return dialled;
}

class SimFrameLink implements FrameLink, StreamHandler<Downward> {
  readonly #process: SimProcess;
  readonly #sink: FrameSink;
  #end: StreamEnd<Upward, Downward> | undefined;
  #over = false;
  #stopWatching: () => void = () => undefined;

  constructor(process: SimProcess, sink: FrameSink) {
    this.#process = process;
    this.#sink = sink;
  }

  attach(end: StreamEnd<Upward, Downward>): void {
    this.#end = end;
    const lost = (): void => {
      end.cut();
      this.over(unavailable("the connection gave no sign of life"));
    };
    this.watch(watchLife(this.#process, end, { everyMs: LIFE_CHECK_MS, missesMax: LIFE_MISSES_MAX, lost }));
  }

  /** `stop` is called when the link is over. */
  watch(stop: () => void): void {
    this.#stopWatching = stop;
  }

  /** In a turn of its own. */
  over(reason: Error | undefined): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopWatching();
    this.#sink.closed(reason);
  }

  // ---- from the client ----

  send(frame: Buffer): boolean {
    // Not connected: grpc-js keeps what is sent, and it is lost with the call.
    if (this.#over || this.#end === undefined) return true;
    // The sender goes on to use its memory.
    return this.#end.send({ kind: "message", frame: Buffer.from(frame) }, messageBytes(frame));
  }

  finish(): void {
    this.#end?.finish();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopWatching();
    this.#end?.cut();
  }

  // ---- from the stream ----

  payload(down: Downward): void {
    if (this.#over) return;
    if (down.kind === "message") {
      this.#sink.frame(down.frame);
      return;
    }
    this.#end?.cut();
    this.over(down.status.code === GrpcCode.OK ? undefined : failure(down.status));
  }

  closed(reason: string): void {
    this.over(unavailable(reason));
  }

  drained(): void {
    if (!this.#over) this.#sink.drained();
  }
}

function unavailable(details: string): Error {
  return new Error(`${status.UNAVAILABLE} UNAVAILABLE: ${details}`);
}

function failure({ code, details, metadata }: GrpcStatus): Error {
  return Object.assign(new Error(`${code} ${status[code]}: ${details}`), { code, details, metadata });
}
