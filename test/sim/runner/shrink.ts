import { FAULTS, describePlan } from "../plan.ts";
import type { Fault, Plan } from "../plan.ts";
import { CALM_NETWORK } from "../network/profile.ts";
import { runSeed } from "../simulation.ts";
import type { Outcome } from "../simulation.ts";

/**
 * Looks for a simpler plan of the same seed that breaks the same law: kinds of faults are left out one by one, the network
 * is made calm, the work shortened. Another plan is another history, so this works for robust failures and not for
 * all; each step costs one history.
 */
export async function shrink(failure: Outcome, tell: (line: string) => void): Promise<Plan> {
  const law = failure.violation?.law;
  let best = failure.plan;
  const attempt = async (what: string, plan: Plan): Promise<void> => {
    const { violation, simulatedSeconds } = await runSeed({ seed: plan.seed, plan });
    if (violation?.law !== law) return;
    best = plan;
    tell(`still fails after ${simulatedSeconds.toFixed(1)} s ${what}`);
  };
  for (const fault of FAULTS) {
    if (best.faults[fault] > 0) await attempt(`without ${fault}`, without(best, fault));
  }
  await attempt("on a calm network", { ...best, network: CALM_NETWORK });
  await attempt("with clocks that agree", { ...best, driftMax: 0, wallOffsetMsMax: 0 });
  for (let seconds = Math.floor(best.workSeconds / 2); seconds >= 1; seconds = Math.floor(seconds / 2)) {
    await attempt(`with ${String(seconds)} s of work`, { ...best, workSeconds: seconds });
  }
  for (const actor of Object.keys(best.workload.actors) as (keyof Plan["workload"]["actors"])[]) {
    const actors = { ...best.workload.actors, [actor]: 0 };
    await attempt(`without ${actor}`, { ...best, workload: { ...best.workload, actors } });
  }
  tell(`simplest: ${describePlan(best)}; ${JSON.stringify(best.workload.actors)}`);
  return best;
}

function without(plan: Plan, fault: Fault): Plan {
  return { ...plan, faults: { ...plan.faults, [fault]: 0 } };
}
