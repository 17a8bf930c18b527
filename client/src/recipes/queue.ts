import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { CallOptions, KeyValue, RangeResult, TxnResult, TxnStep } from "../types.ts";
import { isStillWanted, throwUnwanted, timedOut, type Wait } from "./acquiring.ts";
import { create, insist } from "./attempt.ts";
import { notHeld } from "./claim.ts";
import { firstDeletions } from "./gone.ts";
import { after, between } from "./names.ts";
import { fieldsOf, ownerMark } from "./owner.ts";

/** Keys that are looked through at a time for one of an attempt whose answer was lost. */
const SEARCH_PAGE_KEYS = 1_000;

/** One's own key in a queue. */
export interface Place {
  readonly key: string;
  /** Its create revision. */
  readonly token: number;
}

/** What there is before one's own place, as far as it matters. */
export interface Ahead {
  /** The one before; undefined: nobody, the place is the first. */
  readonly key: string | undefined;
  /** Nobody is before that one: when it goes, the place is the first, and there is no need to look. */
  readonly alone: boolean;
  /** Of the answer that showed this. */
  readonly revision: number;
}

export interface Entered {
  readonly place: Place;
  readonly ahead: Ahead;
  /** Answers of the steps that came along. */
  readonly answers: readonly RangeResult[];
}

/** What else to write and to ask when a place is taken. */
export interface Entry {
  /** Beside who owns the place. Default: nothing. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Read in the same revision. Default: nothing. */
  readonly ask?: readonly Extract<TxnStep, { get: unknown }>[];
}

/**
 * A line of sequential keys under one prefix: who came first is served first. Everybody watches the one before, so
 * that a key that goes wakes one process and not all.
 */
export class Queue {
  readonly #client: Client;
  readonly #prefix: string;

  constructor(client: Client, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  /** Takes the last place, and sees in the same round trip who is before. */
  async enter(wait: Wait, entry: Entry = {}): Promise<Entered> {
    const client = this.#client;
    const prefix = this.#prefix;
    const mark = ownerMark(client, wait.session);
    const value = JSON.stringify({ ...mark, ...entry.fields });
    const { leaseId } = wait.session;
    const result = await create(client, wait, {
      txn: {
        success: [
          { put: { key: prefix, value, leaseId, sequential: true } },
          { get: { ...this.#range(), ...LOOK } },
          ...(entry.ask ?? []),
        ],
      },
      undoKnown: (answer) => (options) => this.leave(placeOf(answer), options),
      undoUnknown: (options) => this.#leaveUnknown(mark.attempt, options),
    });
    const [, look, ...answers] = result.responses;
    const place = placeOf(result);
    if (look?.kind !== "range") throw unexpected();
    return {
      place,
      ahead: aheadOf(look, place) ?? { key: undefined, alone: true, revision: result.revision },
      answers: answers.filter((answer) => answer.kind === "range"),
    };
  }

  /**
   * Waits until the place is the first; at once when it is.
   * @throws LockstepError `not-held` when somebody deleted the place.
   */
  async untilFirst(wait: Wait, { place, ahead }: Pick<Entered, "place" | "ahead">): Promise<void> {
    let now = ahead;
    while (now.key !== undefined) {
      if (wait.once) throw timedOut(wait.what);
      // Nothing can come between the one before and one's own key, so one watch sees the end of either.
      const gone = await firstDeletions(this.#client, between(now.key, place.key), {
        revision: now.revision,
        stop: wait.stop,
      });
      const own = gone?.find(({ kv }) => kv.keyText === place.key);
      if (own !== undefined) throw placeGone(wait, own.cause);
      if (gone !== undefined && now.alone) break;
      now = await this.look(wait, place);
    }
    if (!isStillWanted(wait)) throwUnwanted(wait);
  }

  /** Who is before the place now. */
  async look(wait: Wait, place: Place): Promise<Ahead> {
    wait.stop.throwIfAborted();
    const range = between(this.#prefix, place.key);
    const ahead = aheadOf(await this.#client.range(range, { ...LOOK, signal: wait.stop }), place);
    if (ahead === undefined) throw placeGone(wait, "unknown");
    return ahead;
  }

  /** Deletes the place; that of nobody else. */
  async leave({ key, token }: Place, options: CallOptions): Promise<void> {
    const compares = [{ key, createRevision: token }];
    await this.#client.txn({ compares, success: [{ delete: { key } }] }, options);
  }

  /** {@link leave} for whoever gives up: it is tried until it works or the session ends. */
  giveUp(wait: Wait, place: Place): Promise<void> {
    return insist(this.#client, wait.session, (options) => this.leave(place, options));
  }

  /** Everybody in the queue, the first first; at most `limit`. */
  async list(options: CallOptions & { readonly limit?: number } = {}): Promise<readonly KeyValue[]> {
    const { kvs } = await this.#client.range({ prefix: this.#prefix }, options);
    return kvs;
  }

  #range(): { readonly key: string; readonly rangeEnd: string } {
    // The keys end with digits, and this is the first thing after all of them.
    return { key: this.#prefix, rangeEnd: `${this.#prefix}:` };
  }

  /** The place's key is not known: it has the attempt's mark. */
  async #leaveUnknown(attempt: string, options: CallOptions): Promise<void> {
    const client = this.#client;
    // Through the log, and with that after everything that a leader has taken so far: a plain read could overtake it.
    await client.txn({ success: [{ delete: { key: `${this.#prefix}${attempt}` } }] }, options);
    let from = this.#prefix;
    for (;;) {
      const range = { from, to: this.#range().rangeEnd };
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

/** One's own, the one before, and whether there are others. */
const LOOK = { reverse: true, limit: 3, keysOnly: true } as const;

function placeOf(result: TxnResult): Place {
  const [put] = result.responses;
  if (put?.kind !== "put") throw unexpected();
  return { key: put.key.toString("utf8"), token: put.createRevision };
}

/** @returns undefined when the place itself is not there. */
function aheadOf(look: RangeResult, place: Place): Ahead | undefined {
  const [own, before, others] = look.kvs;
  if (own?.keyText !== place.key || own.createRevision !== place.token) return undefined;
  return { key: before?.keyText, alone: others === undefined, revision: look.revision };
}

function placeGone(wait: Wait, cause: string): LockstepError {
  if (cause === "lease-expired" || cause === "lease-revoked") {
    return new LockstepError("session-lost", "not-applied", `the cell ended the session (${cause})`);
  }
  return notHeld(`the place in the queue for ${wait.what} was taken away: somebody deleted its key`);
}

function unexpected(): LockstepError {
  return new LockstepError("protocol-error", "unknown", "the answer does not fit the transaction");
}
