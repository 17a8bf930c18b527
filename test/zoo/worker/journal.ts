import pg from "pg";
import { GuardError, PostgresGuard, StaleTokenError } from "@lockstep/client/guards/postgres";
import type { Domain, WorkerOptions } from "./report.ts";

export const JOURNAL = "journal";
/** A transaction that stands idle holds up whoever comes next. */
const IDLE_MS_MAX = 3_000;
const LOCK_WAIT_MS_MAX = 10_000;
/** A transaction that stood idle (25P03), and what a connection says that the server has ended. */
const BROKEN: ReadonlySet<string> = new Set(["25P03", "ECONNRESET", "EPIPE"]);

export type Written = "wrote" | "unknown" | "refused";

/** Where a worker's effects go: a table, one row an effect and resource, each under the owner's token. */
export class Journal {
  readonly #options: WorkerOptions;
  #connection: pg.Client | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  async write(token: number, domains: readonly Domain[]): Promise<Written> {
    const connection = await this.#connected();
    const insert = async (): Promise<void> => {
      for (const { resource, mode } of domains) {
        await connection.query(
          `INSERT INTO ${JOURNAL} (resource, mode, token, worker) VALUES ($1, $2, $3, $4)`,
          [resource, mode, token, this.#options.name],
        );
      }
    };
    try {
      if (this.#options.guarded) await guarded(connection, { token, domains, insert });
      else await insert();
      return "wrote";
    } catch (error) {
      if (error instanceof StaleTokenError) return "refused";
      if (!isOrdinary(error)) throw error;
      this.#drop();
      return "unknown";
    }
  }

  async close(): Promise<void> {
    await this.#connection?.end().catch(() => undefined);
  }

  async #connected(): Promise<pg.Client> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = new pg.Client({ ...this.#options.postgres, application_name: this.#options.name });
    // The server ends connections of whoever was stopped within a transaction.
    connection.on("error", () => this.#drop());
    await connection.connect();
    this.#connection = connection;
    return connection;
  }

  #drop(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    void connection?.end().catch(() => undefined);
  }
}

interface Effect {
  readonly token: number;
  readonly domains: readonly Domain[];
  readonly insert: () => Promise<void>;
}

/** All domains' guards admit the token in the transaction of the effect. */
async function guarded(connection: pg.Client, { token, domains, insert }: Effect): Promise<void> {
  const [first, ...others] = domains.map((domain) => new PostgresGuard(domain));
  if (first === undefined) throw new TypeError("an owner owns something");
  const options = { idleMsMax: IDLE_MS_MAX, lockWaitMsMax: LOCK_WAIT_MS_MAX };
  const work = async (): Promise<void> => {
    for (const guard of others) await guard.admit(connection, token);
    await insert();
  };
  await first.transaction(connection, token, work, options);
}

/** The server has ended the connection (class 57 and {@link BROKEN}), or others were at it for too long. */
function isOrdinary(error: unknown): boolean {
  if (error instanceof GuardError) return true;
  const code = (error as { readonly code?: unknown }).code;
  if (typeof code === "string") return code.startsWith("57") || BROKEN.has(code);
  return error instanceof Error && /terminated|not queryable|closed/i.test(error.message);
}
