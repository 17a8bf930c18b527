import { join } from "node:path";
import { createClient, type RedisClientType } from "redis";
import { redisProgram, type Found } from "./programs.ts";
import { ServerProcess, serverFolder } from "./server-process.ts";

/** A Redis of its own, on a Unix socket in a temporary folder. Nothing survives it. */
export class RedisServer {
  readonly #process: ServerProcess;
  readonly #socket: string;
  readonly #clients = new Set<RedisClientType>();

  private constructor(server: ServerProcess, socket: string) {
    this.#process = server;
    this.#socket = socket;
  }

  static find(): Promise<Found> {
    return redisProgram();
  }

  /** @param program its path; `flags`: more of its own */
  static async start(program: string, flags: readonly string[] = []): Promise<RedisServer> {
    const folder = serverFolder("redis");
    const socket = join(folder, "socket");
    const server = await ServerProcess.start({
      command: program,
      args: ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", ...flags],
      ready: /ready to accept connections/i,
      folder,
    });
    return new RedisServer(server, socket);
  }

  /** A connection; closed with the server. */
  async connect(): Promise<RedisClientType> {
    const client: RedisClientType = createClient({ socket: { path: this.#socket, tls: false } });
    client.on("error", () => undefined);
    await client.connect();
    this.#clients.add(client);
    return client;
  }

  connectMany(count: number): Promise<RedisClientType[]> {
    return Promise.all(Array.from({ length: count }, () => this.connect()));
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.destroy();
    await this.#process.stop();
  }
}
