// An operator that was frozen past its Lease wakes up in the middle of a change that another one goes on with: it
// writes nothing any more.
import assert from "node:assert/strict";
import { Cell, installOperator, leadingOperator, OPERATOR_NAMESPACE } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { hasMember, membersOf, namesIn, secondsSince } from "./steps.ts";

const CHANGE_MS = 240_000;

interface OperatorPod {
  readonly status?: { readonly containerStatuses?: readonly { readonly restartCount: number }[] };
}

async function restartsOf({ cluster }: ScenarioContext, pod: string): Promise<number> {
  const { status } = await cluster.kubectlJson<OperatorPod>([
    ...["get", "pod", pod, "--namespace", OPERATOR_NAMESPACE],
  ]);
  return status?.containerStatuses?.[0]?.restartCount ?? 0;
}

/** Freezes the operator that leads until another one does, and thaws it while that one works. */
async function freezeLeader(context: ScenarioContext): Promise<void> {
  const { cluster } = context;
  const frozen = await leadingOperator(context);
  const restarts = await restartsOf(context, frozen.pod);
  const node = cluster.nodeNamed(frozen.node);
  const started = performance.now();
  await node.signalPod(OPERATOR_NAMESPACE, frozen.pod, { container: "operator", signal: "SIGSTOP" });
  const next = await context.until(
    "another operator leads",
    async () => {
      const leader = await leadingOperator(context);
      return leader.pod === frozen.pod ? undefined : leader;
    },
    { timeoutMs: 60_000, everyMs: 200 },
  );
  context.say(`${next.pod} leads ${secondsSince(started)} after ${frozen.pod} was frozen`);
  await node.signalPod(OPERATOR_NAMESPACE, frozen.pod, { container: "operator", signal: "SIGCONT" });
  await context.until(
    "the thawed operator has ended by itself",
    async () => (await restartsOf(context, frozen.pod)) > restarts,
    { timeoutMs: 60_000, everyMs: 500 },
  );
  const log = await cluster.kubectl(["logs", frozen.pod, "--previous", "--namespace", OPERATOR_NAMESPACE]);
  assert.match(log, /the lease is lost/);
  assert.equal((await leadingOperator(context)).pod, next.pod, "the other one still leads");
}

export const twoOperators: Scenario = {
  name: "two-operators",
  about: "the leading operator is frozen past its Lease in the middle of a replacement, and thawed",
  ci: false,
  minutes: 10,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const load = await startLoad(context, { cell: cell.name });
    const before = await cell.get();
    const old = before.status?.leader ?? "";
    await load.mark("frozen operator");
    await context.apply({
      apiVersion: "lockstep.dev/v1alpha1",
      kind: "CellOperation",
      metadata: { name: "once" },
      spec: { cell: cell.name, action: "Replace", member: old },
    });
    const begun = await cell.until(
      "the replacement is under way",
      ({ status }) => status?.operation?.kind === "Replace" && status.members?.length === 4,
    );
    const { id } = begun.status?.operation ?? {};
    await freezeLeader(context);
    const after = await cell.until(
      `${old} is replaced`,
      (object) => {
        assert.ok(membersOf(object).length <= 4, "never two newcomers");
        return object.status?.lastOperation?.id === id && !hasMember(object, old);
      },
      CHANGE_MS,
    );
    assert.match(after.status?.lastOperation?.result ?? "", /^Succeeded/);
    await cell.untilReady();
    const ids = (object: typeof after): readonly number[] =>
      membersOf(object).map((member) => member.id ?? 0);
    assert.equal(Math.max(...ids(await cell.get())), Math.max(...ids(before)) + 1, "one newcomer, one id");
    await context.until(
      "three CellMembers are left",
      async () => (await namesIn(context, "cellmembers")).length === 3,
    );
    await cell.checkAtRest();
    context.say(describePhase(await load.report()));
    await load.verify();
  },
};
