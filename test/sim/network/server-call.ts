import { EventEmitter } from "node:events";
import { Metadata, status } from "@grpc/grpc-js";
import type { ServerDuplexStream } from "@grpc/grpc-js";
import type { SimProcess } from "../contract.ts";
import type { StreamEnd, StreamHandler } from "./stream.ts";
import { watchLife } from "./keepalive.ts";

/** How a stream ended, as trailers tell it. */
export interface CallStatus {
  readonly code: status;
  readonly details: string;
  readonly metadata: Metadata;
}

/** From the client: the call's headers, then its messages. */
export type Upward = { readonly kind: "headers" } | { readonly kind: "message"; readonly frame: Buffer };
/** From the member: messages, then how it ended. */
export type Downward =
  | { readonly kind: "message"; readonly frame: Buffer }
  | { readonly kind: "trailers"; readonly status: CallStatus };

/** grpc-js adds about this much to a message; it also gives headers and trailers a size. */
const OVERHEAD_BYTES = 16;
/** The gRPC server looks for a sign of life every 10 s and gives up 5 s later. */
const LIFE_CHECK_MS = 5_000;
const LIFE_MISSES_MAX = 3;

export function messageBytes(frame: Buffer): number {
  return frame.length + OVERHEAD_BYTES;
}

/**
 * What the native door sees of a channel: the part of grpc-js's `ServerDuplexStream` that it uses, with the same
 * events in the same order. `cancelled` comes last, once, however the call ended, when nothing is left to send.
 */
export class SimServerCall extends EventEmitter implements StreamHandler<Upward> {
  cancelled = false;
  readonly metadata: Metadata = new Metadata();
  readonly #process: SimProcess;
  readonly #serve: (call: ServerDuplexStream<Buffer, Buffer>) => void;
  #end: StreamEnd<Downward, Upward> | undefined;
  #status: CallStatus = { code: status.OK, details: "OK", metadata: new Metadata() };
  #ending = false;
  #over = false;
  #stopWatching: () => void = () => undefined;

  /** @param serve called with this call when its headers have come */
  constructor(process: SimProcess, serve: (call: ServerDuplexStream<Buffer, Buffer>) => void) {
    super();
    this.#process = process;
    this.#serve = serve;
    this.on("error", (error: Partial<CallStatus>) => {
      const { code = status.UNKNOWN, details = "Unknown Error", metadata = new Metadata() } = error;
      this.#status = { code, details, metadata };
      this.end();
    });
  }

  attach(end: StreamEnd<Downward, Upward>): void {
    this.#end = end;
  }

  /** `taken` is called in a later microtask or turn, when the connection has room for it. */
  write(frame: Buffer, taken?: () => void): boolean {
    if (this.#ending || this.#over) return false;
    // The writer goes on to use its memory.
    const message = { kind: "message", frame: Buffer.from(frame) } as const;
    return this.#end?.send(message, messageBytes(frame), taken) ?? false;
  }

  /** Sends how it ended behind what was written; the call is over when that has left. */
  end(): this {
    if (this.#ending || this.#over) return this;
    this.#ending = true;
    this.#end?.send({ kind: "trailers", status: this.#status }, OVERHEAD_BYTES, () => {
      this.#end?.close();
      this.#finish();
    });
    return this;
  }

  pause(): this {
    this.#end?.pause();
    return this;
  }

  resume(): this {
    this.#end?.resume();
    return this;
  }

  getPeer(): string {
    return this.#end?.peer.process.host ?? "";
  }

  // ---- from the stream ----

  payload(up: Upward): void {
    if (this.#over) return;
    if (up.kind === "message") {
      this.emit("data", up.frame);
      return;
    }
    const end = this.#end;
    if (end === undefined) return;
    this.#stopWatching = watchLife(this.#process, end, {
      everyMs: LIFE_CHECK_MS,
      missesMax: LIFE_MISSES_MAX,
      lost: () => {
        end.cut();
        this.#finish();
      },
    });
    // The door takes grpc-js's class: it uses nothing of it but what is here.
    this.#serve(this as unknown as ServerDuplexStream<Buffer, Buffer>);
  }

  ended(): void {
    if (!this.#over) this.emit("end");
  }

  closed(): void {
    this.#finish();
  }

  drained(): void {
    if (!this.#over) this.emit("drain");
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopWatching();
    // In a later turn, as grpc-js does.
    this.#process.deliver(0, () => {
      this.cancelled = true;
      this.emit("cancelled", "cancelled");
    });
  }
}
