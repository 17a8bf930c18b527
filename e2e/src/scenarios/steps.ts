// Steps that several scenarios take.
import assert from "node:assert/strict";
import { OPERATOR_NAMESPACE } from "../lockstep.ts";
import type { Cell, CellMember, CellObject, CellPod, Condition } from "../lockstep.ts";
import { startLoad } from "../load-client.ts";
import type { LoadClient, LoadClientOptions } from "../load-client.ts";
import type { ClusterNode } from "../node.ts";
import type { ScenarioContext } from "../scenario.ts";

/** What is wrong must be told within this time. */
export const TOLD_MS = 30_000;
/** A loss that counts (see LOSS_AFTER), and a replacement after it. */
export const LOSS_AND_REPLACEMENT_MS = 300_000;

/** `12.3 s` since `started`, a value of `performance.now()`. */
export function secondsSince(started: number): string {
  return `${((performance.now() - started) / 1000).toFixed(1)} s`;
}

export function membersOf(object: CellObject): readonly CellMember[] {
  return object.status?.members ?? [];
}

export function namesOf(object: CellObject): readonly string[] {
  return membersOf(object)
    .map(({ name }) => name)
    .sort();
}

export function hasMember(object: CellObject, name: string): boolean {
  return membersOf(object).some((member) => member.name === name);
}

/** The member of this name. Throws when the cell has none. */
export function memberOf(object: CellObject, name: string): CellMember {
  const member = membersOf(object).find((one) => one.name === name);
  assert.ok(member !== undefined, `${name} is a member of ${object.metadata.name}`);
  return member;
}

/** Where a member runs. Throws when it is not placed. */
export function nodeOf({ cluster }: ScenarioContext, object: CellObject, name: string): ClusterNode {
  return cluster.nodeNamed(memberOf(object, name).node ?? "");
}

/** Members whose zone has a second node: when theirs is gone, another member fits into the same zone. */
export function replaceableMembers({ cluster }: ScenarioContext, object: CellObject): readonly CellMember[] {
  const nodesIn = (zone: string | undefined): number =>
    cluster.nodes.filter((node) => node.zone === zone).length;
  return membersOf(object).filter(({ zone }) => nodesIn(zone) > 1);
}

/**
 * A voter that a scenario may take the node of: its zone has another node, and it leads or does not, as wanted.
 * Leadership is moved if it has to be.
 */
export async function chooseVictim(
  context: ScenarioContext,
  cell: Cell,
  role: "leader" | "follower",
): Promise<CellMember> {
  const before = await cell.get();
  const candidates = replaceableMembers(context, before);
  const fitting = candidates.find(({ name }) => (name === before.status?.leader) === (role === "leader"));
  if (fitting !== undefined) return fitting;
  const [chosen] = candidates;
  assert.ok(chosen !== undefined, "some member's zone has two nodes");
  await cell.request({ action: "TransferLeadership", member: chosen.name });
  await cell.until(`${chosen.name} leads`, ({ status }) => status?.leader === chosen.name);
  return chosen;
}

/** A load on the node of a member that no scenario takes away: that of the zone with one node. */
export async function startSparedLoad(
  context: ScenarioContext,
  cell: Cell,
  options: Partial<LoadClientOptions> = {},
): Promise<LoadClient> {
  const object = await cell.get();
  const takeable = replaceableMembers(context, object).map(({ name }) => name);
  const spared = membersOf(object).find(({ name }) => !takeable.includes(name))?.node;
  return startLoad(context, {
    cell: cell.name,
    ...(spared === undefined ? {} : { nodeName: spared }),
    ...options,
  });
}

/** Ends a member's program at once, past Kubernetes. */
export async function killMember(context: ScenarioContext, object: CellObject, name: string): Promise<void> {
  await nodeOf(context, object, name).signalPod(context.namespace, name, { container: "member" });
}

/** Waits for a condition whose reason and message match, and prints it with the time that it took. */
export async function untilTold(
  context: ScenarioContext,
  cell: Cell,
  pattern: RegExp,
  timeoutMs: number = TOLD_MS,
): Promise<Condition> {
  const started = performance.now();
  const object = await cell.until(
    `a condition says ${String(pattern)}`,
    (one) => conditionThat(one, pattern) !== undefined,
    timeoutMs,
  );
  const told = conditionThat(object, pattern);
  assert.ok(told !== undefined);
  context.say(
    `${cell.name}: told after ${secondsSince(started)}: ${told.type} ${told.reason}: ${told.message}`,
  );
  return told;
}

function conditionThat(object: CellObject, pattern: RegExp): Condition | undefined {
  return object.status?.conditions?.find(({ reason, message }) => pattern.test(`${reason}: ${message}`));
}

/** How many operators the chart's Deployment runs, waited for. The scenario's end brings two back. */
export async function scaleOperator(context: ScenarioContext, replicas: number): Promise<void> {
  const { cluster, signal } = context;
  const inOperators = ["--namespace", OPERATOR_NAMESPACE];
  const scale = async (count: number): Promise<void> => {
    await cluster.kubectl(["scale", "deployment", "--all", `--replicas=${String(count)}`, ...inOperators]);
  };
  if (replicas < 2) context.finally(() => scale(2));
  await scale(replicas);
  await context.until(
    `${String(replicas)} operators run`,
    async () => {
      const { items } = await cluster.kubectlJson<{ readonly items: readonly CellPod[] }>(
        [...["get", "pods", "--selector=app.kubernetes.io/component=operator"], ...inOperators],
        { signal },
      );
      return items.length === replicas && items.every(isReadyPod);
    },
    { timeoutMs: 120_000, everyMs: 500 },
  );
}

function isReadyPod({ status }: CellPod): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
}

/** A cell's pods as they run: the same text means that no member was restarted or made anew. */
export async function runningPods(context: ScenarioContext, cell: Cell): Promise<readonly string[]> {
  interface Counted {
    readonly metadata: { readonly name: string; readonly uid: string };
    readonly status?: { readonly containerStatuses?: readonly { readonly restartCount: number }[] };
  }
  const selector = `--selector=lockstep.dev/cell=${cell.name},app.kubernetes.io/component=member`;
  const { items } = await context.kubectlJson<{ readonly items: readonly Counted[] }>([
    ...["get", "pods", selector],
  ]);
  return items
    .map(({ metadata, status }) => {
      const restarts = (status?.containerStatuses ?? []).map(({ restartCount }) => restartCount);
      return `${metadata.name} ${metadata.uid} ${restarts.join(",")}`;
    })
    .sort();
}

/** Names of what is there of a kind, in the scenario's namespace or in the named one. */
export async function namesIn(
  context: ScenarioContext,
  kind: string,
  options: { readonly namespace?: string; readonly selector?: string } = {},
): Promise<readonly string[]> {
  const { items } = await context.cluster.kubectlJson<{
    readonly items: readonly { readonly metadata: { readonly name: string } }[];
  }>(
    [
      ...["get", kind, "--namespace", options.namespace ?? context.namespace],
      ...(options.selector === undefined ? [] : [`--selector=${options.selector}`]),
    ],
    { signal: context.signal },
  );
  return items.map(({ metadata }) => metadata.name).sort();
}
