// A node is drained: the PodDisruptionBudget lets one member go, and the operator makes another one elsewhere.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";

export const drain: Scenario = {
  name: "drain",
  about:
    "kubectl drain of a member's node ends, and the member, whose volume stays there, is replaced elsewhere",
  ci: true,
  minutes: 8,
  run: async (context) => {
    const { cluster } = context;
    await installOperator(context);
    // Five nodes in zones of 2, 2 and 1: the drained one must have a neighbour in its zone.
    const { cell } = await Cell.create(context);
    const before = await cell.get();
    const candidates = before.status?.members ?? [];
    const victim = candidates.find(({ zone }) => zone === "zone-1") ?? candidates[0];
    assert.ok(victim?.node !== undefined);
    const spared = candidates.find(({ name }) => name !== victim.name)?.node;
    const load = await startLoad(context, {
      cell: "main",
      ...(spared === undefined ? {} : { nodeName: spared }),
    });
    await load.mark("drain");
    const { node } = victim;
    context.finally(async () => {
      await cluster.kubectl(["uncordon", node]);
    });
    await cluster.kubectl(
      ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s"],
      { timeoutMs: 100_000 },
    );
    context.say(`${node} is drained`);
    const started = performance.now();
    await cell.until(
      `${victim.name} is replaced`,
      (object) => (object.status?.members ?? []).every(({ name }) => name !== victim.name),
      240_000,
    );
    await cell.untilReady();
    context.say(`${victim.name} replaced ${((performance.now() - started) / 1000).toFixed(1)} s later`);
    await cell.checkAtRest();
    assert.ok((await cell.pods()).every(({ spec }) => spec.nodeName !== node));
    context.say(describePhase(await load.report()));
    await load.verify();
  },
};
