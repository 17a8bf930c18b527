/**
 * Histories of a cell in a world that fails: `node operator/src/testing/main.ts --seeds 300 [--seed 7] [--trace]`.
 * With `--seed` alone, that one.
 */
import { parseArgs } from "node:util";
import { Simulation } from "./simulation.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string" },
    seed: { type: "string" },
    chaos: { type: "string" },
    trace: { type: "boolean" },
  },
});
const first = Number(values.seed ?? "1");
const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
const chaosSeconds = Number(values.chaos ?? "200");
const counts = new Map<string, number>();
let broken = 0;
let passes = 0;
const times: number[] = [];

for (let seed = first; seed < first + count; seed += 1) {
  const simulation = new Simulation({
    seed,
    chaosSeconds,
    ...(values.trace === true ? { trace: (line: string) => console.log(line) } : {}),
  });
  const result = await simulation.run();
  passes += result.passes;
  for (const [what, times] of result.counts) counts.set(what, (counts.get(what) ?? 0) + times);
  if (result.convergedMs !== undefined) times.push(result.convergedMs);
  if (result.broken.length === 0) continue;
  broken += 1;
  for (const law of result.broken) console.log(`seed ${String(seed)}: ${law}`);
  console.log(
    `  replay: node operator/src/testing/main.ts --seed ${String(seed)} --chaos ${String(chaosSeconds)} --trace`,
  );
}

for (const [what, number] of [...counts].sort()) console.log(`${String(number).padStart(8)}  ${what}`);
times.sort((a, b) => a - b);
const median = (times[Math.floor(times.length / 2)] ?? 0) / 1_000;
const slowest = (times.at(-1) ?? 0) / 1_000;
console.log(
  `${String(count)} histories, ${String(passes)} passes, ${String(broken)} broken; converged in ${String(median)} s (median), ${String(slowest)} s (slowest) of simulated time`,
);
process.exitCode = broken === 0 ? 0 : 1;
