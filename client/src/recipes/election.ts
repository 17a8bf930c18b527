import type { Client } from "../client.ts";
import { Backoff } from "../backoff.ts";
import { isCompacted, follow } from "./follow.ts";
import type { CallOptions, KeyValue } from "../types.ts";
import { acquiring, orUndefined, type AcquireOptions, type Wait } from "./acquiring.ts";
import { deliver, type OnError } from "./callbacks.ts";
import { Claim, notHeld, whileHeld } from "./claim.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { fieldsOf, lockState, ownerMark, type LockState } from "./owner.ts";
import { isPassing, pauseUntil, persist } from "./persist.ts";
import { Queue, type Place } from "./queue.ts";
import { askHolder, type AskOptions } from "./revocation.ts";

/** How a candidate runs. */
export interface CampaignOptions extends AcquireOptions {
  /** What observers see of the leader: an address, mostly. Default: "". */
  readonly value?: string;
}

/** How an election is observed. */
export interface ObserveOptions {
  /** Ends the observation quietly. */
  readonly signal?: AbortSignal;
}

/** How a listener follows what changes. */
export interface SubscribeOptions extends ObserveOptions {
  /** Told what the listener throws, and what ends the observation: it never ends silently. */
  readonly onError: OnError;
}

/** A leader, as others see it. */
export interface LeaderState extends LockState {
  /** Of its leadership: the fencing token. Strictly larger than that of every earlier leader. */
  readonly term: number;
  readonly value: string;
}

/** What a leader holds. */
export class Leadership extends Claim {
  readonly name: string;
  #value: string;

  /**
   * Made by {@link Election.campaign}.
   * @internal
   */
  constructor(client: Client, wait: Wait, fields: Place & { readonly name: string; readonly value: string }) {
    const { session, what, watchKey } = wait;
    super(client, { session, what, watchKey, key: fields.key, token: fields.token });
    this.name = fields.name;
    this.#value = fields.value;
  }

  /** The fencing token under its name in elections: put it into every effect. */
  get term(): number {
    return this.token;
  }

  get value(): string {
    return this.#value;
  }

  /** Changes what observers see. @throws LockstepError `not-held` when the leadership is over. */
  async announce(value: string, options: CallOptions = {}): Promise<void> {
    this.assertHeld();
    const { key, session, conditions } = this;
    const { succeeded } = await this.client.txn(
      {
        compares: conditions,
        success: [
          { put: { key, value: encode(this.client, this.session, value), leaseId: session.leaseId } },
        ],
      },
      options,
    );
    if (!succeeded) throw notHeld(`${this.what} is led by somebody else`);
    this.#value = value;
  }

  /** Gives the leadership up: the next candidate has it at once. */
  resign(options: CallOptions = {}): Promise<void> {
    return this.release(options);
  }
}

/** Candidates lead one after the other, in the order in which they came. */
export class Election {
  readonly name: string;
  readonly #client: Client;
  readonly #prefix: string;
  readonly #queue: Queue;

  constructor(client: Client, name: string) {
    checkName("an election", name);
    this.#client = client;
    this.name = name;
    this.#prefix = keysOf(ROOTS.election, name);
    this.#queue = new Queue(client, { own: this.#prefix });
  }

  /**
   * Resolves when this candidate leads. Whatever way it fails, it is no candidate any more.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`, `not-held` when
   *   somebody deleted the candidate's key.
   */
  campaign(options: CampaignOptions): Promise<Leadership> {
    const value = options.value ?? "";
    return acquiring(
      this.#client,
      { recipe: "leadership", what: `the election "${this.name}"` },
      options,
      async (wait) => {
        const place = await this.#queue.takeTurn(wait, { fields: { value } });
        return new Leadership(this.#client, wait, { ...place, name: this.name, value });
      },
    );
  }

  /** Leads if nobody does and nobody waits for it; undefined: somebody does. */
  tryCampaign(options: Omit<CampaignOptions, "waitMs">): Promise<Leadership | undefined> {
    return orUndefined(this.campaign({ ...options, waitMs: 0 }));
  }

  /**
   * Campaigns, runs `work` while leading, and resigns after it. When the leadership is in doubt `leadership.held`
   * fires at once: hand it to everything that the work does. Rejects with `not-held` when the leadership ended before
   * the work, as soon as the work has stopped. Losing a session is final: open another one to be a candidate again.
   */
  async lead<T>(options: CampaignOptions, work: (leadership: Leadership) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.campaign(options), work);
  }

  /** Who leads now; undefined: nobody. */
  async leader(options: CallOptions = {}): Promise<LeaderState | undefined> {
    return leaderState((await this.#queue.list({ ...options, limit: 1 }))[0]);
  }

  /**
   * Asks the leader to step down; whether and when is its own decision (see `client.onAsked`). Release the request when
   * it is of no use any more. @returns undefined when nobody leads.
   */
  async askLeader(options: AskOptions): Promise<Claim | undefined> {
    const [leader] = await this.#queue.list({ limit: 1 });
    return askHolder(this.#client, leader, options);
  }

  /**
   * Who leads, now and whenever that changes; undefined: nobody. Of changes that follow each other quickly only the
   * last may be seen. Goes on through outages and forgotten history. What is seen may be past already: a leader's
   * orders are told from its predecessor's by their term.
   */
  async *observe(options: ObserveOptions = {}): AsyncGenerator<LeaderState | undefined, void, undefined> {
    const stop = options.signal ?? new AbortController().signal;
    const backoff = new Backoff(this.#client.runtime);
    let seen: number | undefined;
    while (!stop.aborted) {
      const found = await this.#look(stop);
      if (found === undefined) return;
      const { leader } = found;
      if (seen !== (leader?.modRevision ?? 0)) yield leaderState(leader);
      seen = leader?.modRevision ?? 0;
      try {
        for await (const changed of this.#follow(leader, found.revision, stop)) {
          seen = changed.modRevision;
          yield leaderState(changed);
        }
        backoff.reset();
      } catch (error) {
        if (isCompacted(error)) continue;
        if (!isPassing(error)) throw error;
        await pauseUntil(this.#client, stop, backoff.nextMs(error.retryAfterMs));
      }
    }
  }

  /** {@link observe} with a callback, which delays nobody but itself. @returns when the observation has ended. */
  subscribe(
    listener: (leader: LeaderState | undefined) => unknown,
    options: SubscribeOptions,
  ): Promise<void> {
    return deliver(this.#client, this.observe(options), listener, options.onError);
  }

  /** @returns undefined when it was stopped. */
  async #look(
    stop: AbortSignal,
  ): Promise<{ readonly leader: KeyValue | undefined; readonly revision: number } | undefined> {
    try {
      const { kvs, revision } = await persist(this.#client, stop, (options) =>
        this.#client.range({ prefix: this.#prefix }, { ...options, limit: 1 }),
      );
      return { leader: kvs[0], revision };
    } catch (error) {
      if (stop.aborted) return undefined;
      throw error;
    }
  }

  /** Until the leader's key goes; without one until a key comes. Then it is to be looked again. */
  async *#follow(
    leader: KeyValue | undefined,
    revision: number,
    stop: AbortSignal,
  ): AsyncGenerator<KeyValue, void, undefined> {
    const range = leader === undefined ? { prefix: this.#prefix } : leader.key;
    for await (const { events } of follow(this.#client, range, { revision, stop })) {
      for (const event of events) {
        if (leader === undefined || event.kind === "delete") return;
        yield event.kv;
      }
    }
  }
}

function encode(client: Client, session: AcquireOptions["session"], value: string): string {
  return JSON.stringify({ ...ownerMark(client, session), value });
}

function leaderState(kv: KeyValue): LeaderState;
function leaderState(kv: KeyValue | undefined): LeaderState | undefined;
function leaderState(kv: KeyValue | undefined): LeaderState | undefined {
  if (kv === undefined) return undefined;
  const value = fieldsOf(kv).get("value");
  return { ...lockState(kv), term: kv.createRevision, value: typeof value === "string" ? value : "" };
}
