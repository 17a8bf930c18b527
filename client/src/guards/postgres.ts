import { Backoff } from "../backoff.ts";
import { REAL_RUNTIME, type Runtime } from "../runtime.ts";
import { GuardError, StaleTokenError } from "./guard-error.ts";
import { quotedSchema, STALE_TOKEN_SQLSTATE, type SchemaOptions } from "./postgres-sql.ts";
import { requireToken, resourceName, type GuardedResource } from "./token.ts";

export { GuardError, StaleTokenError } from "./guard-error.ts";
export type { GuardErrorCode } from "./guard-error.ts";
export {
  dropTriggerSql,
  GUARD_SQL_VERSION,
  installSql,
  STALE_TOKEN_SQLSTATE,
  triggerSql,
  uninstallSql,
} from "./postgres-sql.ts";
export type { SchemaOptions, TriggerOptions } from "./postgres-sql.ts";
export { slotResource } from "./token.ts";
export type { GuardedResource, TokenMode } from "./token.ts";

/**
 * One connection to PostgreSQL: a `Client` of `pg`, or one that its pool handed out. Of any other library, an object with
 * this method, whose errors carry the SQLSTATE in `code` and the detail in `detail`.
 */
export interface PostgresConnection {
  /** Runs one statement. */
  query(text: string, values?: unknown[]): Promise<{ readonly command?: string }>;
}

/** Which resource is guarded, and where its marks are. */
export interface PostgresGuardOptions extends GuardedResource, SchemaOptions {
  /** Clock and chance. Default: the real ones. */
  readonly runtime?: Runtime;
}

/** How a guarded transaction runs. */
export interface TransactionOptions {
  /** Default: `read committed`. */
  readonly isolation?: "read committed" | "repeatable read" | "serializable";
  /**
   * How long the server lets the transaction stand idle before it ends the connection. A holder that was paused in the
   * middle holds the row of marks, and the next holder waits for it. Default: 10 s; 0: as the server is set.
   */
  readonly idleMsMax?: number;
  /**
   * How long one statement waits for a lock, and how long the admission as a whole may take, with its attempts. Default:
   * 30 s; 0: as the server is set, and 30 s for the admission.
   */
  readonly lockWaitMsMax?: number;
}

const IDLE_MS_MAX = 10_000;
const LOCK_WAIT_MS_MAX = 30_000;

const SERIALIZATION_FAILURE = "40001";
const DEADLOCK = "40P01";
const LOCK_NOT_AVAILABLE = "55P03";
const UNDEFINED_FUNCTION = "42883";

/**
 * The guard of one resource in PostgreSQL (install it first, with `installSql`). Transactions of one resource that were
 * admitted follow each other, whatever connection they come from; the mark and the work are committed together.
 */
export class PostgresGuard {
  readonly resource: string;
  readonly #statement: string;
  readonly #runtime: Runtime;
  #rejections = 0;

  constructor(options: PostgresGuardOptions) {
    this.resource = resourceName(options);
    const name = options.mode === "shared" ? "lockstep_guard_shared" : "lockstep_guard";
    this.#statement = `SELECT ${quotedSchema(options)}.${name}($1, $2)`;
    this.#runtime = options.runtime ?? REAL_RUNTIME;
  }

  /**
   * How many times this object saw a token refused. Counted here and not in the database, where the refusal's
   * transaction takes everything back that it wrote.
   */
  get rejections(): number {
    return this.#rejections;
  }

  /**
   * Admits the token in the transaction that `connection` is in; from then to its end the resource is this transaction's
   * alone. Call it first, so that everything read afterwards is what earlier holders left, and never between SAVEPOINT and
   * ROLLBACK TO, which would take the admission back.
   * @throws StaleTokenError when the resource has seen a larger token; the transaction can only be rolled back
   */
  async admit(connection: PostgresConnection, token: number): Promise<void> {
    refusePool(connection);
    await this.#admit(connection, token);
  }

  /**
   * Admits the token in a transaction of its own: from then on every earlier holder is refused. A new holder calls it
   * before it reads what it will work on outside of transactions. Takes a pool, too.
   * @throws StaleTokenError when the resource has seen a larger token
   */
  async seal(connection: PostgresConnection, token: number): Promise<void> {
    await this.#untilAdmitted(() => this.#admit(connection, token), LOCK_WAIT_MS_MAX);
  }

  /**
   * Runs `work` in a transaction that the token was admitted to, and commits it. `work` runs at most once and uses the
   * same connection; whatever it throws rolls the transaction back and comes out here.
   * @throws StaleTokenError when the resource has seen a larger token (or a trigger of the guard has, in `work`)
   * @throws GuardError `guard-contended` when other transactions of the resource did not end within `lockWaitMsMax`;
   * `guard-failed` with outcome `unknown` when the connection broke during COMMIT
   */
  async transaction<C extends PostgresConnection, T>(
    connection: C,
    token: number,
    work: (connection: C) => Promise<T>,
    options: TransactionOptions = {},
  ): Promise<T> {
    refusePool(connection);
    requireToken(token);
    const stopListening = ignoreErrorEvents(connection);
    try {
      await this.#begin(connection, token, options);
      let result: T;
      try {
        result = await work(connection);
      } catch (error) {
        await rollback(connection);
        throw this.#translated(error, token);
      }
      await this.#commit(connection, token);
      return result;
    } finally {
      stopListening();
    }
  }

  async #begin(connection: PostgresConnection, token: number, options: TransactionOptions): Promise<void> {
    const begin = beginSql(options);
    await this.#untilAdmitted(async () => {
      await connection.query(begin);
      try {
        await this.#admit(connection, token);
      } catch (error) {
        await rollback(connection);
        throw error;
      }
    }, options.lockWaitMsMax || LOCK_WAIT_MS_MAX);
  }

  /**
   * Above READ COMMITTED, whoever waited for another transaction of the resource fails when that one is committed. Nothing
   * was done yet, so it is safe to begin again; each time somebody else got further.
   */
  async #untilAdmitted(attempt: () => Promise<void>, waitMsMax: number): Promise<void> {
    const deadlineAt = this.#runtime.now() + waitMsMax;
    const backoff = new Backoff(this.#runtime);
    for (;;) {
      try {
        await attempt();
        return;
      } catch (error) {
        const code = sqlState(error);
        if (code !== SERIALIZATION_FAILURE && code !== DEADLOCK) throw error;
        if (this.#runtime.now() >= deadlineAt) throw this.#contended(error);
      }
      await new Promise<void>((resolve) => void this.#runtime.schedule(resolve, backoff.nextMs()));
    }
  }

  async #admit(connection: PostgresConnection, token: number): Promise<void> {
    try {
      await connection.query(this.#statement, [this.resource, requireToken(token)]);
    } catch (error) {
      const code = sqlState(error);
      if (code === LOCK_NOT_AVAILABLE) throw this.#contended(error);
      if (code === UNDEFINED_FUNCTION) {
        const message = "the guard is not installed in this database and schema: run installSql()";
        throw new GuardError("guard-unsupported", "not-applied", message, { cause: error });
      }
      throw this.#translated(error, token);
    }
  }

  async #commit(connection: PostgresConnection, token: number): Promise<void> {
    let command: string | undefined;
    try {
      ({ command } = await connection.query("COMMIT"));
    } catch (error) {
      if (isRefusal(error)) throw this.#translated(error, token);
      const message = "the connection broke during COMMIT";
      throw new GuardError("guard-failed", "unknown", message, { cause: error });
    }
    // After a failed statement, COMMIT rolls back and calls it a success.
    if (command === "ROLLBACK") {
      const message =
        "the transaction was rolled back: a statement in it had failed, and its error was not passed on";
      throw new GuardError("guard-failed", "not-applied", message);
    }
  }

  #contended(cause: unknown): GuardError {
    const message = `other transactions of "${this.resource}" did not end in time`;
    return new GuardError("guard-contended", "not-applied", message, { cause });
  }

  #translated(error: unknown, token: number): unknown {
    if (sqlState(error) !== STALE_TOKEN_SQLSTATE) return error;
    this.#rejections += 1;
    const said = refusalFrom(error);
    const { resource = this.resource, offered = token, seen } = said;
    return new StaleTokenError({ resource, offered, seen }, { cause: error });
  }
}

function beginSql(options: TransactionOptions): string {
  const { isolation = "read committed", idleMsMax = IDLE_MS_MAX, lockWaitMsMax = LOCK_WAIT_MS_MAX } = options;
  const settings: string[] = [];
  const setLocal = (name: string, milliseconds: number): void => {
    if (!Number.isSafeInteger(milliseconds) || milliseconds < 0)
      throw new TypeError("a limit is a whole number of milliseconds, or 0");
    if (milliseconds > 0) settings.push(`SET LOCAL ${name} = ${String(milliseconds)}`);
  };
  setLocal("idle_in_transaction_session_timeout", idleMsMax);
  setLocal("lock_timeout", lockWaitMsMax);
  return [`BEGIN ISOLATION LEVEL ${isolation.toUpperCase()}`, ...settings].join("; ");
}

/** Never throws: the error that led here says more, and a connection that is gone has rolled back by itself. */
async function rollback(connection: PostgresConnection): Promise<void> {
  try {
    await connection.query("ROLLBACK");
  } catch {
    // See above.
  }
}

function sqlState(error: unknown): string | undefined {
  const code = property(error, "code");
  return typeof code === "string" ? code : undefined;
}

/** Did the server answer, and refuse, without breaking off? */
function isRefusal(error: unknown): boolean {
  const severity = property(error, "severity");
  return sqlState(error)?.length === 5 && severity !== "FATAL" && severity !== "PANIC";
}

interface Refusal {
  readonly resource?: string;
  readonly offered?: number;
  readonly seen?: number | undefined;
}

/** What the guard's functions put into the detail; poolers and settings may have taken it away. */
function refusalFrom(error: unknown): Refusal {
  const detail = property(error, "detail");
  if (typeof detail !== "string") return {};
  try {
    const said: unknown = JSON.parse(detail);
    const [resource, offered, seen] = ["resource", "offered", "seen"].map((name) => property(said, name));
    return {
      ...(typeof resource === "string" ? { resource } : {}),
      ...(typeof offered === "number" ? { offered } : {}),
      ...(typeof seen === "number" ? { seen } : {}),
    };
  } catch {
    return {};
  }
}

function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

/** A pool gives each statement to another connection, so that the work would run outside of the admitted transaction. */
function refusePool(connection: PostgresConnection): void {
  if ("totalCount" in connection && "idleCount" in connection)
    throw new TypeError("a transaction needs one connection, not a pool: use one that pool.connect() gives");
}

type ErrorEvents = Record<"on" | "removeListener", (event: "error", listener: () => void) => unknown>;

/**
 * When the server ends the connection of a paused holder, `pg` tells it by an event as well, and an `error` event that
 * nobody listens to ends the process. The next statement on the connection fails all the same.
 */
function ignoreErrorEvents(connection: object): () => void {
  const emitter: Partial<ErrorEvents> = connection;
  if (typeof emitter.on !== "function" || typeof emitter.removeListener !== "function")
    return () => undefined;
  const listener = (): void => undefined;
  emitter.on("error", listener);
  return () => emitter.removeListener?.("error", listener);
}
