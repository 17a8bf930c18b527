import { LockstepError, connect } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import type { Dice } from "../dice.ts";
import type { Findings } from "../findings.ts";
import type { Ledger } from "./ledger.ts";

/** What every piece of the workload shares. */
export interface Stage {
  readonly findings: Findings;
  readonly ledger: Ledger;
  readonly dice: Dice;
  /** Client addresses of the members as of now. */
  readonly endpoints: () => string[];
  /** Fires when the workload is to come to its end. */
  readonly stopping: AbortSignal;
  /** A write was acknowledged. */
  readonly onWrite: () => void;
}

const CONNECT_MS_MAX = 5_000;
/** A client whose every call failed for so long is replaced by one with fresh addresses. */
const USELESS_MS_MAX = 20_000;

/** Asked anew: it may have fired during the last wait. */
export function isOver(signal: AbortSignal): boolean {
  return signal.aborted;
}

/** Rejects when the signal fires: for a race with what is to end then. */
export function interrupted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new Error("interrupted")), { once: true });
  });
}

/** Sleeps, but not beyond the end of the workload. */
export function pause(stopping: AbortSignal, ms: number): Promise<void> {
  if (stopping.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = (): void => {
      clearTimeout(timer);
      stopping.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    stopping.addEventListener("abort", wake, { once: true });
  });
}

/** Tries until a member greets; undefined: the workload ended first. */
export async function connectTo(stage: Stage): Promise<Client | undefined> {
  while (!stage.stopping.aborted) {
    try {
      return await connect({ endpoints: stage.endpoints(), connectTimeoutMs: CONNECT_MS_MAX });
    } catch (error) {
      if (!(error instanceof LockstepError)) throw error;
    }
  }
  return undefined;
}

/**
 * A client process of its own in the eyes of the cell. Calls `act` again and again until the workload ends; a client
 * that gets nowhere for long, because everybody it knew has left the cell, is replaced.
 */
export async function actAgainAndAgain(
  stage: Stage,
  meanPauseMs: number,
  act: (client: Client) => Promise<Result>,
): Promise<void> {
  let client = await connectTo(stage);
  let failingSince: number | undefined;
  while (!stage.stopping.aborted && client !== undefined) {
    const failure = await act(client);
    const worked = failure === undefined;
    const now = performance.now();
    // Counted from the end of the first failure: an action may last for long before it fails.
    failingSince = worked ? undefined : (failingSince ?? now);
    if (failingSince !== undefined && now - failingSince > USELESS_MS_MAX) {
      stage.findings.count("clients replaced by hand");
      const { memberId, clientAddresses = [] } = client.info ?? {};
      stage.findings.say(
        `a client got nowhere for ${String(USELESS_MS_MAX / 1_000)} s and is replaced; at member ${String(memberId)}, it knew ${clientAddresses.join(" ")} and there are ${stage.endpoints().join(" ")}; at last: ${failure?.code ?? ""} (${failure?.message ?? ""})`,
      );
      client.close();
      client = await connectTo(stage);
      failingSince = undefined;
    }
    await pause(stage.stopping, stage.dice.exponential(worked ? meanPauseMs : meanPauseMs * 5));
  }
  client?.close();
}

/** A value that nobody writes a second time. */
export class Values {
  #count = 0;

  next(writer: string): string {
    this.#count += 1;
    return `v${String(this.#count)}.${writer}`;
  }
}

/** How one action went: undefined, or why it failed. */
export type Result = LockstepError | undefined;

/** An answer of the cell or of the client library; throws what is neither. */
export function toFailure(stage: Stage, error: unknown): LockstepError {
  if (!(error instanceof LockstepError)) throw error;
  stage.findings.count(`failed calls: ${error.code} (${error.outcome})`);
  return error;
}
