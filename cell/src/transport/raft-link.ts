import type { MemberId, Message } from "../raft/types.ts";
import { decodeMessages, decodeNotice, encodeMessages, encodeNotice, encodedBytesBound } from "./codec.ts";
import type { Connection, ConnectionEvents } from "./connection.ts";
import { Dialler } from "./dialler.ts";
import { ProtocolError } from "./errors.ts";
import { FRAME } from "./frame.ts";
import type { Frame, FrameWriter } from "./frame.ts";
import type { TransportContext } from "./options.ts";
import type { PeerAddress, PeerNotice } from "./types.ts";

/**
 * The outgoing Raft stream to one peer. Answers come on the stream that the peer dials. Nothing here waits: what
 * cannot be queued is dropped and told, because Raft tolerates loss (R56) and a stalled loop it does not.
 */
export class RaftLink {
  readonly #dialler: Dialler;
  readonly #context: TransportContext;
  readonly #writer: FrameWriter;
  readonly #peer: MemberId;
  #outbox: Message[] = [];
  /** Frames of the first moments, until the connection that is being made is up. */
  #held: Frame[] = [];
  #heldBytes = 0;
  #unreachableTold = false;

  constructor(peer: PeerAddress, context: TransportContext, writer: FrameWriter) {
    this.#context = context;
    this.#writer = writer;
    this.#peer = peer.memberId;
    this.#dialler = new Dialler({ peer, purpose: "raft" }, context, {
      up: (connection) => this.#up(connection),
      down: (cause) => {
        if (cause.kind === "peer" || cause.kind === "silent") context.handlers.disconnected(peer.memberId);
      },
      failed: () => {
        this.#dropHeld();
        context.handlers.unreachable(peer.memberId);
      },
      refused: (reason) => context.handlers.refused(peer.memberId, reason),
    });
  }

  get connected(): boolean {
    return this.#dialler.connection !== undefined;
  }

  start(): void {
    this.#dialler.start();
  }

  kick(): void {
    this.#dialler.kick();
  }

  stop(reason: string): void {
    this.#dropHeld();
    this.#dialler.stop(reason);
  }

  /** @returns whether this is the first message since the last {@link flush}. */
  add(message: Message): boolean {
    return this.#outbox.push(message) === 1;
  }

  /** Sends what was added as one frame (more only if it exceeds what a frame may hold). */
  flush(): void {
    const messages = this.#outbox;
    this.#outbox = [];
    let bytes = 0;
    for (const message of messages) bytes += encodedBytesBound(message);
    if (!this.#accepts(bytes)) {
      this.#tellUnreachable();
      return;
    }
    if (bytes <= this.#context.bounds.frameBytesMax) this.#write(encodeMessages(messages, this.#writer));
    else this.#writeSplit(messages);
  }

  notify(notice: PeerNotice): void {
    if (this.#accepts(64)) this.#write(encodeNotice(notice, this.#writer));
  }

  #accepts(bytes: number): boolean {
    const { raftQueueBytesMax } = this.#context.bounds;
    const connection = this.#dialler.connection;
    if (connection !== undefined) {
      const queued = connection.queuedBytes;
      // One turn may exceed the bound by itself: it goes when nothing is in front of it.
      return queued === 0 || queued + bytes <= raftQueueBytesMax;
    }
    return this.#dialler.connecting && this.#heldBytes + bytes <= raftQueueBytesMax;
  }

  #write(frame: Frame): void {
    const connection = this.#dialler.connection;
    if (connection !== undefined) {
      connection.write(frame);
      return;
    }
    this.#held.push(frame);
    this.#heldBytes += frame.bytes;
  }

  #writeSplit(messages: readonly Message[]): void {
    const { frameBytesMax } = this.#context.bounds;
    let group: Message[] = [];
    let groupBytes = 0;
    for (const message of messages) {
      const bytes = encodedBytesBound(message);
      if (bytes > frameBytesMax) {
        this.#context.log("warn", "dropping a message larger than a frame", { peer: this.#peer, bytes });
        this.#tellUnreachable();
        continue;
      }
      if (groupBytes + bytes > frameBytesMax) {
        this.#write(encodeMessages(group, this.#writer));
        group = [];
        groupBytes = 0;
      }
      group.push(message);
      groupBytes += bytes;
    }
    if (group.length > 0) this.#write(encodeMessages(group, this.#writer));
  }

  #up(connection: Connection): Omit<ConnectionEvents, "closed"> {
    const held = this.#held;
    this.#dropHeld();
    for (const frame of held) connection.write(frame);
    return {
      frame: (kind) => {
        throw new ProtocolError(`frame ${kind} on an outgoing Raft stream`);
      },
      chunkEnd: () => undefined,
    };
  }

  #dropHeld(): void {
    this.#held = [];
    this.#heldBytes = 0;
  }

  /** Once per turn at most, and never from within `send`. */
  #tellUnreachable(): void {
    if (this.#unreachableTold) return;
    this.#unreachableTold = true;
    this.#context.timers.soon(() => {
      this.#unreachableTold = false;
      this.#context.handlers.unreachable(this.#peer);
    });
  }
}

/** Handles the frames of a Raft stream that `from` dialled. */
export function raftReception(from: MemberId, context: TransportContext): Omit<ConnectionEvents, "closed"> {
  const { handlers, identity } = context;
  let batch: Message[] = [];
  const handOver = (): void => {
    if (batch.length === 0) return;
    const messages = batch;
    batch = [];
    handlers.messages(from, messages);
  };
  return {
    frame: (kind, body) => {
      if (kind === FRAME.messages) {
        const first = batch.length;
        decodeMessages(body, batch);
        // R28: a peer speaks for itself and to this member only.
        for (let i = first; i < batch.length; i++) {
          const message = batch[i];
          if (message?.from !== from || message.to !== identity.memberId) {
            throw new ProtocolError("message with another sender or receiver than its connection");
          }
        }
      } else if (kind === FRAME.notice) {
        handOver();
        handlers.notice(from, decodeNotice(body));
      } else {
        throw new ProtocolError(`frame ${kind} on a Raft stream`);
      }
    },
    chunkEnd: handOver,
  };
}
