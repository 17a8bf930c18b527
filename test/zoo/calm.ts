import type { Findings } from "../torture/findings.ts";
import { isOver, pause } from "../torture/workload/actor.ts";
import type { Cages } from "./cages.ts";
import { LAWS } from "./judge.ts";
import type { Wait } from "./keeper.ts";

const LOOK_EVERY_MS = 50;
/** All workers may want the same thing, and have it for a second or two each. */
const WAIT_MS_MAX = 30_000;

export interface CalmOptions {
  readonly cages: Cages;
  readonly findings: Findings;
  /** So long it is looked who begins to wait. */
  readonly forMs: number;
  readonly interrupt: AbortSignal;
}

/** Nothing is wrong any more: whoever waits, now or from now on, gets its turn, or learns that its session is over. */
export async function checkWaiters({ cages, findings, forMs, interrupt }: CalmOptions): Promise<void> {
  const began = performance.now();
  const elapsedMs = (): number => performance.now() - began;
  /** When they were first seen in this calm. */
  const waits = new Map<Wait, number>();
  for (;;) {
    const waiters = cages.workers.flatMap(({ alive, name, waiting }) =>
      alive && waiting ? [{ name, waiting }] : [],
    );
    const isNew = elapsedMs() < forMs;
    for (const { waiting } of waiters) if (isNew && !waits.has(waiting)) waits.set(waiting, elapsedMs());
    const left = waiters.filter(({ waiting }) => waits.has(waiting));
    if ((!isNew && left.length === 0) || isOver(interrupt)) break;
    const late = left.filter(({ waiting }) => elapsedMs() - (waits.get(waiting) ?? 0) > WAIT_MS_MAX);
    if (late.length > 0) {
      const who = late.map(({ name, waiting }) => `${name} for a ${waiting.kind}`).join(", ");
      findings.violation(LAWS.waiters, who);
      break;
    }
    await pause(interrupt, LOOK_EVERY_MS);
  }
  findings.count("verdict: waiters looked at in a calm", waits.size);
  const seconds = (elapsedMs() / 1_000).toFixed(1);
  findings.say(`calm: ${String(waits.size)} who waited have had their turn after ${seconds} s`);
}
