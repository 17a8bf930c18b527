import type { Client } from "../client.ts";
import type { CallOptions, TxnResult } from "../types.ts";
import {
  acquiring,
  isStillWanted,
  orUndefined,
  throwUnwanted,
  timedOut,
  type AcquireOptions,
  type Wait,
} from "./acquiring.ts";
import { create } from "./attempt.ts";
import { Claim, whileHeld } from "./claim.ts";
import { firstDeletions } from "./follow.ts";
import { ROOTS } from "./names.ts";
import { lockState, ownerMark, type LockState } from "./owner.ts";
import { askHolder, type AskOptions } from "./revocation.ts";

/** How a lock is taken. */
export type LockOptions = AcquireOptions;

/** A held lock. */
export class Lock extends Claim {
  readonly name: string;

  /**
   * Made by the lock's `acquire`.
   * @internal
   */
  constructor(
    client: Client,
    wait: Wait,
    fields: { readonly name: string; readonly key: string; readonly token: number },
  ) {
    const { session, what, watchKey } = wait;
    super(client, { session, what, watchKey, key: fields.key, token: fields.token });
    this.name = fields.name;
  }
}

/** The key of an exclusive lock: `GET /v1/kv/locks/NAME` shows it, and `lockstep lock NAME` takes the same. */
export function lockKey(name: string): string {
  return `${ROOTS.lock}${name}`;
}

/**
 * One holder at a time. Whoever waits tries again when the lock is freed, and any of them may get it: for an order,
 * and for many who wait, see `FairLock`. One round trip when it is free.
 */
export class ExclusiveLock {
  readonly name: string;
  readonly key: string;
  readonly #client: Client;

  constructor(client: Client, name: string) {
    if (name === "") throw new TypeError("a lock needs a name");
    this.#client = client;
    this.name = name;
    this.key = lockKey(name);
  }

  /**
   * Takes the lock; waits until it is free. Whatever way it fails, no key of this attempt stays.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`.
   */
  acquire(options: LockOptions): Promise<Lock> {
    return acquiring(this.#client, { recipe: "lock", what: `the lock "${this.name}"` }, options, (wait) =>
      this.#acquire(wait),
    );
  }

  /** Takes the lock if it is free now; undefined: it is not. */
  tryAcquire(options: Omit<LockOptions, "waitMs">): Promise<Lock | undefined> {
    return orUndefined(this.acquire({ ...options, waitMs: 0 }));
  }

  /** Runs `work` while holding the lock. Rejects with `not-held` if the lock did not last until the work's end. */
  async with<T>(options: LockOptions, work: (lock: Lock) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.acquire(options), work);
  }

  /** Who holds it now; undefined: nobody. */
  async holder(options: CallOptions = {}): Promise<LockState | undefined> {
    return lockState(await this.#client.get(this.key, options));
  }

  /**
   * Asks whoever holds it to give it up; whether and when is the holder's decision (see `client.onAsked`). Release the
   * request when it is of no use any more. @returns undefined when nobody holds it.
   */
  async askHolder(options: AskOptions): Promise<Claim | undefined> {
    return askHolder(this.#client, await this.#client.get(this.key), options);
  }

  async #acquire(wait: Wait): Promise<Lock> {
    const client = this.#client;
    const value = JSON.stringify(ownerMark(client, wait.session));
    for (;;) {
      const result = await this.#create(wait, value);
      const won = result.succeeded ? result.responses[0] : undefined;
      if (won?.kind === "put") {
        const lock = new Lock(client, wait, { name: this.name, key: this.key, token: won.createRevision });
        if (isStillWanted(wait)) return lock;
        // Won, but nobody waits any more.
        await lock[Symbol.asyncDispose]();
        throwUnwanted(wait);
      }
      if (wait.once) throw timedOut(wait.what);
      await firstDeletions(client, this.key, { revision: result.revision, stop: wait.stop });
    }
  }

  #create(wait: Wait, value: string): Promise<TxnResult> {
    const client = this.#client;
    const { key } = this;
    const undo =
      (condition: { readonly createRevision: number } | { readonly value: string }) =>
      (options: CallOptions): Promise<TxnResult> =>
        client.txn({ compares: [{ key, ...condition }], success: [{ delete: { key } }] }, options);
    return create(client, wait, {
      txn: {
        compares: [{ key, createRevision: 0 }],
        success: [{ put: { key, value, leaseId: wait.session.leaseId } }],
      },
      undoKnown: (result) => {
        const put = result.succeeded ? result.responses[0] : undefined;
        return put?.kind === "put" ? undo({ createRevision: put.createRevision }) : () => Promise.resolve();
      },
      undoUnknown: undo({ value }),
    });
  }
}
