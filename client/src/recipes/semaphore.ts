import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { CallOptions, KeyValue, TxnResult } from "../types.ts";
import {
  acquiring,
  isStillWanted,
  orUndefined,
  throwUnwanted,
  timedOut,
  tryFailed,
  type Wait,
} from "./acquiring.ts";
import { create } from "./attempt.ts";
import { notHeld, whileHeld } from "./claim.ts";
import { Lock, type LockOptions } from "./exclusive-lock.ts";
import { firstDeletions } from "./follow.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { fieldsOf, lockState, ownerMark, type LockState } from "./owner.ts";
import { persist } from "./persist.ts";
import { Queue, type Entered, type Place } from "./queue.ts";

const PERMITS_MAX = 1_000;
const SLOT_DIGITS = 4;
/** How many waiters {@link Semaphore.inspect} tells of. */
const INSPECT_MAX = 1_000;

/** What all who use a semaphore must agree on. */
export interface SemaphoreOptions {
  /** How many may hold it at once, from 1 to 1,000. All who use it must say the same. */
  readonly permits: number;
}

/** One permit. */
export class Permit extends Lock {
  /**
   * Which of the permits: from 0 to `permits` - 1. Its token is larger than that of every earlier holder of the *same*
   * slot; a resource that checks tokens keeps a mark for each slot.
   */
  readonly slot: number;

  /**
   * Made by the semaphore.
   * @internal
   */
  constructor(client: Client, wait: Wait, fields: Place & { readonly name: string; readonly slot: number }) {
    super(client, wait, fields);
    this.slot = fields.slot;
  }
}

/** A semaphore as others see it. */
export interface SemaphoreState {
  /** By slot. */
  readonly holders: readonly (LockState & { readonly slot: number })[];
  /** In the order in which they will be served; at most the first 1,000. */
  readonly waiters: readonly LockState[];
}

/** The slots as an answer showed them. */
interface Slots {
  readonly kvs: readonly KeyValue[];
  readonly revision: number;
}

/**
 * At most `permits` holders at once, in the order in which they asked. A ticket in a queue says whose turn it is; the
 * first in it takes a free slot, which is what is held. Two round trips when one is free.
 */
export class Semaphore {
  readonly name: string;
  readonly permits: number;
  readonly #client: Client;
  readonly #slots: string;
  readonly #tickets: string;
  readonly #queue: Queue;

  constructor(client: Client, name: string, options: SemaphoreOptions) {
    checkName("a semaphore", name);
    const { permits } = options;
    if (!Number.isInteger(permits) || permits < 1 || permits > PERMITS_MAX) {
      throw new TypeError(`a semaphore has from 1 to ${PERMITS_MAX} permits`);
    }
    this.#client = client;
    this.name = name;
    this.permits = permits;
    const prefix = keysOf(ROOTS.semaphore, name);
    this.#slots = `${prefix}slots/`;
    this.#tickets = `${prefix}queue/`;
    this.#queue = new Queue(client, { own: this.#tickets });
  }

  /**
   * Takes a permit; waits for its turn and a free slot. Whatever way it fails, no key of this attempt stays.
   * @throws LockstepError `limit-mismatch` when those who hold or wait count with another number of permits;
   *   `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`, and `not-held` when somebody deleted the
   *   place in the queue.
   */
  acquire(options: LockOptions): Promise<Permit> {
    return acquiring(
      this.#client,
      { recipe: "permit", what: `the semaphore "${this.name}"` },
      options,
      (wait) => this.#acquire(wait),
    );
  }

  /** Takes a permit if one is free and nobody waits; undefined: not so. */
  tryAcquire(options: Omit<LockOptions, "waitMs">): Promise<Permit | undefined> {
    return orUndefined(this.acquire({ ...options, waitMs: 0 }));
  }

  /** Runs `work` while holding a permit. Rejects with `not-held` if it did not last until the work's end. */
  async with<T>(options: LockOptions, work: (permit: Permit) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.acquire(options), work);
  }

  /** Who holds its permits, and who waits. */
  async inspect(options: CallOptions = {}): Promise<SemaphoreState> {
    const [{ kvs }, tickets] = await Promise.all([
      this.#client.range({ prefix: this.#slots }, options),
      this.#queue.list({ ...options, limit: INSPECT_MAX }),
    ]);
    return {
      holders: kvs.map((kv) => ({ ...lockState(kv), slot: this.#slotOf(kv) })),
      waiters: tickets.map((kv) => lockState(kv)),
    };
  }

  async #acquire(wait: Wait): Promise<Permit> {
    const entered = await this.#queue.enter(wait, {
      fields: { permits: this.permits },
      ask: [
        { get: { key: this.#slots, rangeEnd: `${this.#slots}:` } },
        { get: { key: this.#tickets, rangeEnd: `${this.#tickets}:`, reverse: true, limit: 2 } },
      ],
    });
    try {
      return await this.#serve(wait, entered);
    } catch (error) {
      tryFailed(wait, error);
      await this.#queue.giveUp(wait, entered.place);
      throw error;
    }
  }

  async #serve(wait: Wait, entered: Entered): Promise<Permit> {
    const { place, ahead, answers } = entered;
    const [seen, neighbours] = answers;
    this.#checkLimit([...(seen?.kvs ?? []), ...(neighbours?.kvs ?? [])]);
    await this.#queue.untilFirst(wait, entered);
    // Who comes at once has just seen the slots. Later only the first in the queue takes any, and that is this one now.
    let slots: Slots | undefined =
      ahead.nearest.length === 0 && seen !== undefined
        ? { kvs: seen.kvs, revision: ahead.revision }
        : undefined;
    for (;;) {
      slots ??= await persist(this.#client, wait.stop, (options) =>
        this.#client.range({ prefix: this.#slots }, options),
      );
      this.#checkLimit(slots.kvs);
      const slot = this.#freeSlot(slots);
      if (slot !== undefined) {
        const permit = await this.#take(wait, place, slot);
        if (permit !== undefined) return permit;
      } else {
        if (wait.once) throw timedOut(wait.what);
        const { revision } = slots;
        await firstDeletions(this.#client, { prefix: this.#slots }, { revision, stop: wait.stop });
      }
      slots = undefined;
    }
  }

  /** Turns the ticket into a slot, in one revision. @returns undefined when somebody else has it. */
  async #take(wait: Wait, place: Place, slot: number): Promise<Permit | undefined> {
    const client = this.#client;
    const key = `${this.#slots}${String(slot).padStart(SLOT_DIGITS, "0")}`;
    const { leaseId } = wait.session;
    const value = JSON.stringify({ ...ownerMark(client, wait.session), permits: this.permits });
    const remove =
      (condition: { readonly createRevision: number } | { readonly value: string }) =>
      (options: CallOptions): Promise<TxnResult> =>
        client.txn({ compares: [{ key, ...condition }], success: [{ delete: { key } }] }, options);
    const result = await create(client, wait, {
      txn: {
        compares: [
          { key: place.key, createRevision: place.token },
          { key, createRevision: 0 },
        ],
        success: [{ put: { key, value, leaseId } }, { delete: { key: place.key } }],
      },
      undoKnown: ({ responses: [put] }) =>
        put?.kind === "put" ? remove({ createRevision: put.createRevision }) : () => Promise.resolve(),
      undoUnknown: remove({ value }),
    });
    const [put] = result.responses;
    if (!result.succeeded || put?.kind !== "put") {
      if (result.failures.some(({ index }) => index === 0)) {
        throw notHeld(`the place in the queue for ${wait.what} was taken away: somebody deleted its key`);
      }
      return undefined;
    }
    const permit = new Permit(client, wait, { name: this.name, slot, key, token: put.createRevision });
    if (isStillWanted(wait)) return permit;
    await permit[Symbol.asyncDispose]();
    throwUnwanted(wait);
    return undefined;
  }

  #freeSlot({ kvs }: Slots): number | undefined {
    const taken = new Set(kvs.map((kv) => this.#slotOf(kv)));
    for (let slot = 0; slot < this.permits; slot++) if (!taken.has(slot)) return slot;
    return undefined;
  }

  #slotOf(kv: KeyValue): number {
    return Number(kv.keyText.slice(this.#slots.length));
  }

  #checkLimit(kvs: readonly KeyValue[]): void {
    for (const kv of kvs) {
      const permits = fieldsOf(kv).get("permits");
      if (typeof permits === "number" && permits !== this.permits) {
        throw new LockstepError(
          "limit-mismatch",
          "not-applied",
          `the semaphore "${this.name}" has ${permits} permits for "${lockState(kv).owner}", who uses it already, and ${this.permits} here: all must say the same`,
        );
      }
    }
  }
}
