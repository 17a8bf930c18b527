import type { MemberId } from "../raft/types.ts";
import type { Connection, ConnectionEvents } from "./connection.ts";
import { ProtocolError } from "./errors.ts";
import { BodyReader, FRAME, FrameWriter } from "./frame.ts";
import type { TransportContext } from "./options.ts";
import type { SnapshotReceiver } from "./types.ts";

interface Reception {
  readonly from: MemberId;
  readonly id: string;
  readonly receiver: SnapshotReceiver;
  phase: "receiving" | "finishing" | "finished";
  /** undefined: the connection broke; the sender may come back with the same id. */
  connection: Connection | undefined;
  /** The next chunk the receiver has not taken in. */
  next: number;
  /** Received on the present connection, not yet given to the receiver. */
  queue: Buffer[];
  busy: boolean;
  /** A resumed stream waits with its `accept` until the chunk in hand is taken in. */
  acceptDue: boolean;
  /** All chunks of the present connection were announced as sent. */
  finishAsked: boolean;
  activeMs: number;
}

/**
 * The receiving ends of snapshot streams, one per peer. A broken connection does not end a reception: it is kept
 * for the stall time, and an offer with the same id goes on where it was.
 */
export class SnapshotInbox {
  readonly #context: TransportContext;
  readonly #writer = new FrameWriter();
  readonly #receptions = new Map<MemberId, Reception>();

  constructor(context: TransportContext) {
    this.#context = context;
  }

  /** Handles the frames of a snapshot stream that `from` dialled. */
  reception(from: MemberId, connection: Connection): ConnectionEvents {
    let reception: Reception | undefined;
    return {
      frame: (kind, body) => {
        const reader = new BodyReader(body);
        if (kind === FRAME.offer && reception === undefined) {
          reception = this.#offer(from, connection, { id: reader.string(), header: reader.bytes() });
          return;
        }
        if (reception === undefined) throw new ProtocolError(`frame ${kind} before a snapshot's offer`);
        // Another connection took over, or it was aborted here.
        if (reception.connection !== connection) return;
        this.#frame(reception, kind, reader);
      },
      chunkEnd: () => undefined,
      closed: () => {
        if (reception?.connection === connection) this.#park(reception);
      },
    };
  }

  /** Called every ping interval: gives up what stands still. */
  interval(): void {
    const { now, bounds } = this.#context;
    for (const reception of this.#receptions.values()) {
      const idleMs = now() - reception.activeMs;
      if (reception.phase === "finished" && idleMs > bounds.snapshotStallMsMax) {
        this.#receptions.delete(reception.from);
      } else if (reception.phase === "receiving" && !reception.busy && idleMs > bounds.snapshotStallMsMax) {
        this.#abort(reception, "no progress");
      }
    }
  }

  /** The peer was removed. */
  drop(from: MemberId, reason: string): void {
    const reception = this.#receptions.get(from);
    if (reception !== undefined) this.#abort(reception, reason);
  }

  close(reason: string): void {
    for (const reception of [...this.#receptions.values()]) this.#abort(reception, reason);
  }

  #offer(
    from: MemberId,
    connection: Connection,
    offer: { readonly id: string; readonly header: Buffer },
  ): Reception | undefined {
    const old = this.#receptions.get(from);
    if (old?.id === offer.id) {
      this.#resume(old, connection);
      return old;
    }
    if (old !== undefined) this.#abort(old, "the sender began another snapshot");
    const receiver = this.#context.handlers.snapshot(from, offer);
    if (receiver === undefined) {
      this.#writeText(connection, FRAME.abort, "the receiver does not take this snapshot");
      connection.close("snapshot not taken");
      return undefined;
    }
    const reception: Reception = {
      from,
      id: offer.id,
      receiver,
      phase: "receiving",
      connection,
      next: receiver.nextChunk,
      queue: [],
      busy: false,
      acceptDue: false,
      finishAsked: false,
      activeMs: this.#context.now(),
    };
    this.#receptions.set(from, reception);
    this.#writeNumber(connection, FRAME.accept, reception.next);
    return reception;
  }

  #resume(reception: Reception, connection: Connection): void {
    reception.connection?.cut("the sender opened another connection");
    this.#park(reception);
    reception.connection = connection;
    if (reception.phase === "finished") this.#writeNumber(connection, FRAME.done, 0);
    else if (reception.busy && reception.phase === "receiving") reception.acceptDue = true;
    else this.#writeNumber(connection, FRAME.accept, reception.next);
  }

  /** Unacknowledged chunks come again on the next connection. */
  #park(reception: Reception): void {
    reception.connection = undefined;
    reception.queue = [];
    reception.acceptDue = false;
    reception.finishAsked = false;
    reception.activeMs = this.#context.now();
  }

  #frame(reception: Reception, kind: number, reader: BodyReader): void {
    reception.activeMs = this.#context.now();
    switch (kind) {
      case FRAME.chunk: {
        const number = reader.varint();
        if (number !== reception.next + reception.queue.length + (reception.busy ? 1 : 0)) {
          throw new ProtocolError(`chunk ${number} out of turn`);
        }
        if (reception.finishAsked || reception.phase !== "receiving") {
          throw new ProtocolError("a chunk after the last one");
        }
        if (reception.queue.length >= this.#context.bounds.snapshotWindowChunks) {
          throw new ProtocolError("more chunks than the window allows");
        }
        reception.queue.push(reader.rest());
        break;
      }
      case FRAME.finish:
        if (reader.varint() !== reception.next + reception.queue.length + (reception.busy ? 1 : 0)) {
          if (reception.phase === "receiving") throw new ProtocolError("chunks are missing at the end");
        }
        reception.finishAsked = true;
        break;
      case FRAME.abort:
        this.#abort(reception, `the sender gave up: ${reader.string()}`);
        return;
      default:
        throw new ProtocolError(`frame ${kind} on a snapshot stream`);
    }
    if (!reception.busy) void this.#work(reception);
  }

  /** Takes in what is queued, one chunk after the other, then finishes. */
  async #work(reception: Reception): Promise<void> {
    reception.busy = true;
    try {
      while (this.#receptions.get(reception.from) === reception) {
        const data = reception.queue.shift();
        if (data !== undefined) {
          await reception.receiver.chunk(data);
          this.#takenIn(reception);
        } else if (reception.finishAsked && reception.phase === "receiving") {
          reception.phase = "finishing";
          await reception.receiver.finish();
          this.#installed(reception);
        } else {
          break;
        }
      }
    } catch (error) {
      this.#failed(reception, error);
    } finally {
      reception.busy = false;
    }
  }

  #takenIn(reception: Reception): void {
    const number = reception.next;
    reception.next = number + 1;
    reception.activeMs = this.#context.now();
    const { connection } = reception;
    if (connection === undefined) return;
    if (reception.acceptDue) {
      reception.acceptDue = false;
      this.#writeNumber(connection, FRAME.accept, reception.next);
    } else {
      this.#writeNumber(connection, FRAME.taken, number);
    }
  }

  #installed(reception: Reception): void {
    reception.phase = "finished";
    reception.activeMs = this.#context.now();
    if (reception.connection !== undefined) this.#writeNumber(reception.connection, FRAME.done, 0);
  }

  #failed(reception: Reception, error: unknown): void {
    if (this.#receptions.get(reception.from) !== reception) return;
    const cause = error instanceof Error ? error : new Error(String(error));
    this.#abort(reception, cause.message, cause);
  }

  /** Both sides are told. */
  #abort(reception: Reception, reason: string, cause?: Error): void {
    this.#receptions.delete(reception.from);
    const { connection } = reception;
    reception.connection = undefined;
    reception.queue = [];
    if (connection !== undefined) {
      this.#writeText(connection, FRAME.abort, reason);
      connection.close(reason);
    }
    if (reception.phase === "finished") return;
    this.#context.log("warn", "a snapshot reception ended early", { peer: reception.from, reason });
    reception.receiver.abort(cause ?? new Error(reason));
  }

  #writeNumber(connection: Connection, kind: number, value: number): void {
    this.#writer.begin(kind);
    this.#writer.varint(value);
    connection.write(this.#writer.finish());
  }

  #writeText(connection: Connection, kind: number, text: string): void {
    this.#writer.begin(kind);
    this.#writer.string(text);
    connection.write(this.#writer.finish());
  }
}
