import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";

/** So much is with the HTTP/2 stream at a time; the rest waits here. */
const SLICE_BYTES = 16 * 1024;
/** After so many bytes a ping asks whether they have arrived. */
const MARK_BYTES = 16 * 1024;
/**
 * Pings under way: beyond so many, the rest waits here. What is ahead of it in our own system delays the answers to the
 * peer's pings as well, and a peer that gets none takes us for dead.
 */
export const MARKS_MAX = 16;

interface UploadEvents {
  /** What was sent before this has arrived, so many bytes of it since the last time. */
  arrived(bytes: number): void;
  /** What waits has become less than half of `unsentBytesMax`, after it was more than that. */
  drained(): void;
}

/**
 * What goes up on a stream: in slices, with a ping after each, so that the peer's answers tell how much has arrived. What
 * our own system takes tells nothing: it takes megabytes for a peer that is long dead.
 */
export class Upload {
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #unsentBytesMax: number;
  readonly #events: UploadEvents;
  readonly #queue: Buffer[] = [];
  #queueBytes = 0;
  #unmarkedBytes = 0;
  #marks = 0;
  #isHeldBack = false;
  #isFinished = false;

  constructor(
    on: {
      readonly session: ClientHttp2Session;
      readonly stream: ClientHttp2Stream;
      readonly unsentBytesMax: number;
    },
    events: UploadEvents,
  ) {
    this.#session = on.session;
    this.#stream = on.stream;
    this.#unsentBytesMax = on.unsentBytesMax;
    this.#events = events;
  }

  /** @returns false: hold back until it has drained */
  send(bytes: Buffer): boolean {
    this.#queue.push(bytes);
    this.#queueBytes += bytes.length;
    this.#pump();
    this.#isHeldBack ||= this.#unsentBytes >= this.#unsentBytesMax;
    return !this.#isHeldBack;
  }

  /** Ends the stream after what waits. */
  finish(): void {
    this.#isFinished = true;
    this.#pump();
  }

  get #unsentBytes(): number {
    return this.#queueBytes + this.#stream.writableLength;
  }

  #pump(): void {
    while (this.#mayWrite) {
      const next = this.#queue[0];
      if (next === undefined) {
        if (this.#isFinished && !this.#stream.writableEnded) this.#stream.end();
        return;
      }
      const slice = next.subarray(0, SLICE_BYTES);
      if (slice.length === next.length) this.#queue.shift();
      else this.#queue[0] = next.subarray(SLICE_BYTES);
      this.#queueBytes -= slice.length;
      this.#stream.write(slice, (error) => {
        if (error === null || error === undefined) this.#left(slice.length);
      });
    }
  }

  get #mayWrite(): boolean {
    if (this.#stream.writableLength >= SLICE_BYTES) return false;
    // After GOAWAY there are no pings any more.
    return this.#marks < MARKS_MAX || this.#session.closed;
  }

  #left(bytes: number): void {
    this.#unmarkedBytes += bytes;
    if (this.#unmarkedBytes >= MARK_BYTES) this.#mark();
    this.#goOn();
  }

  #goOn(): void {
    this.#pump();
    if (!this.#isHeldBack || this.#unsentBytes * 2 >= this.#unsentBytesMax) return;
    this.#isHeldBack = false;
    this.#events.drained();
  }

  /** Behind what has left, and before what is written next. */
  #mark(): void {
    if (this.#session.destroyed || this.#session.closed) return;
    const bytes = this.#unmarkedBytes;
    this.#unmarkedBytes = 0;
    this.#marks += 1;
    this.#session.ping((error) => {
      this.#marks -= 1;
      if (error === null) this.#events.arrived(bytes);
      this.#goOn();
    });
  }
}
