import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { CallOptions, KeyValue, RangeResult, TxnResult, TxnStep } from "../types.ts";
import { isStillWanted, throwUnwanted, timedOut, tryFailed, type Wait } from "./acquiring.ts";
import { create, insist } from "./attempt.ts";
import { notHeld } from "./claim.ts";
import { followOn, isCompacted } from "./follow.ts";
import { after, between } from "./names.ts";
import { fieldsOf, ownerMark } from "./owner.ts";
import { persist } from "./persist.ts";
import { SEQUENCE_DIGITS } from "./token.ts";

/** Keys that are looked through at a time for one of an attempt whose answer was lost. */
const SEARCH_PAGE_KEYS = 1_000;
/** How many of those before are followed; one that goes tells as many. */
const FOLLOWED_MAX = 3;

/** One's own key in a queue. */
export interface Place {
  readonly key: string;
  /** Its create revision. */
  readonly token: number;
}

/** What there is before one's own place, as far as it matters. */
export interface Ahead {
  /** Those before, the nearest first; not more than are followed. None: it is the place's turn. */
  readonly nearest: readonly string[];
  /** There are no others: when these have gone, it is the place's turn, and there is no need to look. */
  readonly all: boolean;
  /** Of the answer that showed this. */
  readonly revision: number;
}

export interface Entered {
  readonly place: Place;
  readonly ahead: Ahead;
  /** Answers of the steps that came along. */
  readonly answers: readonly RangeResult[];
}

type GetStep = Extract<TxnStep, { get: unknown }>;

/** What else to write and to ask when a place is taken. */
export interface Entry {
  /** Beside who owns the place. Default: nothing. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Read in the same revision. Default: nothing. */
  readonly ask?: readonly GetStep[];
}

/** Prefixes of sequential keys. */
export interface Lanes {
  /** Where one's own key goes. */
  readonly own: string;
  /** Whose earlier keys come first. Default: those of one's own. */
  readonly ahead?: readonly string[];
}

/**
 * A line of sequential keys: who came first is served first. Everybody follows the few before, however long the line
 * is: whoever comes near the front sees it come nearer, and has to ask nothing when the turn comes. (One who follows
 * only the one before must ask then whether that was the last, and the lock lies idle for a round trip.)
 */
export class Queue {
  readonly #client: Client;
  readonly #own: string;
  readonly #ahead: readonly string[];

  constructor(client: Client, lanes: Lanes) {
    this.#client = client;
    this.#own = lanes.own;
    this.#ahead = lanes.ahead ?? [lanes.own];
  }

  /** Takes the last place and waits for its turn; whatever way that fails, the place is given up. */
  async takeTurn(wait: Wait, entry: Entry = {}): Promise<Place> {
    const entered = await this.enter(wait, entry);
    try {
      await this.untilFirst(wait, entered);
    } catch (error) {
      tryFailed(wait, error);
      await this.giveUp(wait, entered.place);
      throw error;
    }
    return entered.place;
  }

  /** Takes the last place, and sees in the same round trip who is before. */
  async enter(wait: Wait, entry: Entry = {}): Promise<Entered> {
    const client = this.#client;
    const mark = ownerMark(client, wait.session);
    const value = JSON.stringify({ ...mark, ...entry.fields });
    const { leaseId } = wait.session;
    const result = await create(client, wait, {
      txn: {
        success: [
          { put: { key: this.#own, value, leaseId, sequential: true } },
          ...this.#ahead.map((lane) => lookAt(lane)),
          ...(entry.ask ?? []),
        ],
      },
      undoKnown: (answer) => (options) => this.leave(placeOf(answer), options),
      undoUnknown: (options) => this.#leaveUnknown(mark.attempt, options),
    });
    const place = placeOf(result);
    const answers = rangesOf(result);
    const looks = answers.splice(0, this.#ahead.length);
    return { place, ahead: this.#aheadOf(looks, place, result.revision), answers };
  }

  /**
   * Waits until it is the place's turn; at once when it is.
   * @throws LockstepError `not-held` when somebody deleted the place.
   */
  async untilFirst(wait: Wait, { place, ahead }: Pick<Entered, "place" | "ahead">): Promise<void> {
    let now = ahead;
    while (now.nearest.length > 0) {
      if (wait.once) throw timedOut(wait.what);
      if (await this.#areGone(wait, place, now)) break;
      now = await this.#look(wait, place);
    }
    if (!isStillWanted(wait)) throwUnwanted(wait);
  }

  /** Deletes the place; that of nobody else. */
  async leave({ key, token }: Place, options: CallOptions): Promise<void> {
    const compares = [{ key, createRevision: token }];
    await this.#client.txn({ compares, success: [{ delete: { key } }] }, options);
  }

  /** {@link leave} for whoever gives up: it is tried until it works or the session ends, and waited for if there is time. */
  giveUp(wait: Wait, place: Place): Promise<void> {
    return wait.farewell.waitFor(insist(this.#client, wait.session, (options) => this.leave(place, options)));
  }

  /** The keys of one's own lane, the first first; at most `limit`. */
  async list(options: CallOptions & { readonly limit?: number } = {}): Promise<readonly KeyValue[]> {
    return (await this.#client.range({ prefix: this.#own }, options)).kvs;
  }

  /** Follows those before. @returns true: it is the place's turn. False: look again. */
  async #areGone(wait: Wait, place: Place, { nearest, all, revision }: Ahead): Promise<boolean> {
    const left = new Set(nearest);
    const furthest = nearest.at(-1) ?? place.key;
    // Nothing can come between neighbours of one lane, so one watch sees the end of each, and of one's own.
    const range = furthest.startsWith(this.#own) ? between(furthest, place.key) : furthest;
    try {
      for await (const { events } of followOn(this.#client, range, {
        revision,
        stop: wait.stop,
        omit: "put",
      })) {
        for (const { kv, cause } of events) {
          if (kv.keyText === place.key) throw placeGone(wait, cause);
          left.delete(kv.keyText);
        }
        if (left.size === 0 && all) return true;
        if (!all) return false;
      }
    } catch (error) {
      if (!isCompacted(error)) throw error;
    }
    wait.stop.throwIfAborted();
    return false;
  }

  /**
   * Who is before the place now. A cell that does not answer for a while costs nobody the place. Several reads need
   * not show one revision: who is before a place can only become fewer.
   */
  async #look(wait: Wait, place: Place): Promise<Ahead> {
    const digits = place.key.slice(-SEQUENCE_DIGITS);
    const steps = this.#ahead.map((lane) => lookAt(lane, digits));
    if (!this.#ahead.includes(this.#own)) steps.push({ get: { key: place.key, keysOnly: true } });
    const looks = await Promise.all(
      steps.map(({ get: { key, rangeEnd, ...options } }) =>
        persist(this.#client, wait.stop, (call) =>
          this.#client.range(rangeEnd === undefined ? key : { from: key, to: rangeEnd }, {
            ...options,
            ...call,
          }),
        ),
      ),
    );
    const own = looks.flatMap(({ kvs }) => kvs).find(({ keyText }) => keyText === place.key);
    if (own?.createRevision !== place.token) throw placeGone(wait, "unknown");
    return this.#aheadOf(looks, place, Math.min(...looks.map(({ revision }) => revision)));
  }

  #aheadOf(looks: readonly RangeResult[], place: Place, revision: number): Ahead {
    const before = looks
      .flatMap(({ kvs }) => kvs)
      .filter(({ keyText }) => keyText !== place.key)
      .sort((a, b) => b.createRevision - a.createRevision)
      .map(({ keyText }) => keyText);
    // Neighbours in one lane are one range, and with that one watch; others are not.
    const followed = this.#ahead.length === 1 && this.#ahead[0] === this.#own ? FOLLOWED_MAX : 1;
    return { nearest: before.slice(0, followed), all: before.length <= followed, revision };
  }

  /** The place's key is not known: it has the attempt's mark. */
  async #leaveUnknown(attempt: string, options: CallOptions): Promise<void> {
    const client = this.#client;
    // Through the log, and with that after everything that a leader has taken so far: a plain read could overtake it.
    await client.txn({ success: [{ delete: { key: `${this.#own}${attempt}` } }] }, options);
    let from = this.#own;
    for (;;) {
      const range = { from, to: laneEnd(this.#own) };
      const page = await client.range(range, { ...options, limit: SEARCH_PAGE_KEYS });
      const mine = page.kvs.find((kv) => fieldsOf(kv).get("attempt") === attempt);
      if (mine !== undefined) {
        await this.leave({ key: mine.keyText, token: mine.createRevision }, options);
        return;
      }
      const last = page.kvs.at(-1);
      if (!page.more || last === undefined) return;
      from = after(last.keyText);
    }
  }
}

/** The keys of a lane end with digits, and this is the first thing after all of them. */
function laneEnd(lane: string): string {
  return `${lane}:`;
}

/** One's own (if it is in this lane), those before, and whether there are others; up to the place with these digits. */
function lookAt(lane: string, digits?: string): GetStep {
  const rangeEnd = digits === undefined ? laneEnd(lane) : after(`${lane}${digits}`);
  return { get: { key: lane, rangeEnd, reverse: true, limit: FOLLOWED_MAX + 2, keysOnly: true } };
}

function placeOf(result: TxnResult): Place {
  const [put] = result.responses;
  if (put?.kind !== "put") {
    throw new LockstepError("protocol-error", "unknown", "the answer does not fit the transaction");
  }
  return { key: put.key.toString("utf8"), token: put.createRevision };
}

function rangesOf(result: TxnResult): RangeResult[] {
  return result.responses.filter((response) => response.kind === "range");
}

function placeGone(wait: Wait, cause: string): LockstepError {
  if (cause === "lease-expired" || cause === "lease-revoked") {
    return new LockstepError("session-lost", "not-applied", `the cell ended the session (${cause})`);
  }
  return notHeld(`the place in the queue for ${wait.what} was taken away: somebody deleted its key`);
}
