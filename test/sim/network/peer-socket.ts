import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import { FRAME, FRAME_HEADER_BYTES } from "../../../cell/src/transport/frame.ts";
import type { Frame } from "../../../cell/src/transport/frame.ts";
import type { CloseCause, Connection, ConnectionEvents } from "../../../cell/src/transport/connection.ts";
import type { TransportContext } from "../../../cell/src/transport/options.ts";
import type { ConnectionPurpose } from "../../../cell/src/transport/types.ts";
import type { SimProcess } from "../contract.ts";
import type { StreamEnd, StreamHandler } from "./stream.ts";

export type PeerEnd = StreamEnd<Buffer, Buffer>;

/**
 * What production's `Connection` is to its links and receptions, over a simulated stream. Signs of life are not sent:
 * once an interval it is looked at whether they would have come.
 */
export class PeerSocket implements StreamHandler<Buffer> {
  purpose: ConnectionPurpose = "raft";
  readonly #process: SimProcess;
  readonly #context: TransportContext;
  readonly #dialled: boolean;
  #events: ConnectionEvents;
  #end: PeerEnd | undefined;
  #established = false;
  #silentIntervals = 0;
  #cause: CloseCause | undefined;

  constructor(process: SimProcess, dialled: boolean, context: TransportContext, events: ConnectionEvents) {
    this.#process = process;
    this.#dialled = dialled;
    this.#context = context;
    this.#events = events;
  }

  /** Connected; not yet shaken hands. */
  attach(end: PeerEnd): void {
    this.#end = end;
  }

  get open(): boolean {
    return this.#cause === undefined;
  }

  get queuedBytes(): number {
    return this.#end?.waitingBytes ?? 0;
  }

  /** Bytes of datagrams under way, or waiting for a paused receiver. */
  get datagramBytes(): number {
    return this.#end?.datagramBytes ?? 0;
  }

  /** For production code that takes its own class: it uses nothing but what is here. */
  get asConnection(): Connection {
    return this as unknown as Connection;
  }

  establish(purpose: ConnectionPurpose, events: ConnectionEvents): void {
    this.purpose = purpose;
    this.#events = events;
    this.#established = true;
    this.#silentIntervals = 0;
  }

  write(frame: Frame): void {
    if (this.#cause === undefined) this.#end?.send(bytesOf(frame), frame.bytes);
  }

  /** Not in the stream: may be lost, doubled or overtaken. */
  writeDatagram(frame: Frame): void {
    if (this.#cause === undefined) this.#end?.sendDatagram(bytesOf(frame), frame.bytes);
  }

  /** Sends are not buffered here. */
  corkForTurn(): void {
    return;
  }

  /** Called every ping interval of this process: a paused process counts none. */
  interval(): void {
    if (this.#cause !== undefined) return;
    const alive = this.#established && this.#end?.alive(this.#dialled ? "answered" : "heard") === true;
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
    if (this.#established) this.#silentIntervals = 0;
    try {
      if (kind !== FRAME.pong) this.#events.frame(kind, bytes.subarray(FRAME_HEADER_BYTES));
      this.#events.chunkEnd();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const { purpose } = this;
      this.#context.log("warn", "closing a peer connection that broke the protocol", {
        purpose,
        reason: error.message,
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
