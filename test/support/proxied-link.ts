import { connect } from "node:net";
import type { Socket } from "node:net";

/** What becomes of a connection through a proxy. */
export type LinkRule =
  | { readonly kind: "pass" }
  /** Dropped, and refused from now on: both ends notice at once. */
  | { readonly kind: "cut" }
  /** Nothing goes through, and nobody is told: as behind a firewall that swallows packets. */
  | { readonly kind: "stall" }
  /** What the dialler sends arrives this much later, in order. */
  | { readonly kind: "delay"; readonly delayMs: number };

export const PASS: LinkRule = { kind: "pass" };

/** One connection through a proxy. */
export class ProxiedLink {
  readonly #dialler: Socket;
  readonly #upstream: Socket;
  /** To the target, oldest first; the first one is due at `due`. */
  readonly #waiting: { readonly chunk: Buffer; readonly due: number }[] = [];
  #delayMs = 0;
  #stalled = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param head what the dialler has sent already */
  constructor(dialler: Socket, target: number, head: Buffer) {
    this.#dialler = dialler;
    this.#upstream = connect(target, "127.0.0.1");
    dialler.on("error", () => undefined);
    this.#upstream.on("error", () => dialler.destroy());
    this.#upstream.on("close", () => dialler.destroy());
    dialler.on("close", () => this.destroy());
    if (head.length > 0) this.#onChunk(head);
    dialler.on("data", (chunk: Buffer) => this.#onChunk(chunk));
    this.#upstream.on("data", (chunk: Buffer) => {
      if (dialler.write(chunk)) return;
      this.#upstream.pause();
      dialler.once("drain", () => {
        if (!this.#stalled) this.#upstream.resume();
      });
    });
  }

  obey(rule: LinkRule): void {
    if (rule.kind === "cut") {
      this.#dialler.destroy();
      return;
    }
    this.#delayMs = rule.kind === "delay" ? rule.delayMs : 0;
    this.#stalled = rule.kind === "stall";
    if (this.#stalled) this.#upstream.pause();
    else this.#upstream.resume();
    this.#flush();
  }

  destroy(): void {
    clearTimeout(this.#timer);
    this.#upstream.destroy();
    this.#dialler.destroy();
  }

  #onChunk(chunk: Buffer): void {
    this.#waiting.push({ chunk, due: performance.now() + this.#delayMs });
    this.#flush();
  }

  /** Hands on what is due; never out of order, also when a delay got shorter. */
  #flush(): void {
    clearTimeout(this.#timer);
    if (this.#stalled) {
      // The dialler's own buffers fill up, and it waits.
      this.#dialler.pause();
      return;
    }
    this.#dialler.resume();
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const leftMs = next.due - performance.now();
      if (this.#delayMs > 0 && leftMs > 0) {
        this.#timer = setTimeout(() => this.#flush(), leftMs);
        return;
      }
      this.#waiting.shift();
      if (!this.#upstream.write(next.chunk) && this.#waiting.length === 0) this.#untilDrained();
    }
  }

  #untilDrained(): void {
    this.#dialler.pause();
    this.#upstream.once("drain", () => {
      if (!this.#stalled) this.#dialler.resume();
    });
  }
}
