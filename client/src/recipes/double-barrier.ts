import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { KeyValue } from "../types.ts";
import { acquiring, timedOut, tryFailed, type AcquireOptions, type Wait } from "./acquiring.ts";
import { Claim, notHeld } from "./claim.ts";
import { firstDeletions, followOn, isCompacted } from "./follow.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { fieldsOf, ownerMark } from "./owner.ts";
import { persist } from "./persist.ts";
import { Queue, type Entered, type Place } from "./queue.ts";

const PARTICIPANTS_MAX = 1_000;
/** Keys that are counted: a participant may have another one for a moment, of a try that was executed late. */
const COUNTED_MAX = 2 * PARTICIPANTS_MAX;

/** What all who take part must agree on. */
export interface DoubleBarrierOptions {
  /** How many must have come before any goes on, from 1 to 1,000. All who take part must say the same. */
  readonly participants: number;
}

/** A part in the work that all began together. */
export class Participation extends Claim {
  readonly #barrier: DoubleBarrier;
  /**
   * The create revision of the round's `ready`, which tells it from every other round.
   * @internal
   */
  readonly round: number;

  /**
   * Made by {@link DoubleBarrier.enter}.
   * @internal
   */
  constructor(
    client: Client,
    wait: Wait,
    fields: Place & { readonly barrier: DoubleBarrier; readonly round: number },
  ) {
    const { session, what, watchKey } = wait;
    super(client, { session, what, watchKey, key: fields.key, token: fields.token });
    this.#barrier = fields.barrier;
    this.round = fields.round;
  }

  /**
   * Whoever came later is of another round. When it is not known exactly, the revision in which this one began: it
   * comes before every later round, too.
   * @internal
   */
  get leftAt(): number {
    return this.releasedAt ?? this.round;
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
  readonly #what: string;

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
    this.#what = `the double barrier "${name}"`;
  }

  /**
   * Waits until all have come. Whoever gives up counts no longer, unless all had come already.
   * @throws LockstepError `limit-mismatch` when others count with another number of participants; `lock-timeout` after
   *   `waitMs`, `cancelled` by the signal, `session-lost`.
   */
  enter(options: AcquireOptions): Promise<Participation> {
    const subject = { recipe: "double-barrier", what: this.#what };
    return acquiring(this.#client, subject, options, async (wait) => {
      const entered = await this.#queue.enter(wait, {
        fields: { participants: this.participants, participant: wait.id },
        ask: [
          { get: { key: this.#members, rangeEnd: `${this.#members}:`, limit: COUNTED_MAX } },
          { get: { key: this.#ready } },
        ],
      });
      try {
        const round = await this.#untilReady(wait, entered);
        return new Participation(this.#client, wait, { ...entered.place, barrier: this, round });
      } catch (error) {
        tryFailed(wait, error);
        await this.#queue.giveUp(wait, entered.place);
        throw error;
      }
    });
  }

  /** See {@link Participation.leave}. */
  async leave(
    participation: Participation,
    options: Omit<AcquireOptions, "session" | "watchKey">,
  ): Promise<void> {
    const { session } = participation;
    const client = this.#client;
    const subject = { recipe: "double-barrier-leave", what: this.#what };
    await acquiring(client, subject, { ...options, session }, async (wait) => {
      await participation.release({ signal: wait.stop });
      for (;;) {
        const { kvs, revision } = await persist(client, wait.stop, (call) =>
          client.range({ prefix: this.#members }, { ...call, limit: 1, keysOnly: true }),
        );
        // The first one is the oldest. One that came after this part was over may wait for this process: in the next round.
        const [other] = kvs;
        if (other === undefined || other.createRevision > participation.leftAt) break;
        if (wait.once) throw timedOut(wait.what);
        await firstDeletions(client, other.key, { revision, stop: wait.stop });
      }
      const key = this.#ready;
      const compares = [{ key, createRevision: participation.round }];
      await persist(client, wait.stop, (call) =>
        client.txn({ compares, success: [{ delete: { key } }] }, call),
      );
    });
  }

  /**
   * Those before the last one wait for a sign of it: one key that comes, instead of all for all.
   * @returns the create revision of that key
   */
  async #untilReady(wait: Wait, { place, ahead, answers }: Entered): Promise<number> {
    const [members, ready] = answers;
    if (members === undefined || ready === undefined) {
      throw new LockstepError("protocol-error", "unknown", "the answer does not fit the transaction");
    }
    this.#checkNumber(members.kvs);
    const [going] = ready.kvs;
    if (going !== undefined) return going.createRevision;
    if (countOf(members.kvs) >= this.participants) return this.#open(wait, place);
    if (wait.once) throw timedOut(wait.what);
    const client = this.#client;
    let { revision } = ahead;
    for (;;) {
      try {
        for await (const { events } of followOn(client, this.#ready, { revision, stop: wait.stop })) {
          const put = events.find(({ kind }) => kind === "put");
          if (put !== undefined) return put.kv.createRevision;
        }
        wait.stop.throwIfAborted();
      } catch (error) {
        if (!isCompacted(error)) throw error;
        const look = await persist(client, wait.stop, (call) => client.range(this.#ready, call));
        const [begun] = look.kvs;
        if (begun !== undefined) return begun.createRevision;
        ({ revision } = look);
      }
    }
  }

  /** Gives the sign. It goes by one's own place, so that one that is executed late opens no later round. */
  async #open(wait: Wait, place: Place): Promise<number> {
    const client = this.#client;
    const { leaseId } = wait.session;
    const value = JSON.stringify(ownerMark(client, wait.session));
    const { responses } = await persist(client, wait.stop, (call) =>
      client.txn(
        {
          compares: [{ key: place.key, createRevision: place.token }],
          success: [{ put: { key: this.#ready, value, leaseId } }],
        },
        call,
      ),
    );
    const [put] = responses;
    if (put?.kind !== "put")
      throw notHeld(`the place at ${wait.what} was taken away: somebody deleted its key`);
    return put.createRevision;
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

/** How many processes these keys are of. */
function countOf(members: readonly KeyValue[]): number {
  return new Set(members.map((kv) => fieldsOf(kv).get("participant") ?? kv.keyText)).size;
}
