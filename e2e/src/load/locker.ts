import type { ErrorCounts } from "./errors.ts";
import type { Ledger } from "./ledger.ts";
import { Pace, type Gate, type Timing } from "./pace.ts";
import type { Store, StoreLock, StoreSession, WriteResult } from "./store.ts";
import type { TokenCheck } from "./token-check.ts";
import type { Violations } from "./violations.ts";
import type { WatchCheck } from "./watch-check.ts";

/** What all lockers share. */
export interface LockerParts {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly watch: WatchCheck;
  readonly tokens: TokenCheck;
  readonly guard: Guard;
  readonly violations: Violations;
  readonly errors: ErrorCounts;
  readonly timing: Timing;
  readonly gate: Gate;
}

export interface LockerOptions {
  readonly worker: string;
  readonly lock: string;
  readonly perSecond: number;
}

const WAIT_MS = 10_000;
const BACKOFF_MS = 200;
/** How often a tenure ends with its session, and not by releasing the lock. */
const CLOSE_SESSION_SHARE = 0.1;
/** One tenure's attempts to write the guarded register: each loses only against an unknown outcome or another write. */
const GUARD_ATTEMPTS_MAX = 5;

/** The register that the lock protects: it holds the largest token that wrote it, and is never given a smaller one. */
export class Guard {
  readonly key: string;
  /** The largest token whose write was acknowledged. */
  #acknowledged = 0;

  constructor(key: string) {
    this.key = key;
  }

  get acknowledged(): number {
    return this.#acknowledged;
  }

  wrote(token: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, token);
  }
}

/** Contends for the lock with a session of its own, and writes the guarded register while it holds it. */
export class Locker {
  readonly #parts: LockerParts;
  readonly #options: LockerOptions;
  #session: StoreSession | undefined;
  #fenced = 0;
  #sessionsLost = 0;

  constructor(parts: LockerParts, options: LockerOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  /** Tenures that found a larger token in the register, after they had lost the lock. */
  get fenced(): number {
    return this.#fenced;
  }

  get sessionsLost(): number {
    return this.#sessionsLost;
  }

  async run(): Promise<void> {
    const { gate, timing, errors } = this.#parts;
    const pace = new Pace(timing, this.#options.perSecond);
    for (;;) {
      await pace.turn();
      if (!(await gate.enter())) break;
      try {
        await this.#tenure();
      } catch (error) {
        errors.add(error);
        await timing.delay(BACKOFF_MS);
      } finally {
        gate.leave();
      }
    }
    await this.#session?.close();
  }

  async #tenure(): Promise<void> {
    const { store, tokens, timing } = this.#parts;
    const { worker, lock: name } = this.#options;
    const session = await this.#open();
    const lock = await store.lock(name, session, WAIT_MS);
    tokens.hold(worker, lock);
    try {
      await this.#write(lock);
    } finally {
      tokens.drop(worker);
      if (timing.random() < CLOSE_SESSION_SHARE) {
        this.#session = undefined;
        await session.close();
      } else await lock.release();
    }
  }

  async #open(): Promise<StoreSession> {
    if (this.#session?.isAlive() === true) return this.#session;
    if (this.#session !== undefined) this.#sessionsLost += 1;
    this.#session = undefined;
    return (this.#session = await this.#parts.store.session(this.#options.worker));
  }

  async #write(lock: StoreLock): Promise<void> {
    for (let attempt = 1; attempt <= GUARD_ATTEMPTS_MAX && lock.isHeld(); attempt += 1)
      if (await this.#attempt(lock)) return;
  }

  /** @returns whether this tenure is done with the register. */
  async #attempt(lock: StoreLock): Promise<boolean> {
    const { store, guard, ledger, watch, errors } = this.#parts;
    const { token } = lock;
    const current = await this.#read();
    if (current.value > token) {
      this.#refuse(lock, current.value);
      return true;
    }
    // An attempt whose outcome was unknown: it took effect.
    if (current.value === token) return true;
    const { floor } = ledger;
    watch.attempted(guard.key, token);
    try {
      const answer = await store.compareAndPut(guard.key, token, current.revision);
      if (answer.kind === "refused") return false;
      this.#wrote(token, answer.result, floor);
      return true;
    } catch (error) {
      errors.add(error);
      return false;
    }
  }

  async #read(): Promise<{ readonly value: number; readonly revision: number }> {
    const { store, guard, ledger, violations } = this.#parts;
    const { floor } = ledger;
    const { acknowledged } = guard;
    const { revision, stored } = await store.get(guard.key);
    if (revision < floor)
      violations.add(
        "revision-order",
        `the guarded register was read at revision ${revision}, when ${floor} had been answered before`,
      );
    ledger.seen(revision);
    const value = stored?.value ?? 0;
    if (value < acknowledged)
      violations.add(
        "lost-write",
        `the guarded register holds ${value}, and ${acknowledged} had been written`,
      );
    return { value, revision: stored?.revision ?? 0 };
  }

  #wrote(token: number, result: WriteResult, floor: number): void {
    const { guard, ledger, watch, violations } = this.#parts;
    if (result.revision <= floor)
      violations.add(
        "revision-order",
        `the guarded register was written at revision ${result.revision}, when ${floor} had been answered before`,
      );
    ledger.seen(result.revision);
    guard.wrote(token);
    watch.acknowledged({ key: guard.key, value: token, ...result });
  }

  /** The larger token was given later than ours: only whoever lost the lock may meet it. */
  #refuse(lock: StoreLock, larger: number): void {
    if (lock.isHeld())
      this.#parts.violations.add(
        "guard",
        `${this.#options.worker} certainly holds the lock with token ${lock.token}, and ${larger} has written the register`,
      );
    else this.#fenced += 1;
  }
}
