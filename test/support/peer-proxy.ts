import { createServer } from "node:net";
import type { Server, Socket } from "node:net";
import { PASS, ProxiedLink } from "./proxied-link.ts";
import type { LinkRule } from "./proxied-link.ts";

/**
 * A TCP proxy before one member's peer port. It reads the dialler's id from the handshake (cell/src/transport
 * FORMAT.md), so that links can be cut one by one and in one direction: what goes over the proxy of B from A are A's
 * messages to B.
 */
export class PeerProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #sockets = new Set<Socket>();
  readonly #links = new Map<ProxiedLink, number>();
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
    for (const [link, from] of this.#links) link.obey(rule(from));
  }

  heal(): void {
    this.shape(() => PASS);
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    for (const link of this.#links.keys()) link.destroy();
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
      const link = new ProxiedLink(socket, this.#target, head);
      this.#links.set(link, from);
      socket.on("close", () => this.#links.delete(link));
      link.obey(rule);
    };
    socket.on("data", onData);
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
