import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { createServer } from "node:net";
import type { Server, Socket } from "node:net";
import { PASS, ProxiedLink } from "./proxied-link.ts";
import type { LinkRule } from "./proxied-link.ts";

/**
 * A TCP proxy before one member's client port. Clients do not say who they are in a way that a proxy could read, but they
 * are processes of this machine: it looks up whose socket the other end is, so that one process can be cut off.
 */
export class ClientProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #links = new Map<ProxiedLink, number>();
  #rule: (pid: number) => LinkRule = () => PASS;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async start(port: number, target: number): Promise<ClientProxy> {
    const proxy = new ClientProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(port, "127.0.0.1", resolve));
    return proxy;
  }

  /** From now on, connections of each process are treated so, those that stand and those that come. */
  shape(rule: (pid: number) => LinkRule): void {
    this.#rule = rule;
    for (const [link, pid] of this.#links) link.obey(rule(pid));
  }

  close(): void {
    this.#server.close();
    for (const link of this.#links.keys()) link.destroy();
  }

  #accept(socket: Socket): void {
    socket.on("error", () => undefined);
    const pid = ownerOf(socket.remotePort ?? 0, this.#server);
    const rule = this.#rule(pid);
    if (rule.kind === "cut") {
      socket.destroy();
      return;
    }
    const link = new ProxiedLink(socket, this.#target, Buffer.alloc(0));
    this.#links.set(link, pid);
    socket.on("close", () => this.#links.delete(link));
    link.obey(rule);
  }
}

const LOOPBACK = "0100007F";

/** The process that dialled from this port of the loopback; 0: nobody who can be found, as after its end. */
function ownerOf(port: number, server: Server): number {
  const address = server.address();
  const target = typeof address === "object" && address !== null ? address.port : 0;
  const local = `${LOOPBACK}:${hex(port)}`;
  const remote = `${LOOPBACK}:${hex(target)}`;
  const line = readFileSync("/proc/net/tcp", "latin1")
    .split("\n")
    .map((row) => row.trim().split(/\s+/))
    .find((columns) => columns[1] === local && columns[2] === remote);
  const inode = line?.[9];
  if (inode === undefined || inode === "0") return 0;
  const wanted = `socket:[${inode}]`;
  return processes().find((pid) => socketsOf(pid).includes(wanted)) ?? 0;
}

function hex(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}

function processes(): number[] {
  // The youngest first: whoever dials has often just begun.
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => b - a);
}

function socketsOf(pid: number): string[] {
  const folder = `/proc/${String(pid)}/fd`;
  try {
    return readdirSync(folder).map((fd) => linkOf(`${folder}/${fd}`));
  } catch {
    // Gone, or somebody else's.
    return [];
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
