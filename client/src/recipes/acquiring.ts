import { Backoff } from "../backoff.ts";
import type { Client } from "../client.ts";
import { DIAGNOSTICS, observed } from "../diagnostics.ts";
import { LockstepError } from "../errors.ts";
import type { Session } from "../session.ts";
import { Farewell } from "./farewell.ts";
import { isPassing, pauseUntil } from "./persist.ts";
import { onSessionLost } from "./session-end.ts";

/** How something is acquired. */
export interface AcquireOptions {
  /** What is acquired lives as long as this session. */
  readonly session: Session;
  /** Wait at most this long; 0: try once. Default: until the session ends. */
  readonly waitMs?: number;
  /** Stop waiting when it fires. */
  readonly signal?: AbortSignal;
  /**
   * Notice, by a watch, when somebody else deletes the key of what is held: an operator who breaks a lock. It begins
   * after a second, so that what is held shortly costs nothing. Default true.
   */
  readonly watchKey?: boolean;
}

/** What somebody wants to acquire. */
export interface Subject {
  /** Which recipe: for whoever counts. */
  readonly recipe: string;
  /** For people: `the lock "NAME"`. */
  readonly what: string;
}

/** How long somebody may and wants to wait, and what ends it. */
export interface Wait {
  /** For people: `the lock "NAME"`. */
  readonly what: string;
  readonly session: Session;
  /** Fires when the waiting is over: by its time, by the caller's signal, by the end of the session. */
  readonly stop: AbortSignal;
  /** The caller wants it at once or not at all. */
  readonly once: boolean;
  readonly watchKey: boolean;
  /** Of this acquisition: the same, however often it is tried. */
  readonly id: string;
  /** Begins with `stop`, or with a failure that is not followed by another try (see {@link tryFailed}). */
  readonly farewell: Farewell;
  readonly outage: Outage;
}

/** Why nothing is got on with at present; undefined: nothing stands in the way. */
export interface Outage {
  failure: LockstepError | undefined;
}

/**
 * Runs `work` under everything that may end it; what it throws then says which of them it was. Whoever waits does so
 * through an outage, too: `work` begins anew after a failure that passes, of which it has left nothing behind.
 */
export function acquiring<T>(
  client: Client,
  subject: Subject,
  options: AcquireOptions,
  work: (wait: Wait) => Promise<T>,
): Promise<T> {
  const { owner } = options.session;
  return observed(
    DIAGNOSTICS.acquire,
    client.runtime,
    () => acquire(client, subject.what, options, work),
    (end, result) => ({ ...subject, owner, ...end, ...(hasToken(result) ? { token: result.token } : {}) }),
  );
}

function hasToken(result: unknown): result is { readonly token: number } {
  return (
    typeof result === "object" && result !== null && "token" in result && typeof result.token === "number"
  );
}

async function acquire<T>(
  client: Client,
  what: string,
  options: AcquireOptions,
  work: (wait: Wait) => Promise<T>,
): Promise<T> {
  const { session, waitMs, signal } = options;
  if (waitMs !== undefined && !(waitMs >= 0)) throw new TypeError("waitMs is a number of at least 0");
  session.assertAlive();
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(cancelled(what, signal?.reason));
  const unsubscribe = onSessionLost(session, () => stop.abort(session.lost.reason));
  if (signal?.aborted === true) onAbort();
  else signal?.addEventListener("abort", onAbort, { once: true });
  const outage: Outage = { failure: undefined };
  const farewell = new Farewell(client.runtime);
  const onStop = (): void => farewell.begin(stop.signal.reason);
  if (stop.signal.aborted) onStop();
  else stop.signal.addEventListener("abort", onStop, { once: true });
  const cancelTimer =
    waitMs === undefined || waitMs === 0
      ? undefined
      : client.runtime.schedule(() => stop.abort(timedOut(what, outage.failure)), waitMs);
  const wait: Wait = {
    ...{ what, session, stop: stop.signal },
    once: waitMs === 0,
    watchKey: options.watchKey ?? true,
    ...{ id: client.runtime.uuid(), farewell, outage },
  };
  try {
    return await (wait.once ? work(wait) : throughOutages(client, wait, work));
  } catch (error) {
    // Waiting ends when the session ends, whatever else went wrong at the same time.
    if (session.lost.aborted) throw session.lost.reason;
    throw stop.signal.aborted && willPass(error) ? stop.signal.reason : error;
  } finally {
    cancelTimer?.();
    farewell.end();
    unsubscribe();
    signal?.removeEventListener("abort", onAbort);
  }
}

async function throughOutages<T>(client: Client, wait: Wait, work: (wait: Wait) => Promise<T>): Promise<T> {
  const backoff = new Backoff(client.runtime);
  for (;;) {
    try {
      return await work(wait);
    } catch (error) {
      if (wait.stop.aborted || !willPass(error)) throw error;
      wait.outage.failure = error;
      await pauseUntil(client, wait.stop, backoff.nextMs(error.retryAfterMs));
      throwUnwanted(wait);
    }
  }
}

/** Also: the cell has forgotten whether it executed the try. It is taken back like one whose answer was lost. */
function willPass(error: unknown): error is LockstepError {
  return isPassing(error) || (error instanceof LockstepError && error.code === "request-expired");
}

/** To be called before a try that failed is taken back: unless there will be another one, nobody waits long for that. */
export function tryFailed(wait: Wait, error: unknown): void {
  if (wait.once || !willPass(error)) wait.farewell.begin(error);
}

/** The same for whoever asks without wanting to wait: what was not free is `undefined` instead of an error. */
export async function orUndefined<T>(acquired: Promise<T>): Promise<T | undefined> {
  try {
    return await acquired;
  } catch (error) {
    if (error instanceof LockstepError && error.code === "lock-timeout") return undefined;
    throw error;
  }
}

/** A process that was stopped reads an answer before the timer that ends its session: the clock decides (B18). */
export function isStillWanted(wait: Wait): boolean {
  return !wait.stop.aborted && wait.session.remainingMs() > 0;
}

/** Throws why {@link isStillWanted} says no. */
export function throwUnwanted(wait: Wait): void {
  wait.stop.throwIfAborted();
  wait.session.assertAlive();
}

/** @param outage why the cell could not be asked for a part of the time */
export function timedOut(what: string, outage?: LockstepError): LockstepError {
  const why =
    outage === undefined
      ? "somebody else holds it"
      : `somebody else holds it, or the cell could not be asked (${outage.message})`;
  return new LockstepError("lock-timeout", "not-applied", `${what} was not free in time: ${why}`, {
    cause: outage,
  });
}

function cancelled(what: string, cause: unknown): LockstepError {
  return new LockstepError("cancelled", "not-applied", `waiting for ${what} was cancelled`, { cause });
}
