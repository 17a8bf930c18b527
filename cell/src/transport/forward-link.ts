import type { MemberId } from "../raft/types.ts";
import type { Connection, ConnectionEvents } from "./connection.ts";
import { Dialler } from "./dialler.ts";
import { ProtocolError } from "./errors.ts";
import { BodyReader, FRAME } from "./frame.ts";
import type { FrameWriter } from "./frame.ts";
import type { TransportContext } from "./options.ts";
import type { PeerAddress } from "./types.ts";

export type ForwardAnswer = (body: Uint8Array | undefined | "unsent") => void;

interface Pending {
  readonly body: Uint8Array;
  readonly deadlineMs: number;
  readonly answer: ForwardAnswer;
}

/** Room for the frame header and the correlation id. */
const OVERHEAD_BYTES = 32;
/** Deadlines are looked at no more often than this. */
const SWEEP_MS_MIN = 20;

/**
 * Forwarded requests to one peer. A request is `unsent` only while its bytes were never given to a socket; after
 * that a broken connection or a deadline leaves its fate open, and the caller is told `undefined`.
 */
export class ForwardLink {
  readonly #dialler: Dialler;
  readonly #context: TransportContext;
  readonly #writer: FrameWriter;
  readonly #inFlight = new Map<number, Pending>();
  /** Asked while the connection is being made. */
  #waiting: Pending[] = [];
  #waitingBytes = 0;
  #nextId = 1;
  /** Calls off the one timer for all deadlines. */
  #cancelTimer: (() => void) | undefined;
  #timerDueMs = 0;

  constructor(peer: PeerAddress, context: TransportContext, writer: FrameWriter) {
    this.#context = context;
    this.#writer = writer;
    this.#dialler = new Dialler({ peer, purpose: "forward" }, context, {
      up: (connection) => this.#up(connection),
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
    // Not from within the call that stops us: see TransportHandlers.
    this.#context.timers.soon(() => {
      this.#unsent();
      this.#lost();
    });
  }

  request(body: Uint8Array, timeoutMs: number, answer: ForwardAnswer): void {
    const { bounds, now, timers } = this.#context;
    const connection = this.#dialler.connection;
    const bytes = body.length + OVERHEAD_BYTES;
    const full =
      bytes > bounds.frameBytesMax ||
      this.#inFlight.size + this.#waiting.length >= bounds.requestsInFlightMax ||
      (connection?.queuedBytes ?? this.#waitingBytes) + bytes > bounds.forwardQueueBytesMax;
    if (full || (connection === undefined && !this.#dialler.connecting)) {
      timers.soon(() => answer("unsent"));
      return;
    }
    const pending: Pending = { body, deadlineMs: now() + timeoutMs, answer };
    if (connection === undefined) {
      this.#waiting.push(pending);
      this.#waitingBytes += bytes;
    } else {
      this.#write(connection, pending);
    }
    this.#arm(pending.deadlineMs);
  }

  #write(connection: Connection, pending: Pending): void {
    const id = this.#nextId;
    this.#nextId = id + 1;
    this.#inFlight.set(id, pending);
    connection.corkForTurn();
    connection.write(encodeCorrelated(this.#writer, FRAME.request, id, pending.body));
  }

  #up(connection: Connection): Omit<ConnectionEvents, "closed"> {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (const pending of waiting) this.#write(connection, pending);
    return {
      frame: (kind, body) => {
        if (kind !== FRAME.answer) throw new ProtocolError(`frame ${kind} on an outgoing forwarding stream`);
        const reader = new BodyReader(body);
        const id = reader.varint();
        const pending = this.#inFlight.get(id);
        // Unknown: it timed out before.
        if (pending === undefined) return;
        this.#inFlight.delete(id);
        pending.answer(reader.rest());
      },
      chunkEnd: () => undefined,
    };
  }

  #lost(): void {
    const lost = [...this.#inFlight.values()];
    this.#inFlight.clear();
    for (const pending of lost) pending.answer(undefined);
    this.#rest();
  }

  #unsent(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (const pending of waiting) pending.answer("unsent");
    this.#rest();
  }

  /** No timer without a request. */
  #rest(): void {
    if (this.#inFlight.size > 0 || this.#waiting.length > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #arm(deadlineMs: number): void {
    if (this.#cancelTimer !== undefined && this.#timerDueMs <= deadlineMs) return;
    this.#cancelTimer?.();
    this.#timerDueMs = deadlineMs;
    const pauseMs = Math.max(SWEEP_MS_MIN, Math.ceil(deadlineMs - this.#context.now()));
    this.#cancelTimer = this.#context.timers.after(pauseMs, () => this.#sweep());
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
    this.#waiting = this.#waiting.filter((pending) => {
      if (pending.deadlineMs > nowMs) {
        nextMs = Math.min(nextMs, pending.deadlineMs);
        return true;
      }
      this.#waitingBytes -= pending.body.length + OVERHEAD_BYTES;
      late.push(() => pending.answer("unsent"));
      return false;
    });
    if (nextMs !== Infinity) this.#arm(nextMs);
    for (const tell of late) tell();
  }
}

function encodeCorrelated(writer: FrameWriter, kind: number, id: number, body: Uint8Array) {
  writer.begin(kind);
  writer.varint(id);
  writer.raw(body);
  return writer.finish();
}

/** Handles the frames of a forwarding stream that `from` dialled. */
export function forwardReception(
  from: MemberId,
  connection: Connection,
  context: TransportContext,
  writer: FrameWriter,
): Omit<ConnectionEvents, "closed"> {
  const { handlers, bounds, log } = context;
  let open = 0;
  const answerer = (id: number): ((body: Uint8Array) => void) => {
    let answered = false;
    return (body) => {
      if (answered) {
        log("warn", "a forwarded request was answered twice", { peer: from });
        return;
      }
      answered = true;
      open -= 1;
      if (!connection.open) return;
      const bytes = body.length + OVERHEAD_BYTES;
      if (bytes > bounds.frameBytesMax || connection.queuedBytes + bytes > bounds.forwardQueueBytesMax) {
        // An answer cannot be dropped silently: the asker learns from the broken connection.
        connection.cut("answers pile up");
        return;
      }
      connection.corkForTurn();
      connection.write(encodeCorrelated(writer, FRAME.answer, id, body));
    };
  };
  return {
    frame: (kind, body) => {
      if (kind !== FRAME.request) throw new ProtocolError(`frame ${kind} on a forwarding stream`);
      // Twice: requests that timed out at the asker no longer count there, but still do here.
      if (open >= bounds.requestsInFlightMax * 2) throw new ProtocolError("too many requests in flight");
      const reader = new BodyReader(body);
      const id = reader.varint();
      open += 1;
      handlers.request(from, reader.rest(), answerer(id));
    },
    chunkEnd: () => undefined,
  };
}
