import type { MemberId } from "../../../cell/src/raft/types.ts";
import { NO_MEMBER } from "../../../cell/src/raft/types.ts";
import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import { FRAME_HEADER_BYTES } from "../../../cell/src/transport/frame.ts";
import type { Frame } from "../../../cell/src/transport/frame.ts";
import type { CloseCause, Connection, ConnectionEvents } from "../../../cell/src/transport/connection.ts";
import type { TransportContext } from "../../../cell/src/transport/options.ts";
import type { ConnectionPurpose } from "../../../cell/src/transport/types.ts";
import type { SimProcess } from "../contract.ts";
import type { StreamEnd, StreamHandler } from "./stream.ts";

export type PeerEnd = StreamEnd<Buffer, Buffer>;

const NOBODY: ConnectionEvents = {
  frame: () => undefined,
  chunkEnd: () => undefined,
  closed: () => undefined,
};

/**
 * A connection of production's peer transport over a simulated stream. Two things are not as on a socket. Raft messages
 * are datagrams beside the stream, one a frame, as long as it stands: harsher than TCP, where they arrive in order and
 * once; the core must bear both. And signs of life are not sent: once an interval it is looked at whether they would
 * have come.
 */
export class PeerSocket implements Connection, StreamHandler<Buffer> {
  readonly #process: SimProcess;
  readonly #context: TransportContext;
  readonly #dialled: boolean;
  #peer: MemberId = NO_MEMBER;
  #purpose: ConnectionPurpose | undefined;
  #events: ConnectionEvents = NOBODY;
  #end: PeerEnd | undefined;
  #silentIntervals = 0;
  #cause: CloseCause | undefined;

  constructor(process: SimProcess, dialled: boolean, context: TransportContext) {
    this.#process = process;
    this.#dialled = dialled;
    this.#context = context;
  }

  hear(events: ConnectionEvents): void {
    this.#events = events;
  }

  /** Connected; not yet shaken hands. */
  attach(end: PeerEnd): void {
    this.#end = end;
  }

  get open(): boolean {
    return this.#cause === undefined;
  }

  /** In the stream what waits for room; of datagrams whatever is under way, or waits for a paused receiver. */
  get queuedBytes(): number {
    const end = this.#end;
    return end === undefined ? 0 : end.waitingBytes + end.datagramBytes;
  }

  establish(peer: MemberId, purpose: ConnectionPurpose, events: ConnectionEvents): void {
    this.#peer = peer;
    this.#purpose = purpose;
    this.#events = events;
    this.#silentIntervals = 0;
  }

  write(frame: Frame): void {
    if (this.#cause !== undefined) return;
    // What goes the other way on it is the answer to the handshake.
    if (this.#purpose === "raft" && this.#dialled) this.#end?.sendDatagram(bytesOf(frame), frame.bytes);
    else this.#end?.send(bytesOf(frame), frame.bytes);
  }

  /** Sends are not buffered here. */
  corkForTurn(): void {
    return;
  }

  /** Called every ping interval of this process: a paused process counts none. */
  interval(): void {
    if (this.#cause !== undefined) return;
    const alive =
      this.#purpose !== undefined && this.#end?.alive(this.#dialled ? "answered" : "heard") === true;
    this.#silentIntervals = alive ? 0 : this.#silentIntervals + 1;
    if (this.#silentIntervals > this.#context.bounds.silentIntervalsMax) {
      this.#destroy({ kind: "silent", reason: "no sign of life" });
    }
  }

  /** Lets what is queued go out. */
  close(reason: string): void {
    if (this.#cause !== undefined) return;
    this.#cause = { kind: "ours", reason };
    this.#end?.close();
    this.#tellClosed();
  }

  /** Ends at once. */
  cut(reason: string): void {
    this.#destroy({ kind: "ours", reason });
  }

  /** The connection could not be made. */
  refuse(reason: string): void {
    this.#destroy({ kind: "peer", reason });
  }

  // ---- from the stream ----

  payload(bytes: Buffer): void {
    if (this.#cause !== undefined) return;
    const kind = bytes[FRAME_HEADER_BYTES - 1] ?? 0;
    if (this.#purpose !== undefined) this.#silentIntervals = 0;
    try {
      this.#events.frame(kind, bytes.subarray(FRAME_HEADER_BYTES));
      this.#events.chunkEnd();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const { message } = error;
      this.#context.log("warn", "closing a peer connection that broke the protocol", {
        ...{ peer: this.#peer, purpose: this.#purpose ?? "", reason: message },
      });
      this.#destroy({ kind: "protocol", reason: error.message });
    }
  }

  closed(reason: string): void {
    if (this.#cause !== undefined) return;
    this.#cause = { kind: "peer", reason };
    this.#events.closed(this.#cause);
  }

  #destroy(cause: CloseCause): void {
    if (this.#cause !== undefined) return;
    this.#cause = cause;
    this.#end?.cut();
    this.#tellClosed();
  }

  /** As the real one: in a later turn, for whatever cause. */
  #tellClosed(): void {
    this.#process.deliver(0, () => {
      if (this.#cause !== undefined) this.#events.closed(this.#cause);
    });
  }
}

/** One piece of memory that is nobody else's: a single part lies in a slab that is never written again. */
function bytesOf({ parts }: Frame): Buffer {
  const first = parts[0];
  return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
}
