// A machine burns down with its volume: the member is made anew elsewhere, by itself.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";
import {
  chooseVictim,
  hasMember,
  LOSS_AND_REPLACEMENT_MS,
  membersOf,
  secondsSince,
  startSparedLoad,
} from "./steps.ts";

export const loseNode: Scenario = {
  name: "lose-node",
  about: "the leader's node is lost for good with its volume, and its Node object deleted",
  ci: false,
  minutes: 12,
  run: async (context) => {
    const { cluster } = context;
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const load = await startSparedLoad(context, cell);
    const victim = await chooseVictim(context, cell, "leader");
    const node = cluster.nodeNamed(victim.node ?? "");
    const lostName = node.name;
    const ids = membersOf(await cell.get()).map(({ id }) => id ?? 0);
    await load.mark("node lost");
    const started = performance.now();
    await node.lose();
    // A person, or a cloud's controller: until then it could as well come back.
    await cluster.rebuild(node.slot);
    context.say(`${lostName} was lost with ${victim.name}; ${node.name} is in its place`);
    await cell.until(
      `${victim.name} is replaced`,
      (object) => !hasMember(object, victim.name),
      LOSS_AND_REPLACEMENT_MS,
    );
    const after = await cell.untilReady(LOSS_AND_REPLACEMENT_MS);
    context.say(`three voters again ${secondsSince(started)} after the loss`);
    assert.ok(membersOf(after).every((member) => member.node !== lostName));
    assert.ok(
      Math.max(...membersOf(after).map(({ id }) => id ?? 0)) > Math.max(...ids),
      "the newcomer's id was never used before",
    );
    await cell.checkAtRest();
    await context.kubectl(["wait", "--for=delete", `cellmember/${victim.name}`, "--timeout=60s"]);
    context.say(describePhase(await load.report()));
    await load.verify();
  },
};
