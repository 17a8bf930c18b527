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
  readonly deadlineMs: number;
  readonly answer: ForwardAnswer;
}

/** Room for the frame header and the correlation id. */
const OVERHEAD_BYTES = 32;
/** Deadlines are looked at no more often than this, as in production. */
const SWEEP_MS_MIN = 20;

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
  /** One for all requests. */
  #cancelTimer: (() => void) | undefined;
  #timerDueMs = 0;

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
    const { bounds, process, now } = this.#context;
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
    const pending: Pending = { body, deadlineMs: now() + timeoutMs, answer };
    if (socket === undefined) {
      this.#waiting.add(pending);
      this.#waitingBytes += bytes;
    } else {
      this.#write(socket, pending);
    }
    this.#arm(pending.deadlineMs);
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
        pending.answer(reader.rest());
      },
      chunkEnd: (): void => undefined,
    };
  }

  #arm(deadlineMs: number): void {
    if (this.#cancelTimer !== undefined && this.#timerDueMs <= deadlineMs) return;
    this.#cancelTimer?.();
    this.#timerDueMs = deadlineMs;
    const pauseMs = Math.max(SWEEP_MS_MIN, Math.ceil(deadlineMs - this.#context.now()));
    this.#cancelTimer = this.#context.process.after(pauseMs, () => this.#sweep());
  }

  #sweep(): void {
    this.#cancelTimer = undefined;
    const nowMs = this.#context.now();
    const late: (() => void)[] = [];
    let nextMs = Infinity;
    for (const [id, pending] of this.#inFlight) {
      if (pending.deadlineMs > nowMs) {
        nextMs = Math.min(nextMs, pending.deadlineMs);
        continue;
      }
      this.#inFlight.delete(id);
      late.push(() => pending.answer(undefined));
    }
    for (const pending of this.#waiting) {
      if (pending.deadlineMs > nowMs) {
        nextMs = Math.min(nextMs, pending.deadlineMs);
        continue;
      }
      this.#waiting.delete(pending);
      this.#waitingBytes -= pending.body.length + OVERHEAD_BYTES;
      late.push(() => pending.answer("unsent"));
    }
    if (nextMs !== Infinity) this.#arm(nextMs);
    for (const tell of late) tell();
  }

  /** No timer without a request. */
  #rest(): void {
    if (this.#inFlight.size > 0 || this.#waiting.size > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #lost(): void {
    const lost = [...this.#inFlight.values()];
    this.#inFlight.clear();
    for (const pending of lost) pending.answer(undefined);
    this.#rest();
  }

  #unsent(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    this.#waitingBytes = 0;
    for (const pending of waiting) pending.answer("unsent");
    this.#rest();
  }
}
