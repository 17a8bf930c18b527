import type { CellInfo } from "../types.ts";
import type { FrameLink } from "./transport.ts";

/** One stream to one member. */
export class Link {
  readonly address: string;
  transport: FrameLink | undefined = undefined;
  /** Greeted: it has sent its first frame. */
  ready = false;
  over = false;
  info: CellInfo | undefined = undefined;
  /** Requests that wait for an answer on it. */
  inFlight = 0;
  /** Its last sign of life, or when it was asked for one again. */
  quietSince = 0;
  /** Silent while requests wait on it. */
  suspected = false;
  /** Its peer asked that it be left for another one. */
  leaving = false;
  cancelTimer: (() => void) | undefined = undefined;
  /** What was sent when silence began to count. Only while that is under way, its arriving excuses the peer's silence. */
  #askedBytes = 0;
  #arrivedBytes = 0;
  #receivedBytes = 0;

  constructor(address: string) {
    this.address = address;
  }

  /** A whole frame has come. */
  heard(now: number): void {
    this.suspected = false;
    this.asked(now);
  }

  /** From now on the peer owes an answer to what was sent. */
  asked(now: number): void {
    this.quietSince = now;
    const progress = this.transport?.progress;
    if (progress === undefined) return;
    this.#askedBytes = progress.sentBytes;
    this.#arrivedBytes = progress.arrivedBytes;
    this.#receivedBytes = progress.receivedBytes;
  }

  /**
   * Looks for signs of life since the last look: a part of a frame came, or a part of what was asked has arrived. What
   * was asked later does not count: a peer that takes in everything and answers nothing is as good as dead.
   *
   * @returns whether there was one
   */
  progressed(now: number): boolean {
    const progress = this.transport?.progress;
    if (progress === undefined) return false;
    const isAnswering = progress.receivedBytes !== this.#receivedBytes;
    const isListening = progress.arrivedBytes !== this.#arrivedBytes && this.#arrivedBytes < this.#askedBytes;
    this.#arrivedBytes = progress.arrivedBytes;
    this.#receivedBytes = progress.receivedBytes;
    if (!isAnswering && !isListening) return false;
    this.quietSince = now;
    this.suspected = false;
    return true;
  }
}
