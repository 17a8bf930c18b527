import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { KeyValue } from "../types.ts";
import { acquiring, type AcquireOptions, type Subject, type Wait } from "./acquiring.ts";
import { Claim } from "./claim.ts";
import { firstDeletions, follow, isCompacted } from "./follow.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { fieldsOf, ownerMark } from "./owner.ts";
import { persist } from "./persist.ts";
import { Queue, type Entered, type Place } from "./queue.ts";

const PARTICIPANTS_MAX = 1_000;

/** What all who take part must agree on. */
export interface DoubleBarrierOptions {
  /** How many must have come before any goes on, from 1 to 1,000. All who take part must say the same. */
  readonly participants: number;
}

/** A part in the work that all began together. */
export class Participation extends Claim {
  readonly #barrier: DoubleBarrier;

  /**
   * Made by {@link DoubleBarrier.enter}.
   * @internal
   */
  constructor(client: Client, wait: Wait, fields: Place & { readonly barrier: DoubleBarrier }) {
    const { session, what, watchKey } = wait;
    super(client, { session, what, watchKey, key: fields.key, token: fields.token });
    this.#barrier = fields.barrier;
  }

  /**
   * Says that this part of the work is done, and waits until all have said so, or their sessions have ended.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled`, `session-lost`; the part is over all the same.
   */
  leave(options: Omit<AcquireOptions, "session" | "watchKey"> = {}): Promise<void> {
    return this.#barrier.leave(this, options);
  }
}

/** Processes that begin a piece of work together, and go on after it together. */
export class DoubleBarrier {
  readonly name: string;
  readonly participants: number;
  readonly #client: Client;
  readonly #members: string;
  /** There while the work goes on: who looks late must not wait for those who have left already. */
  readonly #ready: string;
  readonly #queue: Queue;
  readonly #subject: Subject;

  constructor(client: Client, name: string, options: DoubleBarrierOptions) {
    checkName("a double barrier", name);
    const { participants } = options;
    if (!Number.isInteger(participants) || participants < 1 || participants > PARTICIPANTS_MAX) {
      throw new TypeError(`a double barrier has from 1 to ${PARTICIPANTS_MAX} participants`);
    }
    this.#client = client;
    this.name = name;
    this.participants = participants;
    const prefix = keysOf(ROOTS.doubleBarrier, name);
    this.#members = `${prefix}members/`;
    this.#ready = `${prefix}ready`;
    this.#queue = new Queue(client, { own: this.#members });
    this.#subject = { recipe: "double-barrier", what: `the double barrier "${name}"` };
  }

  /**
   * Waits until all have come. Whoever gives up counts no longer, unless all had come already.
   * @throws LockstepError `limit-mismatch` when others count with another number of participants; `lock-timeout` after
   *   `waitMs`, `cancelled` by the signal, `session-lost`.
   */
  enter(options: AcquireOptions): Promise<Participation> {
    return acquiring(this.#client, this.#subject, options, async (wait) => {
      const entered = await this.#queue.enter(wait, {
        fields: { participants: this.participants },
        ask: [
          { get: { key: this.#members, rangeEnd: `${this.#members}:`, limit: PARTICIPANTS_MAX + 1 } },
          { get: { key: this.#ready } },
        ],
      });
      try {
        await this.#untilReady(wait, entered);
      } catch (error) {
        await this.#queue.giveUp(wait, entered.place);
        throw error;
      }
      return new Participation(this.#client, wait, { ...entered.place, barrier: this });
    });
  }

  /** See {@link Participation.leave}. */
  async leave(
    participation: Participation,
    options: Omit<AcquireOptions, "session" | "watchKey">,
  ): Promise<void> {
    const { session } = participation;
    await acquiring(this.#client, this.#subject, { ...options, session }, async (wait) => {
      await participation.release({ signal: wait.stop });
      for (;;) {
        const { kvs, revision } = await persist(this.#client, wait.stop, (call) =>
          this.#client.range({ prefix: this.#members }, { ...call, limit: 1, keysOnly: true }),
        );
        const [other] = kvs;
        if (other === undefined) break;
        await firstDeletions(this.#client, other.key, { revision, stop: wait.stop });
      }
      await this.#client.delete(this.#ready, { signal: wait.stop });
    });
  }

  /** Those before the last one wait for a sign of it: one key that comes, instead of all for all. */
  async #untilReady(wait: Wait, { ahead, answers }: Entered): Promise<void> {
    const [members, ready] = answers;
    if (members === undefined || ready === undefined) {
      throw new LockstepError("protocol-error", "unknown", "the answer does not fit the transaction");
    }
    this.#checkNumber(members.kvs);
    if (ready.kvs.length > 0) return;
    const client = this.#client;
    if (members.kvs.length >= this.participants) {
      const { leaseId } = wait.session;
      const value = JSON.stringify(ownerMark(client, wait.session));
      await persist(client, wait.stop, (call) => client.put(this.#ready, value, { ...call, leaseId }));
      return;
    }
    let { revision } = ahead;
    for (;;) {
      try {
        for await (const { events } of follow(client, this.#ready, { revision, stop: wait.stop })) {
          if (events.some(({ kind }) => kind === "put")) return;
        }
        wait.stop.throwIfAborted();
      } catch (error) {
        if (!isCompacted(error)) throw error;
        const look = await persist(client, wait.stop, (call) => client.range(this.#ready, call));
        if (look.kvs.length > 0) return;
        ({ revision } = look);
      }
    }
  }

  #checkNumber(kvs: readonly KeyValue[]): void {
    for (const kv of kvs) {
      const participants = fieldsOf(kv).get("participants");
      if (typeof participants === "number" && participants !== this.participants) {
        throw new LockstepError(
          "limit-mismatch",
          "not-applied",
          `the double barrier "${this.name}" has ${participants} participants for others, and ${this.participants} here: all must say the same`,
        );
      }
    }
  }
}
