// A voter's node is cut off: for less than a loss takes nothing happens; for longer it is replaced, and the old one is
// nobody when it comes back.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { Cell, installOperator } from "../lockstep.ts";
import type { CellObject } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { LoadClient } from "../load-client.ts";
import type { ClusterNode } from "../node.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import {
  chooseVictim,
  hasMember,
  LOSS_AND_REPLACEMENT_MS,
  namesOf,
  secondsSince,
  startSparedLoad,
} from "./steps.ts";

/** Less than LOSS_AFTER by far, and more than Kubernetes needs to hold the node for NotReady. */
const SHORT_MS = 35_000;
const BACK_MS = 120_000;

interface Parts {
  readonly context: ScenarioContext;
  readonly cell: Cell;
  readonly load: LoadClient;
}

async function cutOff({ context, cell }: Parts, role: "leader" | "follower"): Promise<[string, ClusterNode]> {
  const victim = await chooseVictim(context, cell, role);
  const node = context.cluster.nodeNamed(victim.node ?? "");
  await node.partition();
  context.finally(() => healed(node));
  return [victim.name, node];
}

async function healed(node: ClusterNode): Promise<void> {
  if (node.condition === "partitioned") await node.heal();
}

async function shortPartition(parts: Parts, role: "leader" | "follower"): Promise<void> {
  const { context, cell, load } = parts;
  const names = namesOf(await cell.get());
  await load.mark(`${role} cut off for a while`);
  const [victim, node] = await cutOff(parts, role);
  const started = performance.now();
  await cell.until(
    `nothing is done about ${victim}`,
    (object) => {
      assert.equal(object.status?.operation, undefined, "a loss that does not count yet begins nothing");
      return performance.now() - started > SHORT_MS;
    },
    SHORT_MS * 2,
  );
  await node.heal();
  const healing = performance.now();
  const after = await cell.untilReady(BACK_MS);
  assert.deepEqual(namesOf(after), names);
  context.say(
    `${victim} (${role}) cut off for ${String(SHORT_MS / 1000)} s; whole ${secondsSince(healing)} after`,
  );
  await cell.checkAtRest();
  context.say(describePhase(await load.report()));
}

/** Comes back as soon as its replacement begins: the learner is dropped, unless the change was made before. */
async function backInTime(parts: Parts): Promise<void> {
  const { context, cell, load } = parts;
  await load.mark("back when a replacement has begun");
  const [victim, node] = await cutOff(parts, "follower");
  const begun = await cell.until(
    "a replacement has begun",
    ({ status }) => status?.operation?.kind === "Replace",
    LOSS_AND_REPLACEMENT_MS,
  );
  const { id = "" } = begun.status?.operation ?? {};
  await node.heal();
  const after = await cell.until(
    `the replacement ${id} has ended`,
    ({ status }) => status?.lastOperation?.id === id,
    LOSS_AND_REPLACEMENT_MS,
  );
  const { result = "" } = after.status?.lastOperation ?? {};
  context.say(`${victim} came back while its replacement had begun: ${result}`);
  const settled = await cell.untilReady(BACK_MS);
  const isCancelled = result.startsWith("Cancelled");
  assert.ok(isCancelled || result.startsWith("Succeeded"), result);
  assert.equal(hasMember(settled, victim), isCancelled, "either it stays, or it is gone: never both");
  await untilClean(parts, settled);
  await cell.checkAtRest();
  context.say(describePhase(await load.report()));
}

/** At most one automatic replacement an hour: the next scenario's part does not wait for it. */
async function forgetLastReplacement({ context, cell }: Parts): Promise<void> {
  const patch = { status: { lastAutomaticReplacement: null } };
  await context.kubectl([
    ...["patch", "coordinationcell", cell.name, "--subresource=status", "--type=merge"],
    ...["--patch", JSON.stringify(patch)],
  ]);
}

/** No CellMember is left that is no member: a learner that was dropped, or the voter that was replaced. */
async function untilClean({ context, cell }: Parts, object: CellObject): Promise<void> {
  await context.until(
    `${cell.name} has no CellMember and no pod too many`,
    async () => {
      const [members, pods] = [
        await context.kubectl(["get", "cellmembers", "--output=name"]),
        await cell.pods(),
      ];
      return (
        members.trim().split("\n").length === namesOf(object).length && pods.length === namesOf(object).length
      );
    },
    { timeoutMs: BACK_MS },
  );
}

async function lostAndReplaced(parts: Parts): Promise<void> {
  const { context, cell, load } = parts;
  await load.mark("leader cut off for good");
  const [victim, node] = await cutOff(parts, "leader");
  const started = performance.now();
  await cell.until(`${victim} is replaced`, (object) => !hasMember(object, victim), LOSS_AND_REPLACEMENT_MS);
  await cell.until("three ready voters", ({ status }) => status?.readyVoters === 3, LOSS_AND_REPLACEMENT_MS);
  context.say(
    `${victim}, cut off for good, replaced ${secondsSince(started)} after (a loss counts after 1 min)`,
  );
  context.say(describePhase(await load.report()));
  await load.mark("the old one is back");
  const names = namesOf(await cell.get());
  await node.heal();
  await untilClean(parts, await cell.get());
  // Long enough for an election that the old one could have forced.
  await delay(10_000);
  const settled = await cell.untilReady(BACK_MS);
  assert.deepEqual(namesOf(settled), names, `${victim} is nobody any more`);
  await cell.checkAtRest();
  const report = await load.report();
  context.say(describePhase(report));
}

export const partition: Scenario = {
  name: "partition",
  about: "a voter's node is cut off: shortly, until its replacement begins, and until it is replaced",
  ci: false,
  minutes: 18,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const parts = { context, cell, load: await startSparedLoad(context, cell) };
    await shortPartition(parts, "follower");
    await shortPartition(parts, "leader");
    await backInTime(parts);
    await forgetLastReplacement(parts);
    await lostAndReplaced(parts);
    await parts.load.verify();
  },
};
