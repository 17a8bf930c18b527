import type { Client } from "../client.ts";
import type { Session } from "../session.ts";
import type { CallOptions } from "../types.ts";
import { timedOut } from "./acquiring.ts";
import { firstDeletions } from "./follow.ts";
import { ROOTS } from "./names.ts";
import { persist } from "./persist.ts";

/** How long one waits at a barrier. */
export interface BarrierWaitOptions {
  /** Wait at most this long. Default: for ever. */
  readonly waitMs?: number;
  /** Stop waiting when it fires. */
  readonly signal?: AbortSignal;
}

/** Holds everybody back who waits at it, as long as it is up. A key `/barriers/NAME`. */
export class Barrier {
  readonly name: string;
  readonly key: string;
  readonly #client: Client;

  constructor(client: Client, name: string) {
    if (name === "") throw new TypeError("a barrier needs a name");
    this.#client = client;
    this.name = name;
    this.key = `${ROOTS.barrier}${name}`;
  }

  /**
   * Puts it up. With a session it comes down with that; without one it stays until somebody lowers it.
   * @returns false when it was up already (and stays as it was).
   */
  async raise(options: CallOptions & { readonly session?: Session } = {}): Promise<boolean> {
    const { key } = this;
    const { session, ...call } = options;
    const put =
      session === undefined
        ? { key, value: "" }
        : { key, value: JSON.stringify({ owner: session.owner }), leaseId: session.leaseId };
    const { succeeded } = await this.#client.txn(
      { compares: [{ key, createRevision: 0 }], success: [{ put }] },
      call,
    );
    return succeeded;
  }

  /** Takes it down: all who wait go on. @returns false when it was down already. */
  async lower(options: CallOptions = {}): Promise<boolean> {
    return (await this.#client.delete(this.key, options)).deleted > 0;
  }

  /** Whether those who come now wait. */
  async isUp(options: CallOptions = {}): Promise<boolean> {
    return (await this.#client.get(this.key, options)) !== undefined;
  }

  /**
   * Waits until it is down; at once when it is. Goes on through outages.
   * @throws LockstepError `lock-timeout` after `waitMs`; the reason of `signal`.
   */
  async wait(options: BarrierWaitOptions = {}): Promise<void> {
    const client = this.#client;
    const stop = new AbortController();
    const { waitMs, signal } = options;
    const onAbort = (): void => stop.abort(signal?.reason);
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
    const timeout = (): void => stop.abort(timedOut(`the barrier "${this.name}"`));
    const cancelTimer = waitMs === undefined ? undefined : client.runtime.schedule(timeout, waitMs);
    try {
      for (;;) {
        const { kvs, revision } = await persist(client, stop.signal, (call) =>
          client.range(this.key, { ...call, keysOnly: true }),
        );
        if (kvs.length === 0) return;
        if ((await firstDeletions(client, this.key, { revision, stop: stop.signal })) !== undefined) return;
      }
    } finally {
      cancelTimer?.();
      signal?.removeEventListener("abort", onAbort);
    }
  }
}
