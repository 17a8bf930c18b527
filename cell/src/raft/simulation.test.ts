import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Simulation } from "./testing/simulation.ts";

/** `LOCKSTEP_RAFT_SEED=17` runs that history alone; `LOCKSTEP_RAFT_SEEDS=5000` runs more of them. */
const only = process.env["LOCKSTEP_RAFT_SEED"];
const first = only === undefined ? 1 : Number(only);
const count = only === undefined ? Number(process.env["LOCKSTEP_RAFT_SEEDS"] ?? 200) : 1;
const STEPS = 6_000;

describe("raft under faults", () => {
  it("keeps its invariants and settles once the faults end", () => {
    const total = { elections: 0, applied: 0, changes: 0, snapshots: 0, restarts: 0, reads: 0 };
    for (let seed = first; seed < first + count; seed++) {
      const simulation = new Simulation(seed);
      try {
        simulation.run(STEPS);
        simulation.settle();
      } catch (cause) {
        const replay = `LOCKSTEP_RAFT_SEED=${seed} node --test cell/src/raft/simulation.test.ts`;
        throw new Error(`seed ${seed} breaks; replay with: ${replay}`, { cause });
      }
      for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += simulation.counts[key];
    }
    if (only !== undefined) return;
    // Histories in which nothing happens prove nothing.
    for (const [key, sum] of Object.entries(total)) assert(sum >= count, `too few ${key}: ${sum}`);
  });
});
