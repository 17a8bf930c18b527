import { connect, tlsFromFiles, type Client } from "@lockstep/client";
import { AdminClient } from "./admin-client.ts";
import type { OutputFormat } from "./output.ts";
import type { Terminal } from "./terminal.ts";
import { readTls, tlsPaths } from "./tls.ts";

/** The options that every command takes. */
export interface GlobalOptions {
  readonly endpoints: readonly string[];
  readonly adminEndpoints: readonly string[];
  readonly namespace: string;
  readonly output: OutputFormat;
  /** Milliseconds for one call. */
  readonly callTimeout: number;
  readonly caCert?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** What a command has at hand. */
export class Context {
  readonly terminal: Terminal;
  readonly options: GlobalOptions;

  constructor(terminal: Terminal, options: GlobalOptions) {
    this.terminal = terminal;
    this.options = options;
  }

  /** Connects, runs `use`, and closes whatever happens. */
  async withClient<T>(use: (client: Client) => Promise<T>): Promise<T> {
    const { endpoints, namespace, callTimeout } = this.options;
    // Read once for a message that names the option; then before every connection, for commands that run long.
    const tls = readTls(this.options) === undefined ? undefined : tlsFromFiles(tlsPaths(this.options));
    const client = await connect({
      endpoints,
      namespace,
      // Its loop is never busy, and a thread would take longer to start than most commands run.
      worker: false,
      deadlineMs: callTimeout,
      connectTimeoutMs: callTimeout,
      ...(tls === undefined ? {} : { tls }),
    });
    try {
      return await use(client);
    } finally {
      client.close();
    }
  }

  async withAdmin<T>(use: (admin: AdminClient) => Promise<T>): Promise<T> {
    const { adminEndpoints, callTimeout } = this.options;
    const client = new AdminClient(adminEndpoints, { tls: readTls(this.options), timeoutMs: callTimeout });
    try {
      return await use(client);
    } finally {
      client.close();
    }
  }
}

/** A command's body: gives the exit code. */
export type Action<A extends readonly unknown[]> = (context: Context, ...args: A) => Promise<number>;
