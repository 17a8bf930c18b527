import { join } from "node:path";
import pg from "pg";
import { run } from "../../support/run.ts";
import type { Found } from "./programs.ts";
import { postgresPrograms } from "./programs.ts";
import { ServerProcess, serverFolder, unprivileged } from "./server-process.ts";

const USER = "lockstep";
const INIT_MS_MAX = 60_000;
/** A test that failed may leave a transaction open, which others wait for. */
const STATEMENT_MS_MAX = 15_000;

/** A PostgreSQL of its own, on a Unix socket in a temporary folder. Nothing survives it. */
export class PostgresServer {
  readonly #process: ServerProcess;
  readonly #folder: string;
  readonly #clients = new Set<pg.Client>();

  private constructor(server: ServerProcess, folder: string) {
    this.#process = server;
    this.#folder = folder;
  }

  static find(): Promise<Found> {
    return postgresPrograms();
  }

  /** @param programs the folder of its programs */
  static async start(programs: string): Promise<PostgresServer> {
    const account = await unprivileged();
    const folder = serverFolder("pg", account);
    const data = join(folder, "data");
    const init = ["-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
    const as =
      account === undefined
        ? []
        : [`--reuid=${String(account.uid)}`, `--regid=${String(account.gid)}`, "--clear-groups"];
    const { code, out, err } = await run("setpriv", [...as, "--", join(programs, "initdb"), ...init], {
      cwd: folder,
      timeoutMs: INIT_MS_MAX,
    });
    if (code !== 0) throw new Error(`initdb ended with ${String(code)}: ${out}${err}`);
    const settings = {
      listen_addresses: "",
      unix_socket_directories: folder,
      // Its own record of the order of commits.
      wal_level: "logical",
      max_replication_slots: "20",
      max_connections: "80",
      // Nothing here outlives the process.
      fsync: "off",
      shared_buffers: "32MB",
      lc_messages: "C",
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const server = await ServerProcess.start({
      command: join(programs, "postgres"),
      args: ["-D", data, ...args],
      ready: /database system is ready to accept connections/,
      folder,
      account,
      stopSignal: "SIGINT",
    });
    return new PostgresServer(server, folder);
  }

  get config(): pg.ClientConfig {
    return { host: this.#folder, user: USER, database: "postgres" };
  }

  /** A connection; closed with the server. */
  async connect(config: pg.ClientConfig = {}): Promise<pg.Client> {
    const client = new pg.Client({ ...this.config, statement_timeout: STATEMENT_MS_MAX, ...config });
    // Told when the server stops; a statement on the connection fails all the same.
    client.on("error", () => undefined);
    await client.connect();
    this.#clients.add(client);
    return client;
  }

  connectMany(count: number): Promise<pg.Client[]> {
    return Promise.all(Array.from({ length: count }, () => this.connect()));
  }

  async stop(): Promise<void> {
    await Promise.allSettled([...this.#clients].map((client) => client.end()));
    await this.#process.stop();
  }
}

/** The order in which the server itself committed the rows of a table, read from its log. */
export class CommitOrder {
  readonly #client: pg.Client;
  readonly #slot: string;

  private constructor(client: pg.Client, slot: string) {
    this.#client = client;
    this.#slot = slot;
  }

  /** Begins to watch: what is committed from here on is seen. */
  static async watch(client: pg.Client, slot: string): Promise<CommitOrder> {
    await client.query("SELECT pg_create_logical_replication_slot($1, 'test_decoding')", [slot]);
    return new CommitOrder(client, slot);
  }

  /**
   * The column `token` of each row that was inserted into the table, in the order of the commits. Ends the watch.
   */
  async tokens(table: string): Promise<number[]> {
    const rows = await this.rows(table);
    return rows.flatMap((row) => {
      const token = row.get("token");
      return token === undefined ? [] : [Number(token)];
    });
  }

  /** Each row that was inserted into the table, as text by column, in the order of the commits. Ends the watch. */
  async rows(table: string): Promise<ReadonlyMap<string, string>[]> {
    const { rows } = await this.#client.query<{ data: string }>(
      "SELECT data FROM pg_logical_slot_get_changes($1, NULL, NULL, 'include-xids', '0')",
      [this.#slot],
    );
    await this.#client.query("SELECT pg_drop_replication_slot($1)", [this.#slot]);
    const insert = `table public.${table}: INSERT: `;
    return rows.flatMap(({ data }) =>
      data.startsWith(insert) ? [columnsOf(data.slice(insert.length))] : [],
    );
  }
}

/** `token[bigint]:7 worker[text]:'w1'`, as test_decoding writes it. */
function columnsOf(text: string): ReadonlyMap<string, string> {
  const column = /(\w+)\[[^\]]+\]:(?:'((?:[^']|'')*)'|(\S+))/g;
  return new Map(
    [...text.matchAll(column)].map(([, name = "", quoted, plain = ""]) => [
      name,
      quoted?.replaceAll("''", "'") ?? plain,
    ]),
  );
}
