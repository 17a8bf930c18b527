import type { LockstepError } from "@lockstep/client";
import { runClosedLoop } from "./closed-loop.ts";
import { Corpus, Random } from "./corpus.ts";
import { problemOf, type Load } from "./load.ts";
import { planFromNow } from "./tally.ts";

/** The kill comes this long after the warm-up, so that the second before it is measured too. */
const KILL_AFTER_MS = 1_000;

/** The longest time between acknowledgements, before and after the kill. */
class Gaps {
  beforeMs = 0;
  afterMs = 0;
  killedAtMs = Infinity;
  #lastAtMs: number;

  constructor(fromMs: number) {
    this.#lastAtMs = fromMs;
  }

  acknowledged(nowMs: number): void {
    // Negative before the measured time, and for an answer behind its end.
    const gap = nowMs - this.#lastAtMs;
    // A gap that spans the kill is the kill's.
    if (nowMs >= this.killedAtMs) this.afterMs = Math.max(this.afterMs, gap);
    else this.beforeMs = Math.max(this.beforeMs, gap);
    this.#lastAtMs = Math.max(nowMs, this.#lastAtMs);
  }
}

/**
 * Puts in closed loop while the process `killPid`, the leader, is killed. `figures.gapMs` is the longest time after the
 * kill in which nobody's put was acknowledged.
 */
export const failover: Load = async (channel, settings) => {
  const { killPid, clients } = settings;
  if (killPid === 0) throw new TypeError("failover needs --kill-pid");
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  const plan = planFromNow(settings.warmupSeconds, settings.measureSeconds);
  const gaps = new Gaps(plan.fromMs);
  const kill = setTimeout(
    () => {
      gaps.killedAtMs = performance.now();
      process.kill(killPid, "SIGKILL");
    },
    plan.fromMs + KILL_AFTER_MS - performance.now(),
  );
  const tally = await runClosedLoop({
    plan,
    slots: clients,
    operationOf: (slot) => {
      const random = new Random(slot.index + 1);
      const finish = (error: LockstepError | undefined): void => {
        if (error === undefined) gaps.acknowledged(performance.now());
        slot.done(problemOf(error));
      };
      return () => {
        channel.putWith(corpus.key(random), corpus.value(random), finish);
        return true;
      };
    },
  });
  clearTimeout(kill);
  // If nothing was acknowledged any more, the gap lasts to the end.
  gaps.acknowledged(Math.min(performance.now(), plan.untilMs));
  const figures = { gapMs: gaps.afterMs, gapBeforeMs: gaps.beforeMs };
  return { tally, seconds: settings.measureSeconds, figures };
};
