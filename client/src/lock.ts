import type { Client } from "./client.ts";
import { LockstepError } from "./errors.ts";
import type { Session } from "./session.ts";
import type { KeyValue, TxnResult } from "./types.ts";

/** With a leading slash, as every key of the HTTP door: `GET /v1/kv/locks/NAME` shows a lock. */
const PREFIX = "/locks/";
const CLEAN_UP_MS_MAX = 5_000;
/** One try to create the key; the wait itself is longer. */
const CLAIM_MS_MAX = 10_000;
const TOKEN_DIGITS = 16;

export interface LockOptions {
  /** The lock lives as long as this session. */
  readonly session: Session;
  /** Wait at most this long for the lock; 0: try once. Default: until the session ends. */
  readonly waitMs?: number;
  /** Stop waiting when it fires. */
  readonly signal?: AbortSignal;
}

/** A lock's key. */
export function lockKey(name: string): string {
  return `${PREFIX}${name}`;
}

/** A token as 16 digits, which sort as text the way the numbers do. */
export function tokenToString(token: number): string {
  return String(token).padStart(TOKEN_DIGITS, "0");
}

/**
 * A held lock. Hand `token` to everything that the lock protects, and let it refuse smaller ones: a process that was
 * stopped for long may believe in a lock that has passed on.
 */
export class Lock implements AsyncDisposable {
  readonly name: string;
  readonly key: string;
  /** The fencing token: strictly larger than that of every earlier holder. */
  readonly token: number;
  readonly tokenString: string;
  readonly session: Session;
  readonly #client: Client;
  readonly #held = new AbortController();
  readonly #onSessionLost: () => void;

  /** Made by {@link acquireLock}. */
  constructor(client: Client, session: Session, fields: { readonly name: string; readonly token: number }) {
    this.#client = client;
    this.session = session;
    this.name = fields.name;
    this.key = lockKey(fields.name);
    this.token = fields.token;
    this.tokenString = tokenToString(fields.token);
    this.#onSessionLost = () => this.#held.abort(session.lost.reason);
    if (session.lost.aborted) this.#onSessionLost();
    else session.lost.addEventListener("abort", this.#onSessionLost, { once: true });
  }

  /** Fires when the lock is no longer held: its session is over or may be, or it was released. */
  get held(): AbortSignal {
    return this.#held.signal;
  }

  /** Throws unless the lock is certainly held for at least `marginMs` more. Reads the clock: call it before each effect. */
  assertHeld(marginMs = 0): void {
    if (this.#held.signal.aborted) {
      throw new LockstepError("not-held", "not-applied", `the lock "${this.name}" is not held any more`, {
        cause: this.#held.signal.reason,
      });
    }
    this.session.assertAlive(marginMs);
  }

  /**
   * Frees the lock. Compares the token, so it can never free a later holder's lock. May be repeated after an error.
   * After the end of the session there is nothing to do, and no network is used.
   */
  async release(): Promise<void> {
    this.session.lost.removeEventListener("abort", this.#onSessionLost);
    this.#held.abort(new LockstepError("not-held", "not-applied", `the lock "${this.name}" was released`));
    if (this.session.lost.aborted) return;
    await this.#client.txn({
      compares: [{ key: this.key, createRevision: this.token }],
      success: [{ delete: { key: this.key } }],
    });
  }

  /** {@link release} that never throws: an error would hide that of the block. The lease frees the lock at last. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.release();
    } catch {
      // See above.
    }
  }
}

interface Attempt {
  readonly name: string;
  readonly key: string;
  /** Tells this attempt's key from any other's, also of the same session. */
  readonly value: string;
  readonly session: Session;
}

/**
 * Acquires a lock: creates its key under the session's lease if there is none, else waits for its deletion and tries
 * again. Whatever way it fails, no key of this attempt stays.
 */
export async function acquireLock(client: Client, name: string, options: LockOptions): Promise<Lock> {
  if (name === "") throw new TypeError("a lock needs a name");
  const { session } = options;
  session.assertAlive();
  const attempt: Attempt = {
    name,
    key: lockKey(name),
    value: JSON.stringify({ owner: session.owner, attempt: client.runtime.uuid() }),
    session,
  };
  const deadlineAt = options.waitMs === undefined ? Infinity : client.runtime.now() + options.waitMs;
  const stop = new AbortController();
  const stopWith = (signal: AbortSignal): (() => void) => {
    const onAbort = (): void => stop.abort(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return () => signal.removeEventListener("abort", onAbort);
  };
  const unsubscribe = [session.lost, ...(options.signal === undefined ? [] : [options.signal])].map(stopWith);
  const cancelTimer =
    options.waitMs === undefined || options.waitMs === 0
      ? undefined
      : client.runtime.schedule(() => stop.abort(lockTimeout(name)), options.waitMs);
  try {
    return await acquireUntil(client, attempt, { stop: stop.signal, deadlineAt });
  } catch (error) {
    throw stopError(error, session, stop.signal);
  } finally {
    cancelTimer?.();
    for (const end of unsubscribe) end();
  }
}

async function acquireUntil(
  client: Client,
  attempt: Attempt,
  until: { readonly stop: AbortSignal; readonly deadlineAt: number },
): Promise<Lock> {
  for (;;) {
    const result = await claim(client, attempt, until.stop);
    const won = result.succeeded ? result.responses[0] : undefined;
    if (won?.kind === "put") {
      const lock = new Lock(client, attempt.session, { name: attempt.name, token: won.createRevision });
      // A process that was stopped reads the answer before the timer that ends its session: the clock decides (B18).
      if (!until.stop.aborted && attempt.session.remainingMs() > 0) return lock;
      // Won, but nobody waits any more.
      await lock[Symbol.asyncDispose]();
      until.stop.throwIfAborted();
      attempt.session.assertAlive();
    }
    if (client.runtime.now() >= until.deadlineAt) throw lockTimeout(attempt.name);
    await untilDeleted(client, attempt.key, { revision: result.revision, stop: until.stop });
  }
}

async function claim(client: Client, attempt: Attempt, stop: AbortSignal): Promise<TxnResult> {
  stop.throwIfAborted();
  const { key, value, session } = attempt;
  try {
    // The signal is not handed on: giving the answer up would leave the outcome unknown. It comes within the deadline.
    return await client.txn(
      {
        compares: [{ key, createRevision: 0 }],
        success: [{ put: { key, value, leaseId: session.leaseId } }],
      },
      { deadlineMs: Math.min(CLAIM_MS_MAX, session.remainingMs()) },
    );
  } catch (error) {
    if (error instanceof LockstepError && error.outcome === "unknown") await cleanUp(client, attempt);
    throw error;
  }
}

/** The claim may have taken effect: take it back. If even that fails, the end of the session does it. */
async function cleanUp(client: Client, { key, value, session }: Attempt): Promise<void> {
  const deadlineMs = Math.min(CLEAN_UP_MS_MAX, session.remainingMs());
  if (deadlineMs <= 0) return;
  try {
    await client.txn({ compares: [{ key, value }], success: [{ delete: { key } }] }, { deadlineMs });
  } catch {
    // See above.
  }
}

async function untilDeleted(
  client: Client,
  key: string,
  from: { readonly revision: number; readonly stop: AbortSignal },
): Promise<void> {
  const watch = client.watch(key, { startRevision: from.revision + 1, omit: "put", signal: from.stop });
  try {
    for await (const event of watch) if (event.kind === "delete") return;
  } catch (error) {
    // The place was forgotten while waiting: look at the key again.
    if (error instanceof LockstepError && error.code === "compacted") return;
    throw error;
  }
  from.stop.throwIfAborted();
}

/** Waiting ends when the session ends, whatever else went wrong at the same time. */
function stopError(error: unknown, session: Session, stop: AbortSignal): unknown {
  if (session.lost.aborted) return session.lost.reason;
  if (!stop.aborted || error instanceof LockstepError) return error;
  return new LockstepError("cancelled", "not-applied", "waiting for the lock was cancelled", {
    cause: stop.reason,
  });
}

function lockTimeout(name: string): LockstepError {
  return new LockstepError(
    "lock-timeout",
    "not-applied",
    `the lock "${name}" was not free in time: somebody else holds it`,
  );
}

/** Who holds a lock; undefined: nobody. */
export interface LockState {
  readonly token: number;
  readonly leaseId: string;
  readonly owner: string;
}

/** Reads a lock's key. */
export function lockState(kv: KeyValue | undefined): LockState | undefined {
  if (kv === undefined) return undefined;
  let owner = "";
  try {
    const value = kv.json();
    if (typeof value === "object" && value !== null && "owner" in value && typeof value.owner === "string") {
      owner = value.owner;
    }
  } catch {
    // A key that was not written by this library holds the lock all the same.
  }
  return { token: kv.createRevision, leaseId: kv.leaseId, owner };
}
