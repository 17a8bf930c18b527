import type { Socket } from "node:net";
import type { MemberId } from "../raft/types.ts";
import { NO_MEMBER } from "../raft/types.ts";
import type { CloseCause, Connection, ConnectionEvents } from "./connection.ts";
import { ProtocolError } from "./errors.ts";
import { FRAME, FrameReader, FrameWriter } from "./frame.ts";
import type { Frame } from "./frame.ts";
import { HANDSHAKE_BYTES_MAX } from "./handshake.ts";
import type { TransportContext } from "./options.ts";
import type { ConnectionPurpose } from "./types.ts";

const PING: Frame = emptyFrame(FRAME.ping);
const PONG: Frame = emptyFrame(FRAME.pong);
const CLOSE_GRACE_MS = 250;

function emptyFrame(kind: number): Frame {
  const writer = new FrameWriter();
  writer.begin(kind);
  return writer.finish();
}

/**
 * One socket that carries frames. The dialler pings it every interval and the acceptor answers; whoever hears
 * nothing for some intervals gives it up. Silence is counted in intervals that this process saw pass, not in clock
 * time, so that a process that was paused does not cut all its peers when it wakes.
 */
export class SocketConnection implements Connection {
  #peer: MemberId = NO_MEMBER;
  #purpose: ConnectionPurpose = "raft";
  /** Set by the handshake: larger frames are accepted from now on. */
  #established = false;
  readonly #socket: Socket;
  readonly #context: TransportContext;
  readonly #dialled: boolean;
  readonly #reader = new FrameReader(HANDSHAKE_BYTES_MAX);
  readonly #deliver: (kind: number, body: Buffer) => void;
  #events: ConnectionEvents;
  #silentIntervals = 0;
  #cause: CloseCause | undefined;
  #flushing = false;
  #graceTimer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, dialled: boolean, context: TransportContext, events: ConnectionEvents) {
    this.#socket = socket;
    this.#dialled = dialled;
    this.#context = context;
    this.#events = events;
    this.#deliver = (kind, body) => this.#frame(kind, body);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 10_000);
    socket.on("data", (chunk: Buffer) => this.#chunk(chunk));
    socket.on("end", () => this.#destroy({ kind: "peer", reason: "closed by the peer" }));
    socket.on("error", (error) => this.#destroy({ kind: "peer", reason: error.message }));
    socket.on("close", () => this.#closed());
  }

  get open(): boolean {
    return this.#cause === undefined;
  }

  get queuedBytes(): number {
    return this.#socket.writableLength;
  }

  establish(peer: MemberId, purpose: ConnectionPurpose, events: ConnectionEvents): void {
    this.#peer = peer;
    this.#purpose = purpose;
    this.#events = events;
    this.#established = true;
    this.#silentIntervals = 0;
    this.#reader.frameBytesMax = this.#context.bounds.frameBytesMax;
  }

  write(frame: Frame): void {
    if (this.#cause !== undefined || this.#dropped()) return;
    const { parts } = frame;
    const socket = this.#socket;
    const first = parts[0];
    if (parts.length === 1 && first !== undefined) {
      socket.write(first);
      return;
    }
    socket.cork();
    for (const part of parts) socket.write(part);
    socket.uncork();
  }

  corkForTurn(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#socket.cork();
    setImmediate(() => {
      this.#flushing = false;
      this.#socket.uncork();
    });
  }

  interval(): void {
    if (this.#cause !== undefined) return;
    this.#silentIntervals += 1;
    if (this.#silentIntervals > this.#context.bounds.silentIntervalsMax) {
      this.#destroy({ kind: "silent", reason: "no sign of life" });
    } else if (this.#established && this.#dialled) {
      this.write(PING);
    }
  }

  close(reason: string): void {
    if (this.#cause !== undefined) return;
    this.#cause = { kind: "ours", reason };
    this.#socket.destroySoon();
    this.#graceTimer = setTimeout(() => this.#socket.destroy(), CLOSE_GRACE_MS);
  }

  cut(reason: string): void {
    this.#destroy({ kind: "ours", reason });
  }

  #chunk(chunk: Buffer): void {
    if (this.#cause !== undefined) return;
    try {
      this.#reader.push(chunk, this.#deliver);
      this.#events.chunkEnd();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#context.log("warn", "closing a peer connection that broke the protocol", {
        peer: this.#peer,
        purpose: this.#purpose,
        reason: error.message,
      });
      this.#destroy({ kind: "protocol", reason: error.message });
    }
  }

  #frame(kind: number, body: Buffer): void {
    if (this.#cause !== undefined || this.#dropped()) return;
    // Before the handshake nothing counts as life: whoever only drips bytes is cut after the same time.
    if (this.#established) this.#silentIntervals = 0;
    if (kind === FRAME.ping && this.#established) this.write(PONG);
    else if (kind !== FRAME.pong || !this.#established) this.#events.frame(kind, body);
  }

  #dropped(): boolean {
    const { intercept } = this.#context;
    return (
      intercept !== undefined && this.#peer !== NO_MEMBER && intercept(this.#peer, this.#purpose) === "drop"
    );
  }

  #destroy(cause: CloseCause): void {
    this.#cause ??= cause;
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#graceTimer);
    this.#cause ??= { kind: "peer", reason: "closed" };
    this.#events.closed(this.#cause);
  }
}
