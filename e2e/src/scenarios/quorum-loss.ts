// Two of three machines burn down: the cell says so and nothing is touched, until a person names the survivor.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { Cell, installOperator, leadingOperator } from "../lockstep.ts";
import type { CellObject } from "../lockstep.ts";
import type { ClusterNode } from "../node.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { membersOf, namesIn, nodeOf, runningPods, secondsSince, untilTold } from "./steps.ts";
import { Shell } from "./shell.ts";

const UNTOUCHED_MS = 60_000;
const RECOVERY_MS = 240_000;
const WHOLE_MS = 300_000;
const LOCK = "nightly";

/** The member on the leading operator's node, if there is one: the operator must outlive the loss. */
async function chooseSurvivor(context: ScenarioContext, object: CellObject): Promise<string> {
  const { node } = await leadingOperator(context);
  const members = membersOf(object);
  const survivor = members.find((member) => member.node === node) ?? members[0];
  assert.ok(survivor !== undefined);
  return survivor.name;
}

/** Told, and left alone: the survivor's pod, every CellMember and every claim. */
async function nothingIsTouched(context: ScenarioContext, cell: Cell, survivor: string): Promise<void> {
  const things = async (): Promise<unknown> => ({
    members: await namesIn(context, "cellmembers"),
    claims: await namesIn(context, "pvc"),
    survivor: (await runningPods(context, cell)).filter((pod) => pod.startsWith(`${survivor} `)),
  });
  const before = await things();
  await untilTold(context, cell, /^(QuorumLost|NobodyAnswers|TooFewHealthy)/, 60_000);
  const lost = await cell.until(
    "the quorum's loss is told",
    ({ status }) => status?.phase === "Unavailable" || status?.phase === "Stalled",
  );
  context.say(`phase ${lost.status?.phase ?? ""}`);
  await delay(UNTOUCHED_MS, undefined, { signal: context.signal });
  assert.deepEqual(await things(), before);
  assert.equal((await cell.get()).status?.operation, undefined, "nothing is begun");
}

async function recovered(context: ScenarioContext, cell: Cell, survivor: string): Promise<void> {
  const { status } = await cell.get();
  const cellId = status?.cellId ?? "";
  const started = performance.now();
  await cell.patch({ recovery: { survivor, cellId } });
  const after = await cell.until(
    "the cell has another identity",
    (object) => object.status?.cellId !== cellId,
    RECOVERY_MS,
  );
  context.say(`${cellId} → ${after.status?.cellId ?? ""} ${secondsSince(started)} after spec.recovery`);
  await cell.until("three ready voters", (object) => object.status?.readyVoters === 3, WHOLE_MS);
  context.say(`three voters again ${secondsSince(started)} after spec.recovery`);
  await cell.patch({ recovery: null });
}

export const quorumLoss: Scenario = {
  name: "quorum-loss",
  about: "two of three nodes are lost: nothing is touched until spec.recovery names the survivor",
  ci: false,
  minutes: 18,
  run: async (context) => {
    const { cluster } = context;
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const object = await cell.get();
    const survivor = await chooseSurvivor(context, object);
    const shell = await Shell.start(context, cell.name, nodeOf(context, object, survivor).name);
    await shell.run("put", "kept", "yes");
    let token = 0;
    for (let round = 0; round < 3; round += 1) token = await shell.token(LOCK);
    // What the leader has acknowledged is on a majority: the survivor has it when it has caught up.
    await delay(2_000);
    const lost: ClusterNode[] = membersOf(object)
      .filter(({ name }) => name !== survivor)
      .map(({ name }) => nodeOf(context, object, name));
    for (const node of lost) await node.lose();
    context.say(`${lost.map(({ name }) => name).join(" and ")} are lost, ${survivor} is left`);
    await nothingIsTouched(context, cell, survivor);
    await recovered(context, cell, survivor);
    assert.equal(await shell.run("get", "kept", "--raw"), "yes");
    const larger = await shell.token(LOCK);
    context.say(`token ${String(token)} before, ${String(larger)} after`);
    assert.ok(larger > token, "tokens only grow, whatever was lost");
    for (const node of lost) await cluster.rebuild(node.slot);
    await cell.untilReady(WHOLE_MS);
    await context.until("nothing of the lost members runs", async () => (await cell.pods()).length === 3, {
      timeoutMs: 120_000,
    });
    await cell.checkAtRest();
  },
};
