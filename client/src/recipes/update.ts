import type { Bytes } from "../bytes.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { CallOptions, KeyValue } from "../types.ts";
import { pauseUntil } from "./persist.ts";

/** In a row, for one change; each means that somebody else's change went through. */
const CONFLICTS_MAX = 1_000;
/** Of those who try at the same time one gets through at once, so a short pause spreads the rest. */
const PAUSE_MS_FIRST = 5;
const PAUSE_MS_MAX = 160;

export interface Updated {
  readonly revision: number;
  readonly version: number;
}

/**
 * Changes a key by what is there: reads, decides, writes if nobody wrote in between, and decides again from what was
 * there if somebody did. `known` saves the read when it is still true.
 */
export async function update(
  client: Client,
  key: string,
  plan: {
    readonly decide: (kv: KeyValue | undefined) => Bytes;
    readonly known?: { readonly kv: KeyValue | undefined };
  },
  options: CallOptions = {},
): Promise<Updated> {
  const stop = options.signal ?? new AbortController().signal;
  let kv = plan.known === undefined ? await client.get(key, options) : plan.known.kv;
  for (let conflicts = 0; conflicts < CONFLICTS_MAX; conflicts++) {
    const { succeeded, responses, failures } = await client.txn(
      {
        compares: [{ key, modRevision: kv?.modRevision ?? 0 }],
        success: [{ put: { key, value: plan.decide(kv) } }],
      },
      options,
    );
    const [put] = responses;
    if (succeeded && put?.kind === "put") return { revision: put.revision, version: put.version };
    kv = failures[0]?.actual;
    // The first conflict may be with a known state that was old; more of them say that others are busy here.
    if (conflicts === 0) continue;
    const ceilingMs = Math.min(PAUSE_MS_MAX, PAUSE_MS_FIRST * 2 ** Math.min(conflicts, 16));
    await pauseUntil(client, stop, client.runtime.random() * ceilingMs);
  }
  throw new LockstepError("overloaded", "not-applied", `others change "${key}" all the time`);
}
