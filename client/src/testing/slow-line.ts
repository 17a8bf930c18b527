import * as coordination from "@lockstep/proto/coordination";
import type { FrameLink, FrameSink, Transport } from "../channel/transport.ts";
import { serverFrame } from "./fake-cell.ts";
import { FakeStore } from "./fake-store.ts";
import type { ManualRuntime } from "./manual-runtime.ts";

const STEP_MS = 50;

/** One member behind a line that carries so many bytes a second each way, in virtual time; per stream, in order. */
export class SlowLine implements Transport {
  readonly runtime: ManualRuntime;
  readonly store: FakeStore = new FakeStore();
  readonly bytesPerSecond: number;
  /** When streams were opened. */
  readonly openedAt: number[] = [];
  readonly links: SlowLink[] = [];
  /** Requests that arrived whole. */
  requests = 0;
  /** False: what arrives is taken in, and nothing is answered. */
  answers = true;

  constructor(runtime: ManualRuntime, bytesPerSecond: number) {
    this.runtime = runtime;
    this.bytesPerSecond = bytesPerSecond;
  }

  open(_address: string, sink: FrameSink): SlowLink {
    this.openedAt.push(this.runtime.now());
    const link = new SlowLink(this, sink);
    this.links.push(link);
    return link;
  }

  close(): void {
    // Links are ended by their users.
  }
}

export class SlowLink implements FrameLink {
  readonly progress = { sentBytes: 0, arrivedBytes: 0, receivedBytes: 0 };
  readonly sink: FrameSink;
  /** Given up by the client. */
  isDestroyed = false;
  /** False: nothing moves any more in either direction, and nobody is told. */
  moves = true;
  readonly #line: SlowLine;
  readonly #up: Buffer[] = [];
  readonly #down: Buffer[] = [];
  #upBytes = 0;
  #downBytes = 0;

  constructor(line: SlowLine, sink: FrameSink) {
    this.#line = line;
    this.sink = sink;
    const leader = { memberId: 1, clientAddress: "slow:1", httpAddress: "" };
    const info = { cellId: "slow", memberId: 1, term: 1, revision: 1, leader, clientAddresses: [] };
    this.#answer({ info });
    this.#step();
  }

  send(frame: Buffer): boolean {
    this.progress.sentBytes += frame.length;
    // The sender goes on to use its memory.
    this.#up.push(Buffer.from(frame));
    return true;
  }

  finish(): void {
    // The client never asks for it.
  }

  destroy(): void {
    this.isDestroyed = true;
  }

  #answer(parts: Partial<coordination.ServerFrame>): void {
    this.#down.push(Buffer.from(coordination.ServerFrame.encode(serverFrame(parts)).finish()));
  }

  #step(): void {
    this.#line.runtime.schedule(() => {
      if (this.isDestroyed) return;
      if (this.moves) this.#move((this.#line.bytesPerSecond * STEP_MS) / 1_000);
      this.#step();
    }, STEP_MS);
  }

  #move(bytes: number): void {
    this.#upBytes = this.#carry(this.#up, this.#upBytes + bytes, (frame) => this.#onFrame(frame));
    const arrived = this.progress.sentBytes - this.#up.reduce((sum, { length }) => sum + length, 0);
    this.progress.arrivedBytes = Math.floor(arrived + this.#upBytes);
    const before = this.#downBytes;
    const waiting = this.#down.length > 0;
    this.#downBytes = this.#carry(this.#down, before + bytes, (frame) => this.sink.frame(frame));
    if (waiting) this.progress.receivedBytes += bytes;
  }

  /** @returns what of the next frame has passed */
  #carry(frames: Buffer[], passed: number, onFrame: (frame: Buffer) => void): number {
    for (let left = passed; ;) {
      const [frame] = frames;
      if (frame === undefined) return 0;
      if (left < frame.length) return left;
      left -= frame.length;
      frames.shift();
      onFrame(frame);
    }
  }

  #onFrame(frame: Buffer): void {
    const { requests } = coordination.ClientFrame.decode(frame);
    this.#line.requests += requests.length;
    if (!this.#line.answers) return;
    const { store } = this.#line;
    const responses = requests.map((request) =>
      store.request(request, coordination.Operation.decode(request.operation)),
    );
    if (responses.length > 0) this.#answer({ responses });
  }
}
