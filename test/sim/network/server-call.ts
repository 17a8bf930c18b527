import { GrpcCode } from "@lockstep/gateway";
import type { CertificateIdentity, GrpcStatus, Message, StreamCall } from "@lockstep/gateway";
import type { SimProcess } from "../contract.ts";
import type { StreamEnd, StreamHandler } from "./stream.ts";
import { watchLife } from "./keepalive.ts";

/** From the client: the call's headers, then its messages. */
export type Upward = { readonly kind: "headers" } | { readonly kind: "message"; readonly frame: Buffer };
/** From the member: messages, then how it ended. */
export type Downward =
  | { readonly kind: "message"; readonly frame: Buffer }
  | { readonly kind: "trailers"; readonly status: GrpcStatus };

/** gRPC adds about this much to a message; it also gives headers and trailers a size. */
const OVERHEAD_BYTES = 16;
/** The gRPC server looks for a sign of life every 10 s and gives up 5 s later. */
const LIFE_CHECK_MS = 5_000;
const LIFE_MISSES_MAX = 3;

export function messageBytes(frame: Buffer): number {
  return frame.length + OVERHEAD_BYTES;
}

function ignore(): void {
  return undefined;
}

/**
 * What the native door sees of a channel, over the simulated network: events come in the order in which the gRPC server
 * tells them. `onClose` comes last, once, however the call ended, when nothing is left to send.
 */
export class SimServerCall implements StreamCall, StreamHandler<Upward> {
  cancelled = false;
  readonly path = "/lockstep.v1.Coordination/Channel";
  readonly authority = "";
  readonly identity: CertificateIdentity | undefined = undefined;
  readonly #process: SimProcess;
  readonly #serve: (call: StreamCall) => void;
  #end: StreamEnd<Downward, Upward> | undefined;
  #ending = false;
  #over = false;
  #stopWatching: () => void = ignore;
  #onMessage: (message: Buffer) => void = ignore;
  #onHalfClose: () => void = ignore;
  #onDrain: () => void = ignore;
  readonly #closeListeners: (() => void)[] = [];

  /** @param serve called with this call when its headers have come */
  constructor(process: SimProcess, serve: (call: StreamCall) => void) {
    this.#process = process;
    this.#serve = serve;
  }

  attach(end: StreamEnd<Downward, Upward>): void {
    this.#end = end;
  }

  /** Where the client runs. */
  get peerHost(): string {
    return this.#end?.peer.process.host ?? "";
  }

  get bufferedBytes(): number {
    return this.#end?.waitingBytes ?? 0;
  }

  header(): string | undefined {
    return undefined;
  }

  deadlineMs(): number | undefined {
    return undefined;
  }

  /** `sent` is called in a later microtask or turn, when the connection has room for it. */
  write(message: Message, sent?: () => void): boolean {
    if (this.#ending || this.#over) {
      if (sent !== undefined) queueMicrotask(sent);
      return false;
    }
    // The writer goes on to use its memory.
    const frame = message instanceof Uint8Array ? Buffer.from(message) : Buffer.concat(message);
    return this.#end?.send({ kind: "message", frame }, messageBytes(frame), sent) ?? false;
  }

  end(): void {
    this.#finish({ code: GrpcCode.OK, details: "" });
  }

  fail(status: GrpcStatus): void {
    this.#finish(status);
  }

  pause(): void {
    this.#end?.pause();
  }

  resume(): void {
    this.#end?.resume();
  }

  onMessage(listener: (message: Buffer) => void): void {
    this.#onMessage = listener;
  }

  onHalfClose(listener: () => void): void {
    this.#onHalfClose = listener;
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClose(listener: () => void): void {
    this.#closeListeners.push(listener);
  }

  // ---- from the stream ----

  payload(up: Upward): void {
    if (this.#over) return;
    if (up.kind === "message") {
      if (!this.#ending) this.#onMessage(up.frame);
      return;
    }
    const end = this.#end;
    if (end === undefined) return;
    this.#stopWatching = watchLife(this.#process, end, {
      everyMs: LIFE_CHECK_MS,
      missesMax: LIFE_MISSES_MAX,
      lost: () => {
        end.cut();
        this.#closed();
      },
    });
    this.#serve(this);
  }

  ended(): void {
    if (!this.#over && !this.#ending) this.#onHalfClose();
  }

  closed(): void {
    this.#closed();
  }

  drained(): void {
    if (!this.#over) this.#onDrain();
  }

  /** Sends how it ended behind what was written; the call is over when that has left. */
  #finish(status: GrpcStatus): void {
    if (this.#ending || this.#over) return;
    this.#ending = true;
    this.#end?.send({ kind: "trailers", status }, OVERHEAD_BYTES, () => {
      this.#end?.close();
      this.#closed();
    });
  }

  #closed(): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopWatching();
    if (!this.#ending) this.cancelled = true;
    // In a later turn, as the gRPC server does.
    this.#process.deliver(0, () => {
      for (const listener of this.#closeListeners) listener();
    });
  }
}
