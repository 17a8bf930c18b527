import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import { FRAME } from "../../../cell/src/transport/frame.ts";
import { decodeWelcome, encodeHello } from "../../../cell/src/transport/handshake.ts";
import type { CloseCause, ConnectionEvents } from "../../../cell/src/transport/connection.ts";
import type { TransportContext } from "../../../cell/src/transport/options.ts";
import type { ConnectionPurpose, PeerAddress } from "../../../cell/src/transport/types.ts";
import type { SimProcess } from "../contract.ts";
import { PeerSocket } from "./peer-socket.ts";

/** What the parts of one simulated transport share. */
export interface PeerContext extends TransportContext {
  readonly process: SimProcess;
  /** Every socket that is not closed, in the order in which they were made. */
  readonly sockets: Set<PeerSocket>;
  /** Tries to reach the listener at `address` for `socket`, which hears of the outcome (or of none) later. */
  reach(address: string, socket: PeerSocket): void;
}

export interface PeerDiallerEvents {
  /** Connected and let in. @returns who handles the frames. */
  up(socket: PeerSocket): Omit<ConnectionEvents, "closed">;
  down(cause: CloseCause): void;
  /** An attempt failed (a refusal included); the next one comes after a pause. */
  failed(): void;
  refused(reason: string): void;
}

type State =
  | { readonly kind: "idle" | "stopped" }
  | { readonly kind: "connecting"; readonly socket: PeerSocket; readonly cancel: () => void }
  | { readonly kind: "up"; readonly socket: PeerSocket }
  | { readonly kind: "waiting"; readonly cancel: () => void };

/** Keeps one connection to one peer for one purpose, with the pauses and the rules of production's `Dialler`. */
export class PeerDialler {
  readonly #peer: PeerAddress;
  readonly #purpose: ConnectionPurpose;
  readonly #context: PeerContext;
  readonly #events: PeerDiallerEvents;
  #state: State = { kind: "idle" };
  #failures = 0;
  #upSinceMs = 0;

  constructor(
    peer: PeerAddress,
    purpose: ConnectionPurpose,
    context: PeerContext,
    events: PeerDiallerEvents,
  ) {
    this.#peer = peer;
    this.#purpose = purpose;
    this.#context = context;
    this.#events = events;
  }

  /** The established connection. */
  get socket(): PeerSocket | undefined {
    return this.#state.kind === "up" ? this.#state.socket : undefined;
  }

  get connecting(): boolean {
    return this.#state.kind === "connecting";
  }

  start(): void {
    if (this.#state.kind === "idle") this.#dial();
  }

  /** The peer was seen alive: do not wait any longer. */
  kick(): void {
    if (this.#state.kind !== "waiting") return;
    this.#state.cancel();
    this.#failures = 0;
    this.#dial();
  }

  stop(reason: string): void {
    const state = this.#state;
    this.#state = { kind: "stopped" };
    if (state.kind === "connecting" || state.kind === "waiting") state.cancel();
    if (state.kind === "connecting") state.socket.cut(reason);
    if (state.kind === "up") state.socket.close(reason);
  }

  #dial(): void {
    const { process, bounds, sockets, identity } = this.#context;
    const socket: PeerSocket = new PeerSocket(process, true, this.#context, {
      frame: (kind, body) => this.#welcome(socket, kind, body),
      chunkEnd: () => undefined,
      closed: () => this.#attemptClosed(socket),
    });
    sockets.add(socket);
    const cancel = process.after(bounds.dialTimeoutMs, () => socket.cut("timed out while connecting"));
    this.#state = { kind: "connecting", socket, cancel };
    this.#context.reach(this.#peer.address, socket);
    socket.write(encodeHello(identity, this.#peer.memberId, this.#purpose));
  }

  #welcome(socket: PeerSocket, kind: number, body: Buffer): void {
    if (kind !== FRAME.welcome) throw new ProtocolError(`frame ${kind} before the handshake's answer`);
    const state = this.#state;
    if (state.kind !== "connecting" || state.socket !== socket) return;
    const welcome = decodeWelcome(body);
    if (!welcome.ok) {
      socket.cut(`refused: ${welcome.reason}`);
      this.#events.refused(welcome.reason);
      return;
    }
    if (welcome.incarnation !== this.#peer.incarnation) {
      socket.cut(`the peer has incarnation ${welcome.incarnation}`);
      return;
    }
    state.cancel();
    this.#state = { kind: "up", socket };
    this.#upSinceMs = this.#context.now();
    socket.establish(this.#purpose, {
      frame: (nextKind, nextBody) => handler.frame(nextKind, nextBody),
      chunkEnd: () => handler.chunkEnd(),
      closed: (cause) => this.#down(socket, cause),
    });
    const handler = this.#events.up(socket);
  }

  #attemptClosed(socket: PeerSocket): void {
    this.#context.sockets.delete(socket);
    if (this.#state.kind !== "connecting" || this.#state.socket !== socket) return;
    this.#state.cancel();
    this.#failures += 1;
    this.#wait();
    this.#events.failed();
  }

  #down(socket: PeerSocket, cause: CloseCause): void {
    this.#context.sockets.delete(socket);
    if (this.#state.kind !== "stopped") {
      // At once after a healthy time; whoever lets in and breaks at once is not dialled in a tight loop.
      if (this.#context.now() - this.#upSinceMs >= this.#context.bounds.backoffMsMax) this.#failures = 0;
      if (this.#failures === 0) this.#dialIn(0);
      else this.#wait();
      this.#failures += 1;
    }
    this.#events.down(cause);
  }

  #wait(): void {
    const { backoffMsMin, backoffMsMax } = this.#context.bounds;
    const pauseMs = Math.min(backoffMsMax, backoffMsMin * 2 ** Math.min(Math.max(this.#failures - 1, 0), 16));
    this.#dialIn(pauseMs * (0.5 + this.#context.random() / 2));
  }

  #dialIn(pauseMs: number): void {
    this.#state = { kind: "waiting", cancel: this.#context.process.after(pauseMs, () => this.#dial()) };
  }
}
