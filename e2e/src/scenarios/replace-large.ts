// A voter of a cell with much state is replaced: the newcomer is sent all of it while the others serve.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";
import { Shell } from "./shell.ts";
import { hasMember, secondsSince, startSparedLoad } from "./steps.ts";

const KEYS = 100_000;
const REPLACED_MS_MAX = 120_000;
const GAP_MS_MAX = 1_000;

export const replaceLarge: Scenario = {
  name: "replace-large",
  about: `a follower and the leader of a cell with ${String(KEYS)} keys are replaced under load, each within two minutes`,
  ci: false,
  minutes: 10,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const load = await startSparedLoad(context, cell, { flags: [`--fill=${String(KEYS)}`] });
    const shell = await Shell.start(context, cell.name);
    const count = (): Promise<string> => shell.run("get", "/fill/", "--prefix", "--count-only");
    assert.equal(await count(), String(KEYS));
    for (const role of ["follower", "leader"]) {
      const before = await cell.get();
      const led = before.status?.leader ?? "";
      const follower = before.status?.members?.find(({ name }) => name !== led)?.name ?? "";
      const old = role === "leader" ? led : follower;
      await load.mark(`${role} replaced`);
      const started = performance.now();
      await cell.request({ action: "Replace", member: old });
      const took = performance.now() - started;
      context.say(`${old} (${role}) replaced in ${secondsSince(started)}`);
      const after = await cell.untilReady();
      assert.ok(!hasMember(after, old));
      const report = await load.report();
      context.say(describePhase(report));
      assert.ok(took <= REPLACED_MS_MAX, `within two minutes: ${String(took)} ms`);
      const { longestWriteGapMs, failed, unknown } = report.current;
      assert.ok(longestWriteGapMs <= GAP_MS_MAX, `no write gap over 1 s: ${String(longestWriteGapMs)} ms`);
      assert.deepEqual([failed, unknown], [0, 0]);
      await cell.checkAtRest();
    }
    assert.equal(await count(), String(KEYS));
    await load.verify();
  },
};
