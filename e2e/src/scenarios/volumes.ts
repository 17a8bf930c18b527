// What happens to volumes: one is wiped, one is full, all are grown.
import assert from "node:assert/strict";
import { Cell, conditionOf, installOperator, isTrue } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { LoadClient } from "../load-client.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import {
  chooseVictim,
  hasMember,
  killMember,
  LOSS_AND_REPLACEMENT_MS,
  membersOf,
  secondsSince,
  startSparedLoad,
  untilTold,
} from "./steps.ts";

const GROWN = "1Gi";
const BACK_MS = 180_000;

interface Parts {
  readonly context: ScenarioContext;
  readonly cell: Cell;
  readonly load: LoadClient;
}

/** A member that has forgotten what it voted for must not vote under its old id. */
async function wiped({ context, cell, load }: Parts): Promise<void> {
  const { cluster, namespace } = context;
  const { name, id } = await chooseVictim(context, cell, "follower");
  await load.mark("volume wiped");
  const started = performance.now();
  await cluster.volumes.wipe(namespace, name);
  await killMember(context, await cell.get(), name);
  await cell.until(`${name} is not ready`, (object) =>
    membersOf(object).some((member) => member.name === name && !member.ready),
  );
  await cell.until(
    `${name} is replaced`,
    (object) => {
      const back = membersOf(object).find((member) => member.id === id && member.ready);
      assert.equal(back, undefined, "nobody comes back with its id");
      return !hasMember(object, name);
    },
    LOSS_AND_REPLACEMENT_MS,
  );
  await cell.untilReady(LOSS_AND_REPLACEMENT_MS);
  context.say(
    `${name}, whose volume was wiped, replaced ${secondsSince(started)} after (a loss counts after 1 min)`,
  );
  await context.kubectl(["wait", "--for=delete", `cellmember/${name}`, "--timeout=60s"]);
  await cell.checkAtRest();
  context.say(describePhase(await load.report()));
}

async function full({ context, cell, load }: Parts): Promise<void> {
  const { cluster, namespace } = context;
  const { name } = await chooseVictim(context, cell, "follower");
  await load.mark("volume full");
  await cluster.volumes.fill(namespace, name);
  context.finally(() => cluster.volumes.free(namespace, name));
  const told = await untilTold(
    context,
    cell,
    new RegExp(`${name}.*(full|no-space)|VoterUnhealthy.*${name}`),
    90_000,
  );
  assert.match(JSON.stringify(conditionOf(await cell.get(), "Degraded")), new RegExp(name), told.message);
  context.say(describePhase(await load.report()));
  await load.mark("volumes grown");
  const started = performance.now();
  await cell.patch({ storage: { size: GROWN } });
  await claimsAre(context, GROWN);
  context.say(`every claim has ${GROWN} ${secondsSince(started)} after spec.storage.size`);
  const after = await cell.untilReady(BACK_MS);
  assert.ok(!isTrue(after, "Degraded"));
  assert.ok(hasMember(after, name), `${name} went on with its volume`);
  context.say(`${name} goes on ${secondsSince(started)} after`);
  await cell.checkAtRest();
  context.say(describePhase(await load.report()));
}

async function claimsAre(context: ScenarioContext, size: string): Promise<void> {
  interface Claim {
    readonly metadata: { readonly name: string };
    readonly status?: { readonly capacity?: { readonly storage?: string } };
  }
  await context.until(
    `every member's claim has ${size}`,
    async () => {
      const members = (await context.kubectl(["get", "cellmembers", "--output=name"])).trim().split("\n");
      const { items } = await context.kubectlJson<{ readonly items: readonly Claim[] }>(["get", "pvc"]);
      return members.every((member) =>
        items.some(
          ({ metadata, status }) =>
            member.endsWith(`/${metadata.name}`) && status?.capacity?.storage === size,
        ),
      );
    },
    { timeoutMs: BACK_MS, everyMs: 500 },
  );
}

export const volumes: Scenario = {
  name: "volumes",
  about: "a wiped volume, a full one, and the growth of all",
  ci: false,
  minutes: 15,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const parts = { context, cell, load: await startSparedLoad(context, cell) };
    await wiped(parts);
    await full(parts);
    await parts.load.verify();
  },
};
