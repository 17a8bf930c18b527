import { CELL_MEMBER, COORDINATION_CELL } from "../api/kinds.ts";
import { identityOf, isMemberOf, LABEL, selectorText } from "../api/labels.ts";
import { CELL_FINALIZER } from "../api/names.ts";
import { API_VERSION } from "../api/types.ts";
import type { CellMember, CellMemberStatus, CoordinationCell, CoordinationCellStatus } from "../api/types.ts";
import { CellAdminError } from "../cell/types.ts";
import type { CellConfiguration } from "../cell/types.ts";
import { KubeError } from "../kube/types.ts";
import type { KubeClient, ObjectRef } from "../kube/types.ts";
import { same } from "../api/same.ts";
import { plan } from "../plan/plan.ts";
import { nameOfAction } from "../plan/types.ts";
import type { Action, Decision, Observation, PlannedEvent } from "../plan/types.ts";
import { act, addFinalizer, NameTaken, OutdatedPlan } from "./act.ts";
import type { ActParts } from "./act.ts";
import { sweepLeftovers } from "./leftovers.ts";
import { observe } from "./observe.ts";
import type { Observed, ObserveParts } from "./observe.ts";
import type { CellReader } from "./reader.ts";
import type { RollBudget } from "./roll-budget.ts";

/** What passes over cells share. */
export interface CellPassParts {
  readonly kube: KubeClient;
  /** From memory: to learn whether there is something to do. */
  readonly cached: CellReader;
  /** From the apiserver: what is done is decided on this. */
  readonly live: CellReader;
  readonly cells: { get(ref: ObjectRef): CoordinationCell | undefined };
  readonly rolls: RollBudget;
  /** What the apiserver refused last, by NAMESPACE/NAME of the cell: told in its status until it is done. */
  readonly refusals: Map<string, NonNullable<Observation["refused"]>>;
  /** The configuration of the last look, by NAMESPACE/NAME of the cell: a quiet cell is not asked for it again and again. */
  readonly configurations: Map<string, CellConfiguration>;
  readonly observeParts: (cell: CoordinationCell) => Promise<ObserveParts>;
  readonly actParts: (cell: CoordinationCell) => Promise<ActParts>;
  readonly tell: (cell: CoordinationCell, event: PlannedEvent) => void;
  readonly log: (message: string, fields: Readonly<Record<string, unknown>>) => void;
  /** Whether something is seen that another cell of the name left. @param uid of the cell; undefined: it is gone */
  readonly hasLeftovers: (ref: ObjectRef, uid: string | undefined) => boolean;
  /** The cell is gone: forget connections and credentials. */
  readonly forget: (ref: ObjectRef) => void;
}

export interface PassResult {
  /** Undefined: only when something changes. */
  readonly lookAgainMs: number | undefined;
}

/** A plan that another writer overtook is made anew at once, but not in a tight loop. */
const AGAIN_MS = 200;

/**
 * One pass over one cell: observe, plan, write the status, do one action. The first look is from memory; if there is
 * something to do, or to say, a second look at the apiserver itself decides what. So a late cache can delay, and can
 * never make something twice or end what it should not.
 */
export async function reconcileCell(parts: CellPassParts, ref: ObjectRef): Promise<PassResult> {
  const cached = parts.cells.get(ref);
  if (cached === undefined) {
    parts.rolls.note(keyOf(ref), false);
    parts.refusals.delete(keyOf(ref));
    parts.configurations.delete(keyOf(ref));
    parts.forget(ref);
    if (parts.hasLeftovers(ref, undefined)) await sweepLeftovers(parts.kube, ref);
    return { lookAgainMs: undefined };
  }
  if (parts.hasLeftovers(ref, cached.metadata.uid)) await sweepBeside(parts, ref);
  parts.rolls.note(keyOf(ref), cached.status?.operation?.kind === "Roll");
  const first = await look(parts, cached, parts.cached, parts.configurations.get(keyOf(ref)));
  if (!hasWork(first.observed.observation, first.decision)) {
    return { lookAgainMs: first.decision.lookAgainMs };
  }
  const cell = await parts.kube.get(COORDINATION_CELL, ref);
  if (cell === undefined || cell.metadata.uid !== cached.metadata.uid) return { lookAgainMs: AGAIN_MS };
  const second = await look(parts, cell, parts.live);
  return finish(parts, second);
}

/** What an earlier cell left must not hold up this one. */
async function sweepBeside(parts: CellPassParts, ref: ObjectRef): Promise<void> {
  try {
    await sweepLeftovers(parts.kube, ref);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    parts.log("leftovers stay for now", { cell: keyOf(ref), reason: error.message });
  }
}

interface Look {
  readonly observed: Observed;
  readonly decision: Decision;
}

async function look(
  parts: CellPassParts,
  cell: CoordinationCell,
  reader: CellReader,
  known?: CellConfiguration,
): Promise<Look> {
  const observed = await observe(await parts.observeParts(cell), cell, reader, known);
  const key = keyOf(identityOf(cell));
  const refused = parts.refusals.get(key);
  const { observation } = observed;
  const { configuration } = observation;
  if (configuration === undefined) parts.configurations.delete(key);
  else parts.configurations.set(key, configuration);
  return { observed, decision: plan(refused === undefined ? observation : { ...observation, refused }) };
}

function hasWork(observation: Observation, decision: Decision): boolean {
  const { cell } = observation;
  return (
    decision.action !== undefined ||
    needsFinalizer(cell) ||
    !sameStatus(cell.status, decision.status) ||
    observation.members.some(({ object }) => object !== undefined && memberStatusChanges(decision, object))
  );
}

function needsFinalizer(cell: CoordinationCell): boolean {
  const { deletionTimestamp, finalizers = [] } = cell.metadata;
  return deletionTimestamp === undefined && !finalizers.includes(CELL_FINALIZER);
}

async function finish(parts: CellPassParts, { observed, decision }: Look): Promise<PassResult> {
  const { cell } = observed.observation;
  const { kube } = parts;
  try {
    if (needsFinalizer(cell)) {
      await addFinalizer(kube, COORDINATION_CELL, cell, CELL_FINALIZER);
      return { lookAgainMs: 0 };
    }
    const begins = decision.status.operation?.kind === "Roll" && cell.status?.operation?.kind !== "Roll";
    // Another worker may have taken the last place since this pass looked.
    if (begins && !parts.rolls.take(keyOf(identityOf(cell)))) return { lookAgainMs: AGAIN_MS };
    await writeStatus(kube, cell, decision);
    for (const event of decision.events) parts.tell(cell, event);
    await writeMemberStatuses(kube, observed, decision);
    if (decision.action === undefined) return { lookAgainMs: decision.lookAgainMs };
    parts.log("acting", { cell: keyOf(identityOf(cell)), action: decision.action });
    const { objects, answers } = observed;
    await act(
      await parts.actParts(cell),
      { cell, objects, leaderTarget: answers.leaderTarget, hosts: hostsOf(observed.observation) },
      decision.action,
    );
    parts.refusals.delete(keyOf(identityOf(cell)));
    return { lookAgainMs: Math.min(decision.lookAgainMs ?? AGAIN_MS, AGAIN_MS) };
  } catch (error) {
    if (decision.action !== undefined) noteRefusal(parts, cell, decision.action, error);
    return { lookAgainMs: again(parts, cell, error) };
  }
}

/** Nodes by member: where its pod runs, or its volume is tied to. */
export function hostsOf({ members }: Observation): ReadonlyMap<string, string> {
  const hosts = new Map<string, string>();
  for (const { name, pod, node } of members) {
    const host = pod?.node ?? (node === "gone" ? undefined : node?.name);
    if (host !== undefined) hosts.set(name, host);
  }
  return hosts;
}

/** A quota that is used up, a policy, a name that is taken: only a person can help, and must hear of it. */
function noteRefusal(parts: CellPassParts, cell: CoordinationCell, action: Action, error: unknown): void {
  const isRefused =
    error instanceof NameTaken ||
    (error instanceof KubeError && (error.reason === "forbidden" || error.reason === "invalid"));
  if (!isRefused) return;
  const message = error.message.slice(0, REFUSAL_LENGTH_MAX);
  parts.refusals.set(keyOf(identityOf(cell)), { action: nameOfAction(action), message });
}

const REFUSAL_LENGTH_MAX = 2_000;

/** What another look cures by itself is no failure; anything else is thrown, and the queue backs off. */
function again(parts: CellPassParts, cell: CoordinationCell, error: unknown): number {
  const isOvertaken =
    error instanceof OutdatedPlan ||
    (error instanceof KubeError && (error.reason === "conflict" || error.reason === "already-exists"));
  const isRefusal = error instanceof CellAdminError;
  if (!isOvertaken && !isRefusal) throw error;
  parts.log("plan anew", { cell: keyOf(identityOf(cell)), reason: error.message });
  return isRefusal ? CELL_REFUSED_MS : AGAIN_MS;
}

/** A cell that refused or did not answer says the same a moment later. */
const CELL_REFUSED_MS = 1_000;

/**
 * Written with the resourceVersion that was read: whoever decided on older facts is refused, and does nothing. When the
 * status says the same but an action follows, it is written all the same, for that refusal.
 */
async function writeStatus(kube: KubeClient, cell: CoordinationCell, decision: Decision): Promise<void> {
  if (decision.action === undefined && sameStatus(cell.status, decision.status)) return;
  const { name, namespace, resourceVersion } = cell.metadata;
  const object = {
    apiVersion: API_VERSION,
    kind: COORDINATION_CELL.kind,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    },
    status: decision.status,
  };
  await kube.applyStatus(COORDINATION_CELL, object as unknown as CoordinationCell);
}

/** Members mirror what the cell's status says of them, for people who look at one and for `kubectl wait`. */
async function writeMemberStatuses(kube: KubeClient, observed: Observed, decision: Decision): Promise<void> {
  const identity = identityOf(observed.observation.cell);
  for (const member of observed.objects.members) {
    if (!isMemberOf(member, identity) || !memberStatusChanges(decision, member)) continue;
    const status = memberStatus(decision, member);
    const { name, namespace } = member.metadata;
    const object = {
      apiVersion: API_VERSION,
      kind: CELL_MEMBER.kind,
      metadata: { name, ...(namespace === undefined ? {} : { namespace }) },
      status,
    };
    await kube.applyStatus(CELL_MEMBER, object as unknown as CellMember);
  }
}

function memberStatus(decision: Decision, member: CellMember): CellMemberStatus {
  const summary = decision.status.members?.find(({ name }) => name === member.metadata.name);
  if (summary === undefined) return member.status ?? {};
  const { generation } = member.metadata;
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    ...(summary.id === undefined ? {} : { memberId: summary.id }),
    // What it once was part of is never forgotten: such a volume founds no cell again.
    ...cellIdOf(decision, member, summary.id),
    role: summary.role,
    ...(summary.zone === undefined ? {} : { zone: summary.zone }),
    ...(summary.node === undefined ? {} : { node: summary.node }),
    ready: summary.ready,
    // For the scale subresource, through which PodDisruptionBudgets count the pods of an owner.
    replicas: 1,
    selector: selectorText({
      [LABEL.cellUid]: member.spec.cellUid,
      [LABEL.component]: "member",
      [LABEL.member]: member.metadata.name,
    }),
    ...(summary.message === undefined ? {} : { message: summary.message }),
  };
}

function cellIdOf(
  decision: Decision,
  member: CellMember,
  id: number | undefined,
): Pick<CellMemberStatus, "cellId"> {
  const cellId = id === undefined ? member.status?.cellId : (decision.status.cellId ?? member.status?.cellId);
  return cellId === undefined ? {} : { cellId };
}

function memberStatusChanges(decision: Decision, member: CellMember): boolean {
  return !same(member.status ?? {}, memberStatus(decision, member));
}

function sameStatus(a: CoordinationCellStatus | undefined, b: CoordinationCellStatus): boolean {
  return same(a ?? {}, b);
}

function keyOf({ namespace, name }: ObjectRef): string {
  return `${namespace ?? ""}/${name}`;
}
