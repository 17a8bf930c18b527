import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { LONG_EVERY, drawPlan } from "./plan.ts";
import { runSeed } from "./simulation.ts";
import type { World } from "./world.ts";

/** Everything that is told of a history, and what the disks hold at its end. */
async function history(seed: number): Promise<string> {
  const hash = createHash("sha256");
  let world: World | undefined;
  const outcome = await runSeed({
    seed,
    onTrace: (line) => hash.update(`${line}\n`),
    onWorld: (made) => (world = made),
  });
  assert.equal(outcome.violation, undefined, `npm run sim -- --seed ${String(seed)} --trace`);
  for (const host of world?.hosts ?? []) {
    hash.update(`${host.name} ${host.state} ${String(host.lives)}\n`);
    for (const name of host.disk.names("/data/wal")) hash.update(host.disk.peek(`/data/wal/${name}`));
  }
  return `${hash.digest("hex")} ${String(outcome.steps)} ${JSON.stringify(outcome.coverage)}`;
}

/** Seeds of a wild world, a calm one, and one of five voters. */
const SEEDS = [3, 4, 29];

describe("one seed is one history", () => {
  it("byte for byte, in the same process and after others", async () => {
    for (const seed of SEEDS) {
      const first = await history(seed);
      const second = await history(seed);
      assert.equal(second, first, `seed ${String(seed)}`);
    }
  });

  it("and in another process", async () => {
    const [seed = 0] = SEEDS;
    const here = await runSeed({ seed });
    const main = fileURLToPath(new URL("main.ts", import.meta.url));
    const there = spawnSync(process.execPath, [main, "--seed", String(seed)], { encoding: "utf8" });
    assert.ok(there.stdout.includes(`fingerprint ${here.fingerprint}`), there.stdout + there.stderr);
  });

  it("another seed is another history", async () => {
    assert.notEqual(await history(3), await history(5));
  });
});

describe("plans", () => {
  it("one seed in twenty lives through ten simulated minutes of work", () => {
    const long = Array.from({ length: 1_000 }, (_, at) => drawPlan(at + 1)).filter(
      ({ workSeconds }) => workSeconds >= 600,
    );
    assert.equal(long.length, 1_000 / LONG_EVERY);
  });

  it("some worlds are calm and some are wild, and every fault is absent from some and present in others", () => {
    const plans = Array.from({ length: 300 }, (_, at) => drawPlan(at + 1));
    for (const wildness of [0, 1]) assert.ok(plans.some((plan) => plan.wildness === wildness));
    for (const fault of Object.keys(plans[0]?.faults ?? {}) as (keyof (typeof plans)[0]["faults"])[]) {
      assert.ok(
        plans.some(({ faults }) => faults[fault] === 0),
        fault,
      );
      assert.ok(
        plans.some(({ faults }) => faults[fault] > 0),
        fault,
      );
    }
  });
});
