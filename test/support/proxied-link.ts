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
  | { readonly kind: "delay"; readonly delayMs: number }
  /** What the dialler is answered arrives this much later, in order. */
  | { readonly kind: "late"; readonly delayMs: number };

export const PASS: LinkRule = { kind: "pass" };

/** One connection through a proxy. */
export class ProxiedLink {
  readonly #dialler: Socket;
  readonly #upstream: Socket;
  readonly #asked: Lane;
  readonly #answered: Lane;

  /** @param head what the dialler has sent already */
  constructor(dialler: Socket, target: number, head: Buffer) {
    this.#dialler = dialler;
    this.#upstream = connect(target, "127.0.0.1");
    dialler.on("error", () => undefined);
    this.#upstream.on("error", () => dialler.destroy());
    this.#upstream.on("close", () => dialler.destroy());
    dialler.on("close", () => this.destroy());
    this.#asked = new Lane(dialler, this.#upstream);
    this.#answered = new Lane(this.#upstream, dialler);
    if (head.length > 0) this.#asked.send(head);
  }

  obey(rule: LinkRule): void {
    if (rule.kind === "cut") {
      this.#dialler.destroy();
      return;
    }
    const stalled = rule.kind === "stall";
    this.#asked.shape({ stalled, delayMs: rule.kind === "delay" ? rule.delayMs : 0 });
    this.#answered.shape({ stalled, delayMs: rule.kind === "late" ? rule.delayMs : 0 });
  }

  destroy(): void {
    this.#asked.close();
    this.#answered.close();
    this.#upstream.destroy();
    this.#dialler.destroy();
  }
}

/** One direction of a connection. */
class Lane {
  readonly #from: Socket;
  readonly #to: Socket;
  /** Oldest first; the first one is due at `due`. */
  readonly #waiting: { readonly chunk: Buffer; readonly due: number }[] = [];
  #delayMs = 0;
  #stalled = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(from: Socket, to: Socket) {
    this.#from = from;
    this.#to = to;
    from.on("data", (chunk: Buffer) => this.send(chunk));
  }

  send(chunk: Buffer): void {
    this.#waiting.push({ chunk, due: performance.now() + this.#delayMs });
    this.#flush();
  }

  shape({ stalled, delayMs }: { readonly stalled: boolean; readonly delayMs: number }): void {
    this.#stalled = stalled;
    this.#delayMs = delayMs;
    this.#flush();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  /** Hands on what is due; never out of order, also when a delay got shorter. */
  #flush(): void {
    clearTimeout(this.#timer);
    if (this.#stalled) {
      // The sender's own buffers fill up, and it waits.
      this.#from.pause();
      return;
    }
    this.#from.resume();
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const leftMs = next.due - performance.now();
      if (this.#delayMs > 0 && leftMs > 0) {
        this.#timer = setTimeout(() => this.#flush(), leftMs);
        return;
      }
      this.#waiting.shift();
      if (!this.#to.write(next.chunk) && this.#waiting.length === 0) this.#untilDrained();
    }
  }

  #untilDrained(): void {
    this.#from.pause();
    this.#to.once("drain", () => {
      if (!this.#stalled) this.#from.resume();
    });
  }
}
