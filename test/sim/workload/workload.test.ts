import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CoverageKey } from "../contract.ts";
import { SeededDice } from "../kernel/dice.ts";
import { drawWorkloadPlan, type WorkloadPlan } from "./plan.ts";
import { manualCell, type ManualCell } from "./testing/manual-cell.ts";
import { createWorkload, type Workload } from "./workload.ts";

const BUSY: WorkloadPlan = {
  actors: {
    registers: 3,
    sequences: 1,
    leases: 2,
    locks: 3,
    contenders: 3,
    watches: 2,
    streams: 2,
    compactor: 1,
  },
  operationsPerSecond: 8,
  deadlineMs: 2_000,
  registerKeys: 3,
  lockNames: 1,
  recipes: ["fair-lock", "read-write-lock", "semaphore", "election"],
  permits: 2,
  askChance: 0.2,
  ttlMsMin: 2_000,
  ttlMsMax: 3_000,
  pinnedChance: 0.2,
  retainedRevisions: 5,
  compactionSeconds: 3,
};

function workloadOn(cell: ManualCell, plan: WorkloadPlan): Workload {
  const { truth, reporter, world } = cell;
  return createWorkload({ plan, truth, reporter, scheduler: world.scheduler });
}

describe("a workload on a cell without faults", () => {
  it("finds nothing, ends when it is told to, and exercises what it owns", async () => {
    const cell = manualCell(1);
    const workload = workloadOn(cell, BUSY);
    await cell.live(workload, 40);
    const healedAtUs = cell.world.scheduler.nowUs;
    await cell.world.ms(20_000);
    workload.expectNoOrphanLeases(healedAtUs, 2_000);
    workload.finish();
    assert.equal(cell.reporter.first, undefined);
    const wanted: CoverageKey[] = [
      "puts",
      "compare-and-sets",
      "transactions",
      "deletes",
      "sequential keys",
      "linearizable reads",
      "serializable reads",
      "reads at a revision",
      "lease renewals",
      "locks acquired",
      "fair locks acquired",
      "read-write locks acquired",
      "permits acquired",
      "terms led",
      "leaders observed",
      "holders asked",
      "guarded writes accepted",
      "watch events",
      "watch resumes",
      "watch slow consumers",
      "progress notices",
      "compactions",
      "linearizability checks",
    ];
    for (const key of wanted) assert.ok(cell.reporter.counted(key) > 0, `no ${key}`);
    assert.ok(workload.registerHistory().size > 100);
  });
});

describe("a workload whose processes are paused, cut off and killed", () => {
  it("finds nothing, and leaves neither orphans nor open calls", async () => {
    // One history need not have everything in it.
    const counted = new Map<string, number>();
    for (const seed of [4, 5, 6]) {
      const cell = manualCell(2);
      const workload = workloadOn(cell, BUSY);
      await disturb(cell, workload, new SeededDice(seed));
      const { reporter } = cell;
      assert.equal(reporter.first, undefined);
      for (const key of WANTED) counted.set(key, (counted.get(key) ?? 0) + reporter.counted(key));
      counted.set(STALE, (counted.get(STALE) ?? 0) + workload.staleWritesWithoutGuard());
    }
    for (const [key, count] of counted) assert.ok(count > 0, `no ${key}`);
  });
});

const WANTED = ["sessions lost", "unknown outcomes", "guarded writes refused"] as const;
const STALE = "stale writes without the guard";

async function disturb(cell: ManualCell, workload: Workload, dice: SeededDice): Promise<void> {
  await cell.live(workload, 60, ({ processes, world }) => {
    const living = processes.filter(({ alive }) => alive).slice(-14);
    const victim = dice.pick(living);
    const kind = dice.pick(["pause", "pause", "kill", "cut", "break", "nothing"] as const);
    if (kind === "pause" && !victim.paused) {
      victim.paused = true;
      world.scheduler.in(dice.between(100, 6_000) * 1_000, () => victim.resume());
    } else if (kind === "kill") {
      cell.kill(victim);
    } else if (kind === "cut") {
      world.network.isolate(victim.host, dice.pick(["both", "in", "out"] as const));
      world.scheduler.in(dice.between(500, 8_000) * 1_000, () => world.network.heal());
    } else if (kind === "break") {
      world.network.breakConnections(victim.host, "m1");
    }
  });
  const healedAtUs = cell.world.scheduler.nowUs;
  await cell.world.ms(20_000);
  workload.expectNoOrphanLeases(healedAtUs, 2_000);
  workload.finish();
}

describe("drawn plans", () => {
  it("are functions of the dice", () => {
    assert.deepEqual(drawWorkloadPlan(new SeededDice(3)), drawWorkloadPlan(new SeededDice(3)));
    assert.notDeepEqual(drawWorkloadPlan(new SeededDice(3)), drawWorkloadPlan(new SeededDice(4)));
  });
});
