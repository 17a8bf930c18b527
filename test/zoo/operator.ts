import { LockstepError } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import { trueNowMs } from "../support/clocks/shifted-clocks.ts";
import type { Dice } from "../torture/dice.ts";
import type { Findings } from "../torture/findings.ts";
import { isOver, pause } from "../torture/workload/actor.ts";
import type { Judge } from "./judge.ts";
import { EVERYTHING } from "./worker/report.ts";

/** Mean of the time between one deletion and the next. */
const REST_MS = 4_000;

export interface OperatorOptions {
  readonly client: Client;
  readonly judge: Judge;
  readonly findings: Findings;
}

/** A person who deletes an owner's key now and then. Its owner may learn of it late; what it lets go then is not its own. */
export async function operate(options: OperatorOptions, dice: Dice, stopping: AbortSignal): Promise<void> {
  for (;;) {
    await pause(stopping, dice.exponential(REST_MS));
    if (isOver(stopping)) return;
    const tokens = options.judge.owned();
    if (tokens.length === 0) continue;
    try {
      await takeAway(options, dice.pick(tokens), dice);
    } catch (error) {
      if (!(error instanceof LockstepError)) throw error;
    }
  }
}

async function takeAway(
  { client, judge, findings }: OperatorOptions,
  token: number,
  dice: Dice,
): Promise<void> {
  const { kvs } = await client.range(EVERYTHING);
  const keys = kvs.filter(({ createRevision }) => createRevision === token).map(({ keyText }) => keyText);
  if (keys.length === 0) return;
  const key = dice.pick(keys);
  judge.takenAway(token, trueNowMs());
  const { succeeded } = await client.txn({
    compares: [{ key, createRevision: token }],
    success: [{ delete: { key } }],
  });
  findings.record({ operator: "deletes", key, token, succeeded });
  if (succeeded) findings.count("keys deleted by the operator");
}
