import { Backoff } from "../backoff.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { Session } from "../session.ts";
import type { CallOptions, Txn, TxnResult } from "../types.ts";
import { tryFailed, type Wait } from "./acquiring.ts";
import { isPassing } from "./persist.ts";
import { onSessionLost } from "./session-end.ts";

/** One try to create a key; the wait itself may be longer. */
const CREATE_MS_MAX = 10_000;
const UNDO_MS_MAX = 5_000;
/** More refusals of an undo than this say that it will not work: the end of the session does it then. */
const UNDO_REFUSALS_MAX = 20;
/**
 * A request whose answer was lost may still be on its way, in a member that was stopped or on a stream that is being
 * torn down, and be executed after it was looked for: so it is looked for again this long after.
 */
const LOOK_AGAIN_AFTER_MS: readonly number[] = [1_000, 5_000, 20_000];

/** What takes an attempt back. Called with a bound; may be called again after it failed. */
export type Undo = (options: CallOptions) => Promise<unknown>;

/** What an attempt does, and how to take it back. */
export interface Creation {
  readonly txn: Txn;
  /** After an answer that nobody waits for any more. */
  readonly undoKnown: (result: TxnResult) => Undo;
  /** After the answer was lost: the attempt may or may not have taken effect. */
  readonly undoUnknown: Undo;
}

/**
 * Sends the transaction that creates a claim. Whatever way it ends but well, nothing of it stays: a creation whose
 * caller has gone is taken back when its answer comes, and one whose answer is lost is looked for. As long as somebody
 * waits, it fails when that is done: another try must not stand beside this one. Behind the back of a caller that has
 * gone it goes on; what the end of the session comes before, the cell removes with its lease.
 */
export async function create(client: Client, wait: Wait, creation: Creation): Promise<TxnResult> {
  wait.stop.throwIfAborted();
  const { session } = wait;
  const deadlineMs = Math.min(CREATE_MS_MAX, session.remainingMs());
  const answered = { takenBack: false };
  const settled = client.txn(creation.txn, { deadlineMs }).then(
    async (result) => {
      if (wait.stop.aborted) {
        answered.takenBack = true;
        await insist(client, session, creation.undoKnown(result));
      }
      return result;
    },
    async (error: unknown) => {
      if (isUnknown(error)) {
        tryFailed(wait, error);
        await insist(client, session, creation.undoUnknown);
        void lookAgain(client, session, creation.undoUnknown);
      }
      throw error;
    },
  );
  const result = await wait.farewell.orOver(settled);
  wait.outage.failure = undefined;
  if (!wait.stop.aborted) return result;
  // The answer and the stop came in one turn.
  if (!answered.takenBack) await wait.farewell.waitFor(insist(client, session, creation.undoKnown(result)));
  throw wait.stop.reason;
}

/** Runs `undo` until it works or the session is over. Never rejects; an outage is waited for. */
export async function insist(client: Client, session: Session, undo: Undo): Promise<void> {
  const backoff = new Backoff(client.runtime);
  let refusals = 0;
  for (;;) {
    const leftMs = session.remainingMs();
    if (leftMs <= 0) return;
    try {
      await undo({ deadlineMs: Math.min(UNDO_MS_MAX, leftMs) });
      return;
    } catch (error) {
      if (error instanceof LockstepError && error.code === "closed") return;
      if (!isPassing(error)) refusals += 1;
      if (refusals >= UNDO_REFUSALS_MAX) return;
    }
    await pause(client, session, backoff.nextMs());
  }
}

/** Never rejects. */
async function lookAgain(client: Client, session: Session, undo: Undo): Promise<void> {
  for (const delayMs of LOOK_AGAIN_AFTER_MS) {
    await pause(client, session, delayMs);
    await insist(client, session, undo);
  }
}

/** Resolves after `delayMs`, or when the session ends. */
function pause(client: Client, session: Session, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      cancelTimer();
      unsubscribe();
      resolve();
    };
    const cancelTimer = client.runtime.schedule(end, delayMs);
    let unsubscribe: () => void = () => undefined;
    unsubscribe = onSessionLost(session, end);
  });
}

function isUnknown(error: unknown): boolean {
  return !(error instanceof LockstepError) || error.outcome === "unknown";
}
