import type { Client } from "../client.ts";
import type { CallOptions, TxnResult } from "../types.ts";
import { acquiring, isStillWanted, orUndefined, throwUnwanted, timedOut, type Wait } from "./acquiring.ts";
import { create } from "./attempt.ts";
import { Claim, whileHeld } from "./claim.ts";
import { lockKey, type LockOptions } from "./exclusive-lock.ts";
import { firstDeletions } from "./follow.ts";
import { ownerMark } from "./owner.ts";

/** A transaction's bound, with room for what the caller adds. */
const NAMES_MAX = 64;

/** All of several locks, held together: one token for all, for they were taken in one revision. */
export class MultiLockHold extends Claim {
  /** Sorted, each once. */
  readonly names: readonly string[];

  /**
   * Made by the multi-lock.
   * @internal
   */
  constructor(
    client: Client,
    wait: Wait,
    fields: { readonly names: readonly string[]; readonly token: number },
  ) {
    const [key = "", ...moreKeys] = fields.names.map(lockKey);
    const { session, what, watchKey } = wait;
    super(client, { session, what, watchKey, key, moreKeys, token: fields.token });
    this.names = fields.names;
  }
}

/**
 * Several exclusive locks, all or none: they are taken in one transaction, so nobody ever holds some while waiting for
 * others, and no two of these can wait for each other. They are the same locks as those of `client.lock(NAME)`. There
 * is no order among those who wait; whoever needs many locks that are seldom free together may wait long.
 */
export class MultiLock {
  /** Sorted, each once. */
  readonly names: readonly string[];
  readonly #client: Client;

  constructor(client: Client, names: readonly string[]) {
    const sorted = [...new Set(names)].sort();
    if (sorted.length === 0 || sorted.length > NAMES_MAX || sorted.includes("")) {
      throw new TypeError(`a multi-lock needs from 1 to ${NAMES_MAX} names, none of them empty`);
    }
    this.#client = client;
    this.names = sorted;
  }

  /**
   * Takes all locks; waits until all are free at once. Whatever way it fails, no key of this attempt stays.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`.
   */
  acquire(options: LockOptions): Promise<MultiLockHold> {
    const what = `the locks "${this.names.join('", "')}"`;
    return acquiring(this.#client, { recipe: "multi-lock", what }, options, (wait) => this.#acquire(wait));
  }

  /** Takes all locks if all are free now; undefined: one is not. */
  tryAcquire(options: Omit<LockOptions, "waitMs">): Promise<MultiLockHold | undefined> {
    return orUndefined(this.acquire({ ...options, waitMs: 0 }));
  }

  /** Runs `work` while holding all. Rejects with `not-held` if they did not last until the work's end. */
  async with<T>(options: LockOptions, work: (hold: MultiLockHold) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.acquire(options), work);
  }

  async #acquire(wait: Wait): Promise<MultiLockHold> {
    const client = this.#client;
    const value = JSON.stringify(ownerMark(client, wait.session));
    for (;;) {
      const result = await this.#create(wait, value);
      if (result.succeeded) {
        const hold = new MultiLockHold(client, wait, { names: this.names, token: result.revision });
        if (isStillWanted(wait)) return hold;
        await hold[Symbol.asyncDispose]();
        throwUnwanted(wait);
      }
      if (wait.once) throw timedOut(wait.what);
      const busy = this.names[result.failures[0]?.index ?? 0] ?? "";
      const { revision } = result;
      await firstDeletions(client, lockKey(busy), { revision, stop: wait.stop });
    }
  }

  #create(wait: Wait, value: string): Promise<TxnResult> {
    const keys = this.names.map(lockKey);
    // All keys of an attempt come and go together, so one of them tells of all.
    const undo =
      (condition: { readonly createRevision: number } | { readonly value: string }) =>
      (options: CallOptions): Promise<TxnResult> =>
        this.#client.txn(
          {
            compares: keys.map((key) => ({ key, ...condition })),
            success: keys.map((key) => ({ delete: { key } })),
          },
          options,
        );
    return create(this.#client, wait, {
      txn: {
        compares: keys.map((key) => ({ key, createRevision: 0 })),
        success: keys.map((key) => ({ put: { key, value, leaseId: wait.session.leaseId } })),
      },
      undoKnown: ({ succeeded, revision }) =>
        succeeded ? undo({ createRevision: revision }) : () => Promise.resolve(),
      undoUnknown: undo({ value }),
    });
  }
}
