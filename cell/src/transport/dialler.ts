import type { CloseCause, Connection, ConnectionEvents } from "./connection.ts";
import { ProtocolError } from "./errors.ts";
import { FRAME } from "./frame.ts";
import { decodeWelcome, encodeHello } from "./handshake.ts";
import type { TransportContext } from "./options.ts";
import type { ConnectionPurpose, PeerAddress } from "./types.ts";

export interface DiallerEvents {
  /** Connected and let in. @returns who handles the connection's frames; `down` is told by the dialler itself. */
  up(connection: Connection): Omit<ConnectionEvents, "closed">;
  /** The established connection is gone; the next attempt is under way. */
  down(cause: CloseCause): void;
  /** An attempt failed (a refusal included); the next one comes after a pause. */
  failed(reason: string): void;
  /** The peer does not let this member in. */
  refused(reason: string): void;
}

type State =
  | { readonly kind: "idle" }
  | { readonly kind: "connecting"; readonly connection: Connection; readonly cancel: () => void }
  | { readonly kind: "up"; readonly connection: Connection }
  | { readonly kind: "waiting"; readonly cancel: () => void }
  | { readonly kind: "stopped" };

/**
 * Keeps one connection to one peer for one purpose: the first attempt at once, then after growing, jittered pauses.
 * A sign that the peer lives ({@link kick}) ends a pause.
 */
export class Dialler {
  readonly peer: PeerAddress;
  readonly purpose: ConnectionPurpose;
  readonly #context: TransportContext;
  readonly #events: DiallerEvents;
  #state: State = { kind: "idle" };
  #failures = 0;
  #upSinceMs = 0;

  constructor(
    target: { readonly peer: PeerAddress; readonly purpose: ConnectionPurpose },
    context: TransportContext,
    events: DiallerEvents,
  ) {
    this.peer = target.peer;
    this.purpose = target.purpose;
    this.#context = context;
    this.#events = events;
  }

  /** The established connection. */
  get connection(): Connection | undefined {
    return this.#state.kind === "up" ? this.#state.connection : undefined;
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
    if (state.kind === "connecting") state.connection.cut(reason);
    if (state.kind === "up") state.connection.close(reason);
  }

  #dial(): void {
    const { bounds, identity, intercept, network, timers, connections } = this.#context;
    let connection: Connection;
    try {
      connection = network.dial(this.peer.address, this.#context, {
        frame: (kind, body) => this.#welcome(connection, kind, body),
        chunkEnd: () => undefined,
        closed: (cause) => this.#attemptClosed(connection, cause),
      });
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      // In a turn of its own: it must not be told from within the call that asked for the connection.
      this.#state = { kind: "waiting", cancel: timers.after(0, () => this.#failed(reason)) };
      return;
    }
    connections.add(connection);
    const cancel = timers.after(bounds.dialTimeoutMs, () => connection.cut("timed out while connecting"));
    this.#state = { kind: "connecting", connection, cancel };
    if (intercept?.(this.peer.memberId, this.purpose) === "drop") connection.cut("intercepted");
    else connection.write(encodeHello(identity, this.peer.memberId, this.purpose));
  }

  #welcome(connection: Connection, kind: number, body: Buffer): void {
    if (kind !== FRAME.welcome) throw new ProtocolError(`frame ${kind} before the handshake's answer`);
    const state = this.#state;
    if (state.kind !== "connecting" || state.connection !== connection) return;
    const welcome = decodeWelcome(body);
    if (!welcome.ok) {
      connection.cut(`refused: ${welcome.reason}`);
      this.#events.refused(welcome.reason);
      return;
    }
    if (welcome.incarnation !== this.peer.incarnation) {
      connection.cut(`the peer has incarnation ${welcome.incarnation}`);
      return;
    }
    state.cancel();
    this.#state = { kind: "up", connection };
    this.#upSinceMs = this.#context.now();
    const { memberId } = this.peer;
    connection.establish(memberId, this.purpose, {
      frame: (nextKind, nextBody) => handler.frame(nextKind, nextBody),
      chunkEnd: () => handler.chunkEnd(),
      closed: (cause) => this.#down(connection, cause),
    });
    const handler = this.#events.up(connection);
    this.#context.log("info", "connected to peer", { peer: memberId, purpose: this.purpose });
  }

  #attemptClosed(connection: Connection, cause: CloseCause): void {
    this.#context.connections.delete(connection);
    if (this.#state.kind !== "connecting" || this.#state.connection !== connection) return;
    this.#state.cancel();
    this.#failed(cause.reason);
  }

  #failed(reason: string): void {
    this.#failures += 1;
    if (this.#failures === 1) {
      this.#context.log("info", "cannot connect to peer", {
        peer: this.peer.memberId,
        purpose: this.purpose,
        reason,
      });
    }
    this.#wait();
    this.#events.failed(reason);
  }

  #down(connection: Connection, cause: CloseCause): void {
    this.#context.connections.delete(connection);
    this.#context.log("info", "lost connection to peer", {
      peer: this.peer.memberId,
      purpose: this.purpose,
      reason: cause.reason,
    });
    if (this.#state.kind !== "stopped") {
      // At once after a healthy time; but a peer that lets in and breaks at once is not dialled in a tight loop.
      if (this.#context.now() - this.#upSinceMs >= this.#context.bounds.backoffMsMax) this.#failures = 0;
      if (this.#failures === 0) this.#dialSoon(0);
      else this.#wait();
      this.#failures += 1;
    }
    this.#events.down(cause);
  }

  #wait(): void {
    const { backoffMsMin, backoffMsMax } = this.#context.bounds;
    const pause = Math.min(backoffMsMax, backoffMsMin * 2 ** Math.min(Math.max(this.#failures - 1, 0), 16));
    // Jitter over the upper half keeps a floor under the pause and members apart.
    this.#dialSoon(pause * (0.5 + this.#context.random() / 2));
  }

  #dialSoon(pauseMs: number): void {
    this.#state = { kind: "waiting", cancel: this.#context.timers.after(pauseMs, () => this.#dial()) };
  }
}
