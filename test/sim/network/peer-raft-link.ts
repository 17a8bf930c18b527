import type { MemberId, Message } from "../../../cell/src/raft/types.ts";
import { encodeMessages, encodeNotice, encodedBytesBound } from "../../../cell/src/transport/codec.ts";
import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import type { Frame, FrameWriter } from "../../../cell/src/transport/frame.ts";
import type { PeerAddress, PeerNotice } from "../../../cell/src/transport/types.ts";
import { PeerDialler } from "./peer-dialler.ts";
import type { PeerContext } from "./peer-dialler.ts";
import type { PeerSocket } from "./peer-socket.ts";

/**
 * Raft messages to one peer: one datagram per turn, while a connection to it stands. Harsher than production, where
 * they arrive in order and once as long as the connection lives: the core must bear both.
 */
export class PeerRaftLink {
  readonly #peer: MemberId;
  readonly #context: PeerContext;
  readonly #writer: FrameWriter;
  readonly #dialler: PeerDialler;
  #outbox: Message[] = [];
  /** Frames of the first moments, until the connection that is being made is up. */
  #held: Frame[] = [];
  #heldBytes = 0;
  #unreachableDue = false;

  constructor(peer: PeerAddress, context: PeerContext, writer: FrameWriter) {
    const { handlers } = context;
    this.#peer = peer.memberId;
    this.#context = context;
    this.#writer = writer;
    this.#dialler = new PeerDialler(peer, "raft", context, {
      up: (socket) => this.#up(socket),
      down: (cause) => {
        if (cause.kind === "peer" || cause.kind === "silent") handlers.disconnected(peer.memberId);
      },
      failed: () => {
        this.#dropHeld();
        handlers.unreachable(peer.memberId);
      },
      refused: (reason) => handlers.refused(peer.memberId, reason),
    });
  }

  get connected(): boolean {
    return this.#dialler.socket !== undefined;
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

  flush(): void {
    const messages = this.#outbox;
    this.#outbox = [];
    let bytes = 0;
    for (const message of messages) bytes += encodedBytesBound(message);
    if (!this.#accepts(bytes)) this.#tellUnreachable();
    else if (bytes <= this.#context.bounds.frameBytesMax) this.#write(encodeMessages(messages, this.#writer));
    else for (const message of messages) this.#writeAlone(message);
  }

  notify(notice: PeerNotice): void {
    if (this.#accepts(64)) this.#write(encodeNotice(notice, this.#writer));
  }

  /** A turn that exceeds a frame is rare: each message gets a frame of its own. */
  #writeAlone(message: Message): void {
    if (encodedBytesBound(message) > this.#context.bounds.frameBytesMax) this.#tellUnreachable();
    else this.#write(encodeMessages([message], this.#writer));
  }

  #accepts(bytes: number): boolean {
    const { raftQueueBytesMax } = this.#context.bounds;
    const { socket } = this.#dialler;
    if (socket !== undefined) {
      const queued = socket.datagramBytes;
      return queued === 0 || queued + bytes <= raftQueueBytesMax;
    }
    return this.#dialler.connecting && this.#heldBytes + bytes <= raftQueueBytesMax;
  }

  #write(frame: Frame): void {
    const { socket } = this.#dialler;
    if (socket !== undefined) {
      socket.writeDatagram(frame);
      return;
    }
    this.#held.push(frame);
    this.#heldBytes += frame.bytes;
  }

  #up(socket: PeerSocket) {
    const held = this.#held;
    this.#dropHeld();
    for (const frame of held) socket.writeDatagram(frame);
    return {
      frame: (kind: number): void => {
        throw new ProtocolError(`frame ${kind} on an outgoing Raft stream`);
      },
      chunkEnd: (): void => undefined,
    };
  }

  #dropHeld(): void {
    this.#held = [];
    this.#heldBytes = 0;
  }

  /** Once per turn at most, and never from within `send`. */
  #tellUnreachable(): void {
    if (this.#unreachableDue) return;
    this.#unreachableDue = true;
    this.#context.process.deliver(0, () => {
      this.#unreachableDue = false;
      this.#context.handlers.unreachable(this.#peer);
    });
  }
}
