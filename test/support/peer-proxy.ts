import { connect, createServer } from "node:net";
import type { Server, Socket } from "node:net";

/** What becomes of one member's connections to another. */
export type LinkRule =
  | { readonly kind: "pass" }
  /** Dropped, and refused from now on: both ends notice at once. */
  | { readonly kind: "cut" }
  /** Nothing goes through, and nobody is told: as behind a firewall that swallows packets. */
  | { readonly kind: "stall" }
  /** What goes to the member arrives this much later, in order. */
  | { readonly kind: "delay"; readonly delayMs: number };

const PASS: LinkRule = { kind: "pass" };

/**
 * A TCP proxy before one member's peer port. It reads the dialler's id from the handshake (cell/src/transport
 * FORMAT.md), so that links can be cut one by one and in one direction: what goes over the proxy of B from A are A's
 * messages to B.
 */
export class PeerProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #sockets = new Set<Socket>();
  readonly #links = new Set<Link>();
  #rule: (from: number) => LinkRule = () => PASS;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async start(port: number, target: number): Promise<PeerProxy> {
    const proxy = new PeerProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(port, "127.0.0.1", resolve));
    return proxy;
  }

  /** From now on, connections of these members are dropped. */
  cut(from: (member: number) => boolean): void {
    this.shape((member) => (from(member) ? { kind: "cut" } : PASS));
  }

  /** From now on, connections are treated so, those that stand and those that come. */
  shape(rule: (from: number) => LinkRule): void {
    this.#rule = rule;
    for (const link of this.#links) link.obey(rule(link.from));
  }

  heal(): void {
    this.shape(() => PASS);
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    for (const link of this.#links) link.destroy();
  }

  #accept(socket: Socket): void {
    let head = Buffer.alloc(0);
    this.#sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => this.#sockets.delete(socket));
    const onData = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const from = diallerOf(head);
      if (from === undefined) return;
      socket.off("data", onData);
      const rule = this.#rule(from);
      if (rule.kind === "cut") {
        socket.destroy();
        return;
      }
      const link = new Link(from, socket, this.#target, head);
      this.#links.add(link);
      socket.on("close", () => this.#links.delete(link));
      link.obey(rule);
    };
    socket.on("data", onData);
  }
}

/** One connection through the proxy. */
class Link {
  readonly from: number;
  readonly #dialler: Socket;
  readonly #upstream: Socket;
  /** To the member, oldest first; the first one is due at `due`. */
  readonly #waiting: { readonly chunk: Buffer; readonly due: number }[] = [];
  #delayMs = 0;
  #stalled = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(from: number, dialler: Socket, target: number, head: Buffer) {
    this.from = from;
    this.#dialler = dialler;
    this.#upstream = connect(target, "127.0.0.1");
    this.#upstream.on("error", () => dialler.destroy());
    this.#upstream.on("close", () => dialler.destroy());
    dialler.on("close", () => this.destroy());
    this.#onChunk(head);
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

/** The id in a `hello` frame; undefined while it has not arrived whole. */
function diallerOf(bytes: Buffer): number | undefined {
  if (bytes.length < 8 || bytes.length < 8 + bytes.readUInt32LE(0)) return undefined;
  let at = 8 + 1 + 4;
  const varint = (): number => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes.readUInt8(at);
      at += 1;
      value += (byte & 0x7f) * shift;
      if (byte < 0x80) return value;
    }
  };
  varint();
  at += 1;
  at += varint();
  return varint();
}
