import { createHash } from "node:crypto";
import type { OperationOutcome } from "../errors.ts";
import { GuardError, StaleTokenError } from "./guard-error.ts";
import { ADMITTED, FUNCTION_NAME, GUARD_FUNCTION_LIBRARY, GUARD_SCRIPT, REFUSED } from "./redis-script.ts";
import { requireToken, resourceName, tokenDigits, tokenFromDigits, type GuardedResource } from "./token.ts";

export { GuardError, StaleTokenError } from "./guard-error.ts";
export type { GuardErrorCode } from "./guard-error.ts";
export { FUNCTION_NAME, GUARD_FUNCTION_LIBRARY, GUARD_SCRIPT } from "./redis-script.ts";
export { slotResource } from "./token.ts";
export type { GuardedResource, TokenMode } from "./token.ts";

/** A key, or another word of a command. */
export type RedisWord = string | Buffer;

/** A command and its words, for example `["HSET", "account:7", "balance", "12"]`. */
export type RedisCommand = readonly RedisWord[];

/** What a script works on, in the words of `redis`. */
export interface ScriptOptions {
  keys: RedisWord[];
  arguments: RedisWord[];
}

/** What a client or cluster client of `redis` (node-redis 4 and newer) has; of any other library, an object that does the same. */
export interface RedisConnection {
  /** Runs a script that is given as text. */
  eval(script: string, options: ScriptOptions): Promise<unknown>;
  /** Runs a script that the server knows; rejects with `NOSCRIPT` when it does not. */
  evalSha(sha1: string, options: ScriptOptions): Promise<unknown>;
  /** For `functions: true`. */
  fCall?(name: string, options: ScriptOptions): Promise<unknown>;
}

/** Which resource is guarded, and where its marks are. */
export interface RedisGuardOptions extends GuardedResource {
  /**
   * Where the marks of the resource are kept. In Redis Cluster it must fall into the same slot as the guarded keys, so they
   * share a hash tag. It must never expire, be evicted or be deleted: a forgotten mark lets stale holders in.
   * Default: `lockstep:marks:{RESOURCE}`, so guarded keys of a cluster contain `{RESOURCE}`. With `slot`, `#SLOT` comes
   * behind it.
   */
  readonly marksKey?: string;
  /** Calls the stored function (see {@link loadFunctions}) instead of the script. Default: false. */
  readonly functions?: boolean;
}

/** Stores the guard as a Redis Function. May be repeated. In a cluster, do it on every master. */
export async function loadFunctions(connection: {
  functionLoad(library: string, options: { REPLACE: true }): Promise<unknown>;
}): Promise<void> {
  await connection.functionLoad(GUARD_FUNCTION_LIBRARY, { REPLACE: true });
}

const GUARD_SHA1 = createHash("sha1").update(GUARD_SCRIPT).digest("hex");
/** Lua's stack holds no more in one call; and a script holds up everybody else while it runs. */
const COMMAND_WORDS_MAX = 1_000;
const COMMANDS_MAX = 1_000;
const NO_SCRIPT = /^NOSCRIPT\b/;
const OUR_REFUSAL = /^(?:ERR )?LOCKSTEP\b/;
const NO_FUNCTION = /^ERR Function not found/;

/**
 * The guard of one resource in Redis: compares the token, marks it and writes in one step. What asynchronous replication
 * means for that is in docs/guards.md.
 */
export class RedisGuard {
  readonly resource: string;
  readonly #connection: RedisConnection;
  readonly #marksKey: string;
  readonly #mode: "exclusive" | "shared";
  readonly #functions: boolean;
  #rejections = 0;

  constructor(connection: RedisConnection, options: RedisGuardOptions) {
    this.resource = resourceName(options);
    this.#connection = connection;
    // Slots of one semaphore share the tag, as they share the keys.
    const suffix = this.resource.slice(options.resource.length);
    this.#marksKey = `${options.marksKey ?? `lockstep:marks:{${options.resource}}`}${suffix}`;
    this.#mode = options.mode ?? "exclusive";
    this.#functions = options.functions ?? false;
    if (this.#functions && connection.fCall === undefined)
      throw new TypeError("this connection has no fCall, which functions need");
  }

  /** How many times this object saw a token refused. */
  get rejections(): number {
    return this.#rejections;
  }

  /**
   * Marks the token: from then on every earlier holder is refused. A new holder does it before it reads what it will
   * work on.
   * @throws StaleTokenError when the resource has seen a larger token
   */
  async seal(token: number): Promise<void> {
    await this.run(token, []);
  }

  /**
   * SET, if the token is not stale.
   * @param options `pxMs`: the key's time to live, in milliseconds; default: none, and an earlier one is taken off
   * @throws StaleTokenError when the resource has seen a larger token; nothing was written
   */
  async set(
    token: number,
    key: RedisWord,
    value: RedisWord,
    options: { readonly pxMs?: number } = {},
  ): Promise<void> {
    const expiry = options.pxMs === undefined ? [] : ["PX", String(options.pxMs)];
    await this.run(token, [["SET", key, value, ...expiry]], [key]);
  }

  /**
   * DEL, if the token is not stale. The mark stays.
   * @returns how many keys there were
   * @throws StaleTokenError when the resource has seen a larger token; nothing was deleted
   */
  async del(token: number, keys: readonly RedisWord[]): Promise<number> {
    if (keys.length === 0) throw new TypeError("name a key to delete");
    const [deleted] = await this.run(token, [["DEL", ...keys]], keys);
    return Number(deleted);
  }

  /**
   * Runs the commands in order, with nothing of anybody else between them, if the token is not stale: what WATCH, MULTI
   * and EXEC would do, in one round trip and without a second try. At most 1,000 commands of 1,000 words each.
   * @param keys every key that the commands touch: a cluster finds the server by them
   * @returns the commands' answers, as Lua sees them
   * @throws StaleTokenError when the resource has seen a larger token; nothing ran
   * @throws GuardError `guard-failed` when a command failed: the mark and the commands before it stay, as Redis takes
   * nothing back; the message says which it was
   */
  async run(
    token: number,
    commands: readonly RedisCommand[],
    keys: readonly RedisWord[] = [],
  ): Promise<readonly unknown[]> {
    const options = {
      keys: [this.#marksKey, ...keys],
      arguments: [tokenDigits(requireToken(token)), this.#mode, ...encoded(commands)],
    };
    const [verdict, ...answers] = await this.#answer(options, commands.length);
    if (verdict === ADMITTED) return answers;
    if (verdict !== REFUSED)
      throw new GuardError("guard-failed", "unknown", "the guard's script answered something else");
    this.#rejections += 1;
    const seen = tokenFromDigits(String(answers[0]));
    throw new StaleTokenError({ resource: this.resource, offered: token, seen });
  }

  async #answer(options: ScriptOptions, commands: number): Promise<readonly unknown[]> {
    let answer: unknown;
    try {
      answer = await this.#call(options);
    } catch (error) {
      throw translated(error, commands);
    }
    if (!Array.isArray(answer))
      throw new GuardError("guard-failed", "unknown", "the guard's script answered something else");
    const [verdict, ...rest] = answer as readonly unknown[];
    // A connection that hands out buffers.
    return [Buffer.isBuffer(verdict) ? verdict.toString("latin1") : verdict, ...rest];
  }

  async #call(options: ScriptOptions): Promise<unknown> {
    const connection = this.#connection;
    if (this.#functions && connection.fCall !== undefined) return connection.fCall(FUNCTION_NAME, options);
    try {
      return await connection.evalSha(GUARD_SHA1, options);
    } catch (error) {
      // A server that was restarted, or took over, has not seen the script. Nothing ran, so it may be sent again.
      if (!NO_SCRIPT.test(messageOf(error))) throw error;
      return await connection.eval(GUARD_SCRIPT, options);
    }
  }
}

function encoded(commands: readonly RedisCommand[]): RedisWord[] {
  if (commands.length > COMMANDS_MAX)
    throw new TypeError(`at most ${String(COMMANDS_MAX)} commands at a time`);
  return commands.flatMap((words) => {
    if (words.length === 0 || words.length > COMMAND_WORDS_MAX)
      throw new TypeError(`a command has 1 to ${String(COMMAND_WORDS_MAX)} words`);
    return [String(words.length), ...words];
  });
}

/** Errors of the script itself; those of the connection stay what they are. */
function translated(error: unknown, commands: number): unknown {
  const message = messageOf(error);
  if (NO_FUNCTION.test(message)) {
    const advice = "the guard's function is not stored in this server: call loadFunctions()";
    return new GuardError("guard-unsupported", "not-applied", advice, { cause: error });
  }
  if (!OUR_REFUSAL.test(message)) return error;
  // A lone command that failed did nothing; of several, those before it stay.
  const outcome: OperationOutcome = commands > 1 ? "unknown" : "not-applied";
  return new GuardError("guard-failed", outcome, message.replace(/^(?:ERR )?LOCKSTEP /, ""), {
    cause: error,
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "";
}
