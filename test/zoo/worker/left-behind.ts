import { LockstepError } from "@lockstep/client";
import type { Client, Session } from "@lockstep/client";
import { setTimeout as sleep } from "node:timers/promises";
import { trueNowMs } from "../../support/clocks/shifted-clocks.ts";
import { EVERYTHING } from "./report.ts";

/** What is given up is taken back at once, or by a look 20 s later, when the answer to the question was lost. */
const GONE_MS_MAX = 30_000;
const LOOK_EVERY_MS = 200;

/** @returns keys that the session still has, beside `known`, long after it gave up what it wanted; its end ends all. */
export async function leftBehind(
  client: Client,
  session: Session,
  known: readonly string[],
): Promise<readonly string[]> {
  const end = trueNowMs() + GONE_MS_MAX;
  for (;;) {
    const left = await keysOf(client, session);
    if (session.remainingMs() <= 0) return [];
    const unknown = left?.filter((key) => !known.includes(key));
    if (unknown?.length === 0) return [];
    if (unknown !== undefined && trueNowMs() >= end) return unknown;
    await sleep(LOOK_EVERY_MS);
  }
}

/** @returns undefined when the cell did not say. */
async function keysOf(client: Client, { leaseId }: Session): Promise<string[] | undefined> {
  try {
    const { kvs } = await client.range(EVERYTHING);
    return kvs.filter((kv) => kv.leaseId === leaseId).map((kv) => kv.keyText);
  } catch (error) {
    if (error instanceof LockstepError) return undefined;
    throw error;
  }
}
