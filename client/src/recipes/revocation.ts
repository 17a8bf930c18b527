import type { Client } from "../client.ts";
import type { Session } from "../session.ts";
import type { KeyValue } from "../types.ts";
import { acquiring } from "./acquiring.ts";
import { deliver, type OnError } from "./callbacks.ts";
import { Claim } from "./claim.ts";
import { ROOTS } from "./names.ts";
import { fieldsOf, lockState, type LockState } from "./owner.ts";
import { Queue } from "./queue.ts";
import { tokenToString } from "./token.ts";
import { TreeView } from "./tree-view.ts";

/** How a holder is asked. */
export interface AskOptions {
  /** The request stands as long as this session. */
  readonly session: Session;
  /** For whoever holds it, and for people. Default: "". */
  readonly reason?: string;
  readonly signal?: AbortSignal;
}

/** Somebody asks a holder to give up what it holds. It is asked, not forced. */
export interface RevocationRequest extends LockState {
  readonly reason: string;
}

/** How a holder listens to requests. */
export interface AskedOptions {
  /** Told what the listener throws, and what ends the listening if it ends by itself. */
  readonly onError: OnError;
}

/** Where requests to the holder of `key` with `token` are: nobody's successor finds them. */
export function requestsOf(key: string, token: number): string {
  return `${ROOTS.revocation}${key}/~/${tokenToString(token)}/`;
}

/**
 * Asks whoever holds `holder` now. The request stands until it is released, or its session ends.
 * @returns undefined when nobody holds it.
 */
export async function askHolder(
  client: Client,
  holder: KeyValue | undefined,
  options: AskOptions,
): Promise<Claim | undefined> {
  if (holder === undefined) return undefined;
  const { session, signal, reason = "" } = options;
  const what = `the request for "${holder.keyText}"`;
  const queue = new Queue(client, { own: requestsOf(holder.keyText, holder.createRevision) });
  // There is nothing to wait for: it stands at once, or not at all.
  const once = { session, waitMs: 0, ...(signal === undefined ? {} : { signal }) };
  return acquiring(client, { recipe: "revocation-request", what }, once, async (wait) => {
    const { place } = await queue.enter(wait, { fields: { reason } });
    return new Claim(client, { session, what, watchKey: false, ...place });
  });
}

/**
 * Tells the holder of each request for its claim, also of those that stand already. Whether and when it gives up is its
 * own decision. Ends with the claim. Resolves when it listens.
 */
export async function onAsked(
  client: Client,
  claim: Claim,
  listener: (request: RevocationRequest) => unknown,
  options: AskedOptions,
): Promise<void> {
  const prefix = requestsOf(claim.key, claim.token);
  const view = await TreeView.open(client, { prefix }, { signal: claim.held });
  const stop = (): void => view.close();
  if (claim.held.aborted) stop();
  else claim.held.addEventListener("abort", stop, { once: true });
  const told = new Set<string>();
  const requests = async function* (): AsyncGenerator<RevocationRequest, void, undefined> {
    const changes = view.changes();
    for (;;) {
      for (const kv of view.entries()) {
        if (told.has(kv.keyText)) continue;
        told.add(kv.keyText);
        yield requestOf(kv);
      }
      if ((await changes.next()).done === true) return;
    }
  };
  void deliver(client, requests(), listener, options.onError).finally(stop);
}

function requestOf(kv: KeyValue): RevocationRequest {
  const reason = fieldsOf(kv).get("reason");
  return { ...lockState(kv), reason: typeof reason === "string" ? reason : "" };
}
