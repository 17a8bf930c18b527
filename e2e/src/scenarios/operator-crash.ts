// The operator is killed at every step of a change, and the change goes on under the next one.
import assert from "node:assert/strict";
import { Cell, installOperator, leadingOperator, OPERATOR_NAMESPACE } from "../lockstep.ts";
import type { CellObject } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";

const CHANGE_MS = 240_000;

async function killLeader(context: ScenarioContext): Promise<void> {
  const { pod, node } = await leadingOperator(context);
  await context.cluster.nodeNamed(node).signalPod(OPERATOR_NAMESPACE, pod);
  // A pod of its own again: the kubelet would start one that was killed often later and later.
  await context.cluster.kubectl([
    ...["delete", "pod", pod, "--namespace", OPERATOR_NAMESPACE],
    ...["--grace-period=0", "--force", "--ignore-not-found"],
  ]);
}

/** Kills the leading operator once at each new step, until `done`. @returns the steps at which it was killed */
async function killAtEachStep(
  context: ScenarioContext,
  cell: Cell,
  done: (object: CellObject) => boolean,
): Promise<readonly string[]> {
  const killed = new Set<string>();
  await context.until(
    "the change is done",
    async () => {
      const object = await cell.get();
      if (done(object)) return true;
      const { operation } = object.status ?? {};
      const step = operation === undefined ? "" : `${operation.kind}/${operation.step}`;
      if (step !== "" && !killed.has(step)) {
        killed.add(step);
        await killLeader(context);
      }
      return false;
    },
    { timeoutMs: CHANGE_MS, everyMs: 100 },
  );
  return [...killed];
}

export const operatorCrash: Scenario = {
  name: "operator-crash",
  about: "the leading operator is killed at each step of a creation, a replacement and a roll",
  ci: true,
  minutes: 12,
  run: async (context) => {
    await installOperator(context);
    const cell = new Cell(context, "main");
    await cell.apply({});
    const created = await killAtEachStep(context, cell, ({ status }) => status?.readyVoters === 3);
    await cell.untilReady();
    context.say(`creation: killed at ${created.join(", ")}`);
    const load = await startLoad(context, { cell: "main" });
    await load.mark("crashes");

    const before = await cell.get();
    const old = before.status?.leader ?? "";
    await context.kubectl(["delete", "cellmember", old, "--wait=false"]);
    const replaced = await killAtEachStep(context, cell, (object) =>
      (object.status?.members ?? []).every(({ name }) => name !== old),
    );
    await cell.untilReady();
    context.say(`replacement: killed at ${replaced.join(", ")}`);
    await cell.checkAtRest();

    await cell.patch({ podTemplate: { metadata: { annotations: { "example.com/rolled": "yes" } } } });
    const rolled = await killAtEachStep(
      context,
      cell,
      ({ status, metadata }) =>
        status?.observedGeneration === metadata.generation &&
        status.conditions?.some(({ type, status: is }) => type === "UpToDate" && is === "True") === true,
    );
    await cell.untilReady();
    context.say(`roll: killed at ${rolled.join(", ")}`);
    await cell.checkAtRest();
    assert.ok(created.length >= 3 && replaced.length >= 3 && rolled.length >= 1);
    context.say(describePhase(await load.report()));
    await load.verify();
  },
};
