import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import { BodyReader, FRAME } from "../../../cell/src/transport/frame.ts";
import type { FrameWriter } from "../../../cell/src/transport/frame.ts";
import type { ForwardAnswer } from "../../../cell/src/transport/forward-link.ts";
import type { PeerAddress } from "../../../cell/src/transport/types.ts";
import { PeerDialler } from "./peer-dialler.ts";
import type { PeerContext } from "./peer-dialler.ts";
import type { PeerSocket } from "./peer-socket.ts";

interface Pending {
  readonly body: Uint8Array;
  readonly answer: ForwardAnswer;
  cancelTimer: () => void;
}

/** Room for the frame header and the correlation id. */
const OVERHEAD_BYTES = 32;
/** Production looks at deadlines no more often than this. */
const TIMEOUT_MS_MIN = 20;

/**
 * Forwarded requests to one peer: `unsent` only while nothing was given to a connection, `undefined` when its fate is
 * open. The stream delivers each at most once.
 */
export class PeerForwardLink {
  readonly #context: PeerContext;
  readonly #writer: FrameWriter;
  readonly #dialler: PeerDialler;
  readonly #inFlight = new Map<number, Pending>();
  /** Asked while the connection is being made. */
  readonly #waiting = new Set<Pending>();
  #waitingBytes = 0;
  #nextId = 1;

  constructor(peer: PeerAddress, context: PeerContext, writer: FrameWriter) {
    this.#context = context;
    this.#writer = writer;
    this.#dialler = new PeerDialler(peer, "forward", context, {
      up: (socket) => this.#up(socket),
      down: () => this.#lost(),
      failed: () => this.#unsent(),
      refused: () => undefined,
    });
  }

  start(): void {
    this.#dialler.start();
  }

  kick(): void {
    this.#dialler.kick();
  }

  stop(reason: string): void {
    this.#dialler.stop(reason);
    this.#context.process.deliver(0, () => {
      this.#unsent();
      this.#lost();
    });
  }

  request(body: Uint8Array, timeoutMs: number, answer: ForwardAnswer): void {
    const { bounds, process } = this.#context;
    const { socket, connecting } = this.#dialler;
    const bytes = body.length + OVERHEAD_BYTES;
    const full =
      bytes > bounds.frameBytesMax ||
      this.#inFlight.size + this.#waiting.size >= bounds.requestsInFlightMax ||
      (socket?.queuedBytes ?? this.#waitingBytes) + bytes > bounds.forwardQueueBytesMax;
    if (full || (socket === undefined && !connecting)) {
      process.deliver(0, () => answer("unsent"));
      return;
    }
    const pending: Pending = { body, answer, cancelTimer: () => undefined };
    const timer = (): void => this.#timedOut(pending);
    pending.cancelTimer = process.after(Math.max(TIMEOUT_MS_MIN, timeoutMs), timer);
    if (socket === undefined) {
      this.#waiting.add(pending);
      this.#waitingBytes += bytes;
    } else {
      this.#write(socket, pending);
    }
  }

  #write(socket: PeerSocket, pending: Pending): void {
    const id = this.#nextId;
    this.#nextId = id + 1;
    this.#inFlight.set(id, pending);
    this.#writer.begin(FRAME.request);
    this.#writer.varint(id);
    this.#writer.raw(pending.body);
    socket.write(this.#writer.finish());
  }

  #up(socket: PeerSocket) {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    this.#waitingBytes = 0;
    for (const pending of waiting) this.#write(socket, pending);
    return {
      frame: (kind: number, body: Buffer): void => {
        if (kind !== FRAME.answer) throw new ProtocolError(`frame ${kind} on an outgoing forwarding stream`);
        const reader = new BodyReader(body);
        const id = reader.varint();
        const pending = this.#inFlight.get(id);
        // Unknown: it timed out before.
        if (pending === undefined) return;
        this.#inFlight.delete(id);
        pending.cancelTimer();
        pending.answer(reader.rest());
      },
      chunkEnd: (): void => undefined,
    };
  }

  #timedOut(pending: Pending): void {
    if (this.#waiting.delete(pending)) {
      this.#waitingBytes -= pending.body.length + OVERHEAD_BYTES;
      pending.answer("unsent");
      return;
    }
    for (const [id, other] of this.#inFlight) {
      if (other !== pending) continue;
      this.#inFlight.delete(id);
      pending.answer(undefined);
      return;
    }
  }

  #lost(): void {
    const lost = [...this.#inFlight.values()];
    this.#inFlight.clear();
    for (const pending of lost) {
      pending.cancelTimer();
      pending.answer(undefined);
    }
  }

  #unsent(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    this.#waitingBytes = 0;
    for (const pending of waiting) {
      pending.cancelTimer();
      pending.answer("unsent");
    }
  }
}
