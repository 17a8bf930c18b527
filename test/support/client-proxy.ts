import { createServer } from "node:net";
import type { Server, Socket } from "node:net";
import { Diallers } from "./dialler.ts";
import { PASS, ProxiedLink } from "./proxied-link.ts";
import type { LinkRule } from "./proxied-link.ts";

/** For `shape`: all are let through, and nobody is looked for. */
export const PASS_ALL = (): LinkRule => PASS;

/** All proxies of this process have the same diallers. */
const DIALLERS = new Diallers();

interface Connection {
  readonly link: ProxiedLink;
  /** The dialler's. */
  readonly port: number;
  /** Known since a rule asked for it. */
  pid: number | undefined;
}

/**
 * A TCP proxy before one member's client port. Clients do not say who they are in a way that a proxy could read, but they
 * are processes of this machine: it looks up whose socket the other end is, so that one process can be cut off.
 */
export class ClientProxy {
  readonly #server: Server;
  readonly #port: number;
  readonly #target: number;
  readonly #connections = new Set<Connection>();
  #rule: (pid: number) => LinkRule = PASS_ALL;

  private constructor(port: number, target: number) {
    this.#port = port;
    this.#target = target;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async start(port: number, target: number): Promise<ClientProxy> {
    const proxy = new ClientProxy(port, target);
    await new Promise<void>((resolve) => proxy.#server.listen(port, "127.0.0.1", resolve));
    return proxy;
  }

  /**
   * From now on, connections of each process are treated so, those that stand and those that come. One whose process cannot
   * be found is refused, so that nobody gets around a rule.
   */
  shape(rule: (pid: number) => LinkRule): void {
    this.#rule = rule;
    for (const connection of this.#connections) this.#treat(connection);
  }

  close(): void {
    this.#server.close();
    for (const { link } of this.#connections) link.destroy();
  }

  #accept(socket: Socket): void {
    socket.on("error", () => undefined);
    const link = new ProxiedLink(socket, this.#target, Buffer.alloc(0));
    const connection: Connection = { link, port: socket.remotePort ?? 0, pid: undefined };
    this.#connections.add(connection);
    socket.on("close", () => this.#connections.delete(connection));
    this.#treat(connection);
  }

  #treat(connection: Connection): void {
    if (this.#rule === PASS_ALL) {
      connection.link.obey(PASS);
      return;
    }
    connection.pid ??= DIALLERS.find(connection.port, this.#port);
    connection.link.obey(connection.pid === undefined ? { kind: "cut" } : this.#rule(connection.pid));
  }
}
