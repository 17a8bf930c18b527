import type { Client } from "../client.ts";
import type { CallOptions } from "../types.ts";
import { acquiring, orUndefined, type Wait } from "./acquiring.ts";
import { whileHeld, type Claim } from "./claim.ts";
import { Lock, type LockOptions } from "./exclusive-lock.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { lockState, type LockState } from "./owner.ts";
import { Queue } from "./queue.ts";
import { askHolder, type AskOptions } from "./revocation.ts";

/** How many waiters {@link FairLock.inspect} tells of. */
const INSPECT_MAX = 1_000;

/** Who holds a lock, and who waits for it. */
export interface QueueState {
  readonly holder: LockState | undefined;
  /** In the order in which they will be served; at most the first 1,000. */
  readonly waiters: readonly LockState[];
}

/**
 * One holder at a time, in the order in which they asked. One round trip when it is free, and the release and its event
 * when it is handed on. A release tells the three next in line and nobody else, however many wait.
 */
export class FairLock {
  readonly name: string;
  readonly #client: Client;
  readonly #queue: Queue;

  constructor(client: Client, name: string) {
    checkName("a fair lock", name);
    this.#client = client;
    this.name = name;
    this.#queue = new Queue(client, { own: keysOf(ROOTS.fairLock, name) });
  }

  /**
   * Takes the lock; waits for its turn. Whatever way it fails, no key of this attempt stays.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`, and `not-held` when
   *   somebody deleted the place in the queue.
   */
  acquire(options: LockOptions): Promise<Lock> {
    return acquiring(
      this.#client,
      { recipe: "fair-lock", what: `the fair lock "${this.name}"` },
      options,
      (wait) => this.#acquire(wait),
    );
  }

  /** Takes the lock if nobody holds it or waits for it; undefined: somebody does. */
  tryAcquire(options: Omit<LockOptions, "waitMs">): Promise<Lock | undefined> {
    return orUndefined(this.acquire({ ...options, waitMs: 0 }));
  }

  /** Runs `work` while holding the lock. Rejects with `not-held` if the lock did not last until the work's end. */
  async with<T>(options: LockOptions, work: (lock: Lock) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.acquire(options), work);
  }

  /** Who holds it, and who waits, in the order in which they are served. */
  async inspect(options: CallOptions = {}): Promise<QueueState> {
    const kvs = await this.#queue.list({ ...options, limit: INSPECT_MAX + 1 });
    const [holder, ...waiters] = kvs.map((kv) => lockState(kv));
    return { holder, waiters };
  }

  /**
   * Asks whoever holds it to give it up; whether and when is the holder's decision (see `client.onAsked`). Release the
   * request when it is of no use any more. @returns undefined when nobody holds it.
   */
  async askHolder(options: AskOptions): Promise<Claim | undefined> {
    const [holder] = await this.#queue.list({ limit: 1 });
    return askHolder(this.#client, holder, options);
  }

  async #acquire(wait: Wait): Promise<Lock> {
    const place = await this.#queue.takeTurn(wait);
    return new Lock(this.#client, wait, { name: this.name, ...place });
  }
}
