import {
  type Channel,
  type Completion,
  type LockstepError,
  type OperationResult,
  type RangeResult,
} from "@lockstep/client";
import { coordination } from "@lockstep/proto";
import { runClosedLoop, type Slot, type StartOperation } from "./closed-loop.ts";
import { describe, type Load } from "./load.ts";
import { grantAll } from "./operations.ts";
import { planFromNow } from "./tally.ts";
import { encodeOperation as encode } from "./encode-operation.ts";

/** Clients that want the same lock. */
const CONTENDERS = 4;
/** Long enough that no lease ends during a run. */
const LEASE_TTL_MS = 600_000;
const WRONG_ANSWER = "an answer of another kind than asked for";
const LOST = "a place in a lock's queue was lost";
const OUT_OF_ORDER = "a lock was acquired out of queue order";

/** Places before one's own that are followed, as the client's fair lock does. */
const FOLLOWED_MAX = 3;

/** Of the places in a queue from `from` up to `to`, the last: one's own, those followed, and one to tell of more. */
function lastPlaces(from: Buffer, to: Buffer): coordination.RangeOperation {
  return {
    range: { key: from, rangeEnd: to },
    revision: 0,
    limit: FOLLOWED_MAX + 2,
    keysOnly: true,
    countOnly: false,
    reverse: true,
    consistency: coordination.Consistency.UNSPECIFIED,
    minRevision: 0,
  };
}

function claimOperation(prefix: Buffer, leaseId: string): Uint8Array {
  const put = { key: prefix, value: Buffer.alloc(0), leaseId, sequential: true, returnPrevious: false };
  const end = Buffer.from(prefix);
  end[end.length - 1] = (end.at(-1) ?? 0) + 1;
  const success: coordination.TxnStep[] = [
    { step: { $case: "put", value: put } },
    { step: { $case: "range", value: lastPlaces(prefix, end) } },
  ];
  return encode({ $case: "txn", value: { compares: [], success, failure: [] } });
}

/**
 * One client of a fair lock, by the recipe of the client library: a key for each place in the queue, in the order of
 * creation; whoever is not first watches the three places before its own, with one watch, and knows without asking when
 * those were all. An operation is the pair of acquiring and releasing.
 */
class Contender {
  readonly #channel: Channel;
  readonly #slot: Slot;
  readonly #prefix: Buffer;
  readonly #claim: Uint8Array;
  readonly #newest: Uint32Array;
  readonly #lock: number;
  #key: Buffer = Buffer.alloc(0);

  constructor(channel: Channel, slot: Slot, fields: { leaseId: string; newest: Uint32Array }) {
    this.#channel = channel;
    this.#slot = slot;
    this.#lock = Math.floor(slot.index / CONTENDERS);
    this.#prefix = Buffer.from(`/mutex/${String(this.#lock).padStart(8, "0")}/`);
    this.#claim = claimOperation(this.#prefix, fields.leaseId);
    this.#newest = fields.newest;
  }

  start(): true {
    this.#execute(this.#claim, true, (result) => {
      const place = result.kind === "txn" ? result.responses[0] : undefined;
      const queue = result.kind === "txn" ? result.responses[1] : undefined;
      if (place?.kind !== "put" || queue?.kind !== "range") return this.#slot.done(WRONG_ANSWER);
      this.#key = place.key;
      return this.#look(queue, result.revision);
    });
    return true;
  }

  #look(queue: RangeResult, revision: number): void {
    const [own, ...before] = queue.kvs;
    if (own?.key.equals(this.#key) !== true) return this.#slot.done(LOST);
    if (before.length === 0) return this.#acquired(own.createRevision);
    const followed = before.slice(0, FOLLOWED_MAX).map(({ key }) => key);
    this.#untilGone(followed, { all: before.length <= FOLLOWED_MAX, revision, token: own.createRevision });
  }

  /** @param followed the nearest first; `all`: there are no others before */
  #untilGone(
    followed: readonly Buffer[],
    { all, revision, token }: { readonly all: boolean; readonly revision: number; readonly token: number },
  ): void {
    const furthest = followed.at(-1) ?? this.#key;
    let left = followed.length;
    const watch = this.#channel.watch(
      {
        range: { key: furthest, rangeEnd: this.#key },
        ...{ startRevision: revision + 1, returnPrevious: false, omit: "put" },
      },
      {
        created: () => undefined,
        events: (batch) => {
          left -= batch.events.length;
          if (all && left > 0) return true;
          watch.cancel();
          if (all) this.#acquired(token);
          else this.#lookAgain(batch.revision);
          return true;
        },
        progress: () => undefined,
        ended: (error) => this.#slot.done(describe(error)),
      },
    );
  }

  /**
   * There were more before than are followed. Nobody comes in before this place any more, so what any member says of
   * that revision or a later one decides it.
   */
  #lookAgain(minRevision: number): void {
    const end = Buffer.concat([this.#key, Buffer.of(0)]);
    const consistency = coordination.Consistency.SERIALIZABLE;
    const value = { ...lastPlaces(this.#prefix, end), consistency, minRevision };
    const range = encode({ $case: "range", value });
    this.#execute(range, false, (result) => {
      if (result.kind === "range") this.#look(result, result.revision);
      else this.#slot.done(WRONG_ANSWER);
    });
  }

  #acquired(token: number): void {
    const inOrder = token > (this.#newest[this.#lock] ?? 0);
    this.#newest[this.#lock] = token;
    const range = { key: this.#key, rangeEnd: undefined };
    const release = encode({ $case: "delete", value: { range, returnPrevious: false } });
    this.#execute(release, true, (result) => {
      if (result.kind !== "delete") this.#slot.done(WRONG_ANSWER);
      else if (result.deleted !== 1) this.#slot.done(LOST);
      else this.#slot.done(inOrder ? undefined : OUT_OF_ORDER);
    });
  }

  #execute(operation: Uint8Array, mutation: boolean, then: (result: OperationResult) => void): void {
    const completion: Completion = (error: LockstepError | undefined, result) => {
      if (result !== undefined) then(result);
      else this.#slot.done(error === undefined ? WRONG_ANSWER : describe(error));
    };
    this.#channel.execute(operation, { mutation }, completion);
  }
}

/** `clients` clients, four to a lock, that acquire in queue order and release at once. */
export const mutex: Load = async (channel, settings) => {
  const leases = await grantAll(channel, { count: settings.clients, ttlMs: LEASE_TTL_MS });
  const newest = new Uint32Array(Math.ceil(settings.clients / CONTENDERS));
  const operationOf = (slot: Slot): StartOperation => {
    const contender = new Contender(channel, slot, { leaseId: leases[slot.index] ?? "0", newest });
    return () => contender.start();
  };
  const plan = planFromNow(settings.warmupSeconds, settings.measureSeconds);
  const tally = await runClosedLoop({ plan, slots: settings.clients, operationOf });
  return { tally, seconds: settings.measureSeconds };
};
