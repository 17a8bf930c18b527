import { runSeed } from "./simulation.ts";
import { describePlan } from "./plan.ts";

const seed = Number(process.argv[2] ?? "1");
const trace = process.argv.includes("--trace");
const started = performance.now();
const outcome = await runSeed({ seed, ...(trace ? { onTrace: (line: string) => console.log(line) } : {}) });
console.log(describePlan(outcome.plan));
console.log(
  outcome.violation?.message ?? "ok",
  outcome.fingerprint,
  outcome.steps,
  outcome.simulatedSeconds.toFixed(1),
  `${(performance.now() - started).toFixed(0)} ms`,
);
if (process.argv.includes("--coverage")) console.log(outcome.coverage);
