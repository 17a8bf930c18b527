import type { Client } from "./client.ts";
import { HeldLease, type LeaseEndReason } from "./channel/leases.ts";
import { DIAGNOSTICS, type SessionEnd } from "./diagnostics.ts";
import { LockstepError } from "./errors.ts";
import type { CallOptions, Cause, LeaseId } from "./types.ts";

const CLOSE_MS_MAX = 5_000;
const MARGIN_MS_MIN = 500;

export interface SessionOptions extends CallOptions {
  /** How long the cell waits after the last renewal before it ends the session. At least 2,000 ms. */
  readonly ttlMs: number;
  /** Who this is, for people: host and process. */
  readonly owner?: string;
  /**
   * How much earlier than the cell this side gives the session up. Default: a tenth of the TTL, at least 500 ms, at
   * most a third of the TTL.
   */
  readonly marginMs?: number;
  /**
   * How long the main loop may be busy before the session is no longer renewed: whoever cannot run cannot notice that it
   * has lost what it owns. Default: one TTL. Means nothing with `worker: false`, where a busy loop cannot renew.
   */
  readonly mainLoopStallMaxMs?: number;
}

/**
 * `connected`: renewals have a member to go to. `suspended`: they have none now; what is owned is owned until the
 * deadline. `lost`: the session is over, or may be.
 */
export type SessionState = "connected" | "suspended" | "lost";

/**
 * This process's claim to be alive, kept by renewing a lease. Keys put with its `leaseId`, and locks, vanish with it.
 * The end is final: nothing is ever re-acquired silently.
 */
export class Session implements AsyncDisposable {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  readonly owner: string;
  readonly #client: Client;
  readonly #lost = new AbortController();
  #lease: HeldLease | undefined;
  #closing: Promise<void> | undefined;
  #state: SessionState = "connected";
  readonly #stateListeners = new Set<(state: SessionState) => void>();
  #unsubscribe: () => void = () => undefined;

  private constructor(client: Client, fields: { leaseId: LeaseId; ttlMs: number; owner: string }) {
    this.#client = client;
    this.leaseId = fields.leaseId;
    this.ttlMs = fields.ttlMs;
    this.owner = fields.owner;
  }

  /** Use `client.session()`. */
  static async open(client: Client, options: SessionOptions): Promise<Session> {
    const { runtime } = client;
    const owner = options.owner ?? "";
    checkMargin(options);
    // Before the grant is sent: the cell starts counting later than this.
    const sent = { monotonicMs: runtime.now(), wallMs: runtime.wallNow() };
    const granted = await client.leaseGrant({ ...options, owner });
    const session = new Session(client, { leaseId: granted.leaseId, ttlMs: granted.ttlMs, owner });
    const lease = new HeldLease(runtime, {
      leaseId: granted.leaseId,
      ttlMs: granted.ttlMs,
      marginMs: options.marginMs ?? defaultMargin(granted.ttlMs),
      sent,
      onEnd: (reason) => session.#onEnd(reason),
      stallMsMax: options.mainLoopStallMaxMs ?? granted.ttlMs,
    });
    session.#lease = lease;
    const { channel } = client;
    channel.leases.hold(lease);
    session.#unsubscribe = channel.onConnection((connected) => session.#connection(connected));
    if (!channel.connected) session.#state = "suspended";
    session.#tell();
    return session;
  }

  get state(): SessionState {
    return this.#state;
  }

  /**
   * Told of each change of {@link Session.state}, in a turn of its own: an exception surfaces as an uncaught one and harms
   * nobody else. `lost` comes last.
   * @returns the function that ends it.
   */
  onStateChange(listener: (state: SessionState) => void): () => void {
    this.#stateListeners.add(listener);
    return () => this.#stateListeners.delete(listener);
  }

  /** Fires once, with a {@link LockstepError} `session-lost` as reason, when the session is over or may be. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Milliseconds that are certainly left, by this process's own clocks, read now; 0: over. */
  remainingMs(): number {
    return this.#lease?.leftMs() ?? 0;
  }

  /**
   * Throws `session-lost` unless at least `marginMs` are certainly left. Signals are delivered late to a process that
   * was stopped; this reads the clock, so call it right before each effect.
   */
  assertAlive(marginMs = 0): void {
    if (!this.#lost.signal.aborted && this.remainingMs() > marginMs) return;
    const { reason } = this.#lost.signal as { reason: unknown };
    throw reason instanceof LockstepError ? reason : lostError("local-deadline", "unknown");
  }

  /** Revokes the lease: keys and locks are free at once. Never throws; bounded in time. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined || lease.over) return;
    const leftMs = lease.leftMs();
    this.#client.channel.leases.drop(lease);
    this.#end("closed", new LockstepError("session-lost", "not-applied", "the session was closed"));
    if (leftMs <= 0) return;
    try {
      await this.#client.leaseRevoke(this.leaseId, { deadlineMs: Math.min(CLOSE_MS_MAX, leftMs) });
    } catch {
      // The lease runs out by itself.
    }
  }

  /** {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #onEnd(reason: LeaseEndReason): void {
    const { kind, cause } = reason;
    this.#end(kind === "local-deadline" ? "deadline" : kind, lostError(kind, cause));
  }

  #end(end: SessionEnd, error: LockstepError): void {
    this.#unsubscribe();
    this.#become("lost");
    this.#lost.abort(error);
    this.#tell(end);
  }

  #connection(connected: boolean): void {
    const state = connected ? "connected" : "suspended";
    if (this.#state === "lost" || this.#state === state) return;
    this.#become(state);
    this.#tell();
  }

  #tell(end?: SessionEnd): void {
    if (!DIAGNOSTICS.session.hasSubscribers) return;
    const { leaseId, owner, state } = this;
    const message = { session: this, leaseId, owner, state };
    DIAGNOSTICS.session.publish(end === undefined ? message : { ...message, end });
  }

  #become(state: SessionState): void {
    if (state === this.#state) return;
    this.#state = state;
    for (const listener of this.#stateListeners) this.#client.runtime.afterTurn(() => listener(state));
  }
}

/** More would leave no time to renew in, and less than none is a promise that the cell does not give. */
function checkMargin({ ttlMs, marginMs }: SessionOptions): void {
  if (marginMs === undefined || (marginMs >= 0 && marginMs <= (ttlMs * 2) / 3)) return;
  throw new RangeError(`marginMs is from 0 to two thirds of ttlMs (${String(Math.floor((ttlMs * 2) / 3))})`);
}

function defaultMargin(ttlMs: number): number {
  return Math.min(ttlMs / 3, Math.max(MARGIN_MS_MIN, ttlMs / 10));
}

function lostError(kind: LeaseEndReason["kind"], cause: Cause): LockstepError {
  switch (kind) {
    case "ended":
      return new LockstepError("session-lost", "not-applied", `the cell ended the session (${cause})`);
    case "local-deadline":
      return new LockstepError(
        "session-lost",
        "not-applied",
        "no renewal was acknowledged in time: the cell may have ended the session",
      );
    case "closed":
      return new LockstepError("session-lost", "not-applied", "the client was closed");
  }
}
