import type { Client } from "../client.ts";
import { DIAGNOSTICS } from "../diagnostics.ts";
import { LockstepError } from "../errors.ts";
import type { Session } from "../session.ts";
import type { CallOptions, Compare, TxnResult } from "../types.ts";
import { insist } from "./attempt.ts";
import { Farewell } from "./farewell.ts";
import { KeyWatcher } from "./key-watcher.ts";
import { onSessionLost } from "./session-end.ts";
import { tokenToString } from "./token.ts";

export interface ClaimFields {
  readonly session: Session;
  /** For people: `the lock "NAME"`. */
  readonly what: string;
  readonly key: string;
  /** Other keys of the same claim, created in the same revision. Default: none. */
  readonly moreKeys?: readonly string[];
  readonly token: number;
  /** Notice when somebody else deletes the key. Default true. */
  readonly watchKey?: boolean;
}

/**
 * Something held: a key under a session's lease that names the owner. Hand `token` to everything that the claim
 * protects, and let it refuse smaller ones: a process that was stopped for long may believe in a claim that has
 * passed on.
 */
export class Claim implements AsyncDisposable {
  readonly key: string;
  /** The fencing token, the key's create revision: strictly larger than that of every earlier holder. */
  readonly token: number;
  readonly session: Session;
  protected readonly client: Client;
  protected readonly what: string;
  readonly #keys: readonly string[];
  readonly #watcher: KeyWatcher | undefined;
  #unsubscribe: () => void = () => undefined;
  /** Made when somebody asks for it: most claims of a process that holds thousands are never asked. */
  #held: AbortController | undefined;
  readonly #sinceMs: number;
  #over: LockstepError | undefined;
  /** The key is known to be gone: there is nothing to release. */
  #gone = false;
  /** In which revision the release took effect; undefined: it has not, or the answer was lost. */
  protected releasedAt: number | undefined;

  /**
   * Made by a recipe, once the cell has said so.
   * @internal
   */
  constructor(client: Client, fields: ClaimFields) {
    this.client = client;
    this.session = fields.session;
    this.what = fields.what;
    this.key = fields.key;
    this.#keys = [fields.key, ...(fields.moreKeys ?? [])];
    this.token = fields.token;
    this.#sinceMs = client.runtime.now();
    this.#watcher =
      fields.watchKey === false
        ? undefined
        : new KeyWatcher(client, this.#keys, fields.token, () => {
            // One of several: the others are still there, and to be released.
            this.#gone = this.#keys.length === 1;
            this.#end(notHeld(`${this.what} was taken away: somebody deleted its key`));
          });
    this.#unsubscribe = onSessionLost(fields.session, () => this.#onSessionLost());
  }

  /** The token as 16 digits, for resources that compare text. */
  get tokenString(): string {
    return tokenToString(this.token);
  }

  /**
   * Fires when it is no longer held: the session is over or may be, somebody deleted its key, or it was released. A
   * signal is delivered late to a process that was stopped: see {@link assertHeld}.
   */
  get held(): AbortSignal {
    if (this.#held === undefined) {
      this.#held = new AbortController();
      if (this.#over !== undefined) this.#held.abort(this.#over);
    }
    return this.#held.signal;
  }

  /**
   * Throws `not-held` or `session-lost` unless it is certainly held for at least `marginMs` more (default 0). Reads
   * the clock: call it before each effect.
   */
  assertHeld(marginMs = 0): void {
    if (this.#over !== undefined) throw notHeld(`${this.what} is not held any more`, this.#over);
    this.session.assertAlive(marginMs);
  }

  /** They hold in the cell as long as this claim does: for the compares of a transaction. */
  get conditions(): readonly Compare[] {
    return this.#keys.map((key) => ({ key, createRevision: this.token }));
  }

  /**
   * Gives it up. Compares the token, so it can never free a later holder's claim. May be repeated after an error.
   * After its end there is nothing to do, and no network is used.
   */
  async release(options: CallOptions = {}): Promise<void> {
    this.#end(notHeld(`${this.what} was released`), true);
    if (this.#gone || this.session.lost.aborted) return;
    await this.#delete(options);
    this.#gone = true;
  }

  /**
   * {@link release} that never throws (an error would hide that of the block) and takes at most a second; what could
   * not be done by then is tried again until the session ends, which frees the claim at last.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end(notHeld(`${this.what} was released`), true);
    if (this.#gone || this.session.lost.aborted) return;
    const farewell = new Farewell(this.client.runtime);
    farewell.begin(undefined);
    await farewell.waitFor(insist(this.client, this.session, (options) => this.release(options)));
    farewell.end();
  }

  async #delete(options: CallOptions): Promise<void> {
    const { client, token } = this;
    const deletion = (keys: readonly string[]): Promise<TxnResult> =>
      client.txn(
        {
          compares: keys.map((key) => ({ key, createRevision: token })),
          success: keys.map((key) => ({ delete: { key } })),
        },
        options,
      );
    const { succeeded, revision } = await deletion(this.#keys);
    if (succeeded) this.releasedAt = revision;
    // One of several is gone already: that does not keep the others.
    if (!succeeded && this.#keys.length > 1) await Promise.all(this.#keys.map((key) => deletion([key])));
  }

  #onSessionLost(): void {
    const { reason } = this.session.lost as { reason: unknown };
    this.#end(
      reason instanceof LockstepError ? reason : notHeld(`${this.what} is not held any more`, reason),
    );
  }

  #end(reason: LockstepError, released = false): void {
    if (this.#over !== undefined) return;
    this.#over = reason;
    this.#unsubscribe();
    this.#watcher?.stop();
    this.#held?.abort(reason);
    if (!DIAGNOSTICS.release.hasSubscribers) return;
    const { what, token } = this;
    const { owner } = this.session;
    const durationMs = this.client.runtime.now() - this.#sinceMs;
    const startedAtMs = this.client.runtime.wallNow() - durationMs;
    DIAGNOSTICS.release.publish({ what, token, owner, startedAtMs, durationMs, reason, released });
  }
}

/**
 * Runs `work` while `claim` is held, and gives it up afterwards, whatever happened. Rejects with `not-held` when the
 * claim did not last until the end of the work (which leaves the release to this).
 */
export async function whileHeld<C extends Claim, T>(
  claim: C,
  work: (claim: C) => Promise<T> | T,
): Promise<T> {
  try {
    const result = await work(claim);
    claim.assertHeld();
    return result;
  } finally {
    await claim[Symbol.asyncDispose]();
  }
}

export function notHeld(message: string, cause?: unknown): LockstepError {
  return new LockstepError("not-held", "not-applied", message, { cause });
}
