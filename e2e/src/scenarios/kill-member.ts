// Members are killed while they serve: nothing acknowledged is lost.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import type { CellObject } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";
import { killMember, membersOf, namesOf, secondsSince, startSparedLoad } from "./steps.ts";

/** A leader that is gone is followed after an election, on a machine that is shared with a whole cluster. */
const GAP_MS_MAX = 10_000;
const BACK_MS = 120_000;

type Aim = "follower" | "leader" | "both followers";

/** The leader twice: the second time it is another one. Both followers at once: nobody serves until one is back. */
const AIMS: readonly Aim[] = ["follower", "leader", "follower", "leader", "both followers"];

function targetsOf(object: CellObject, aim: Aim): readonly string[] {
  const leader = object.status?.leader ?? "";
  if (aim === "leader") return [leader];
  const followers = membersOf(object)
    .map(({ name }) => name)
    .filter((name) => name !== leader);
  return aim === "follower" ? followers.slice(0, 1) : followers;
}

export const killMemberScenario: Scenario = {
  name: "kill-member",
  about: "kill -9 of followers, of leaders, and of a majority at once, under load",
  ci: false,
  minutes: 12,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const load = await startSparedLoad(context, cell);
    const names = namesOf(await cell.get());
    for (const [round, aim] of AIMS.entries()) {
      await load.mark(`${String(round + 1)}. ${aim}`);
      const object = await cell.get();
      const targets = targetsOf(object, aim);
      const started = performance.now();
      for (const target of targets) await killMember(context, object, target);
      await cell.until(
        "the loss is seen, or over already",
        ({ status }) => status?.readyVoters !== 3 || performance.now() - started > 5_000,
      );
      await cell.untilReady(BACK_MS);
      context.say(`${targets.join(" and ")} (${aim}) killed, all ready again after ${secondsSince(started)}`);
      const report = await load.report();
      context.say(describePhase(report));
      if (aim !== "both followers")
        assert.ok(report.current.longestWriteGapMs <= GAP_MS_MAX, `the gap of ${aim} is an election's`);
    }
    assert.deepEqual(namesOf(await cell.get()), names, "nobody was replaced");
    await cell.checkAtRest();
    await load.verify();
  },
};
