import type { PersistentVolumeClaim, Pod } from "../api/core.ts";
import { mergeConditions } from "../api/conditions.ts";
import {
  CELL_MEMBER,
  CELL_OPERATION,
  COORDINATION_CELL,
  PERSISTENT_VOLUME_CLAIM,
  POD,
} from "../api/kinds.ts";
import { identityOf, LABEL } from "../api/labels.ts";
import { CELL_FINALIZER, claimName, MEMBER_FINALIZER, podName } from "../api/names.ts";
import { API_VERSION } from "../api/types.ts";
import type { CellMember, CellOperation, CellOperationObjectStatus, CoordinationCell } from "../api/types.ts";
import type { CellAdmin, MemberTarget } from "../cell/types.ts";
import type { KubeClient, KubeObject, ObjectRef, ResourceKind } from "../kube/types.ts";
import type { Action, PodMode, PodRole } from "../plan/types.ts";
import { belongingOf, disown, isOwned } from "./belonging.ts";
import type { CellObjects } from "./reader.ts";
import { releaseShared } from "./release.ts";

/** An object with its kind. */
export interface Built<T extends KubeObject = KubeObject> {
  readonly kind: ResourceKind<T>;
  readonly object: T;
}

/** Makes the objects that actions need: pure. */
export interface Builders {
  shared(
    cell: CoordinationCell,
    wanted: { readonly disruptionMinAvailable: number; readonly admitted: boolean },
  ): readonly Built[];
  member(cell: CoordinationCell, action: Extract<Action, { kind: "create-member" }>): CellMember;
  claim(cell: CoordinationCell, member: CellMember): PersistentVolumeClaim;
  pod(
    cell: CoordinationCell,
    member: CellMember,
    wanted: {
      readonly mode: PodMode;
      readonly role: PodRole;
      /** Nodes that the pod keeps clear of: hosts of the other members. */
      readonly avoid: readonly string[];
    },
  ): Pod;
}

export interface ActParts {
  readonly kube: KubeClient;
  readonly admin: CellAdmin;
  readonly builders: Builders;
  readonly advanceCertificates: () => Promise<void>;
  /** Takes away the certificates that belong to the cell and to no member of it. */
  readonly releaseCertificates: () => Promise<void>;
  readonly wallMs: () => number;
}

/** What the action is done on: the observation that the plan was made from. */
export interface Target {
  readonly cell: CoordinationCell;
  readonly objects: CellObjects;
  /** Where changes of the cell are asked for. */
  readonly leaderTarget: MemberTarget | undefined;
  /** Nodes by member: where its pod runs, or its volume is tied to. */
  readonly hosts: ReadonlyMap<string, string>;
}

/** An action that cannot be done as planned because what it is about is not there any more: plan anew. */
export class OutdatedPlan extends Error {
  override readonly name = "OutdatedPlan";
}

/** An object of a name that the cell needs is somebody else's: it is not taken over. */
export class NameTaken extends Error {
  override readonly name = "NameTaken";
}

/** Does one action. Each names the incarnation that it is about, so that doing it late or twice does no harm. */
export async function act(parts: ActParts, target: Target, action: Action): Promise<void> {
  const { kube } = parts;
  const { cell } = target;
  switch (action.kind) {
    case "apply-shared":
      return applyShared(parts, target, action);
    case "advance-certificates":
      return parts.advanceCertificates();
    case "create-member":
      await kube.create(CELL_MEMBER, parts.builders.member(cell, action));
      return;
    case "create-claim":
      await kube.create(PERSISTENT_VOLUME_CLAIM, parts.builders.claim(cell, memberOf(target, action.member)));
      return;
    case "grow-claim":
      await growClaim(kube, cell, action);
      return;
    case "create-pod":
      await createPod(parts, target, action);
      return;
    case "delete-pod":
      return kube.delete(POD, refOf(cell, podName(action.member)), { uid: action.uid });
    case "label-pod":
      await labelPod(kube, target, action);
      return;
    case "delete-member":
      return kube.delete(CELL_MEMBER, refOf(cell, action.member), { uid: action.uid });
    case "release-member":
      return releaseMember(kube, target, action);
    case "finish-request":
      await finishRequest(parts, target, action);
      return;
    case "release-cell":
      // The finalizer comes off last: a crash in between is made good by the next pass.
      await releaseShared(kube, cell);
      await parts.releaseCertificates();
      await removeFinalizer(kube, COORDINATION_CELL, cell, CELL_FINALIZER);
      return;
    case "change-membership":
    case "transfer-leadership":
    case "raise-format":
      return changeCell(parts.admin, target, action);
  }
}

type Of<K extends Action["kind"]> = Extract<Action, { readonly kind: K }>;

async function changeCell(
  admin: CellAdmin,
  { leaderTarget }: Target,
  action: Of<"change-membership" | "transfer-leadership" | "raise-format">,
): Promise<void> {
  if (leaderTarget === undefined) throw new OutdatedPlan("There is no leader to ask any more.");
  switch (action.kind) {
    case "change-membership":
      return admin.changeMembership(leaderTarget, action.change);
    case "transfer-leadership":
      await admin.transferLeadership(leaderTarget, action.to);
      return;
    case "raise-format":
      return admin.raiseFormatVersion(leaderTarget, action.version, action.plannedOn);
  }
}

/** Earlier versions hung members and shared objects on the cell: the garbage collector must not find them there. */
async function applyShared(
  { kube, builders, wallMs }: ActParts,
  { cell, objects }: Target,
  action: Of<"apply-shared">,
): Promise<void> {
  const { uid } = identityOf(cell);
  for (const member of objects.members) {
    if (isOwned(member, uid)) await disown(kube, CELL_MEMBER, member, uid);
  }
  for (const { kind, object } of builders.shared(cell, action)) {
    const found = await kube.get(kind, refOf(cell, object.metadata.name));
    const belonging = found === undefined ? undefined : belongingOf(found, cell, wallMs());
    if (belonging?.kind === "going") throw new OutdatedPlan(belonging.message);
    if (belonging?.kind === "taken") throw new NameTaken(belonging.message);
    if (found !== undefined) await disown(kube, kind, found, uid);
    await kube.apply(kind, object);
  }
}

function refOf(cell: CoordinationCell, name: string): ObjectRef {
  return { namespace: identityOf(cell).namespace, name };
}

function memberOf({ objects }: Target, name: string): CellMember {
  const member = objects.members.find((candidate) => candidate.metadata.name === name);
  if (member === undefined) throw new OutdatedPlan(`There is no CellMember ${name} any more.`);
  return member;
}

async function createPod(parts: ActParts, target: Target, action: Of<"create-pod">): Promise<void> {
  const member = memberOf(target, action.member);
  const { mode, role } = action;
  const pod = parts.builders.pod(target.cell, member, { mode, role, avoid: hostsToAvoid(target, member) });
  await parts.kube.create(POD, pod);
}

/**
 * Hosts of the other members, but for the one that is to be replaced and the one that replaces it: the surge may share
 * the host of the other, and either pod may have to be made anew there. A required pod anti-affinity would forbid that.
 */
function hostsToAvoid({ hosts, objects }: Target, member: CellMember): readonly string[] {
  const { name: own } = member.metadata;
  const successors = objects.members.filter(({ spec }) => spec.replaces === own);
  const spared = new Set([own, member.spec.replaces, ...successors.map(({ metadata }) => metadata.name)]);
  const others = [...hosts].filter(([name]) => !spared.has(name));
  return [...new Set(others.map(([, host]) => host))].sort();
}

async function growClaim(kube: KubeClient, cell: CoordinationCell, action: Of<"grow-claim">): Promise<void> {
  await kube.mergePatch(PERSISTENT_VOLUME_CLAIM, refOf(cell, claimName(action.member)), {
    spec: { resources: { requests: { storage: action.size } } },
  });
}

async function labelPod(kube: KubeClient, target: Target, action: Of<"label-pod">): Promise<void> {
  const name = podName(action.member);
  const pod = target.objects.pods.find(({ metadata }) => metadata.name === name);
  if (pod?.metadata.uid !== action.uid) throw new OutdatedPlan(`The pod ${name} is another one by now.`);
  await kube.mergePatch(
    POD,
    refOf(target.cell, name),
    { metadata: { labels: { [LABEL.role]: action.role } } },
    pod.metadata.resourceVersion === undefined ? {} : { resourceVersion: pod.metadata.resourceVersion },
  );
}

/**
 * The pod goes first: a member that is in no configuration must not keep its volume busy. The claim goes, or is parted
 * from its member: one that was made under reclaimPolicy Delete would go with it, and the policy may be another by now.
 * The finalizer comes off last, so that a crash in between is made good by the next pass.
 */
async function releaseMember(kube: KubeClient, target: Target, action: Of<"release-member">): Promise<void> {
  const { cell, objects } = target;
  const member = memberOf(target, action.member);
  if (member.metadata.uid !== action.uid) throw new OutdatedPlan(`${action.member} is another one by now.`);
  const pod = objects.pods.find(({ metadata }) => metadata.name === podName(action.member));
  if (pod?.metadata.uid !== undefined) {
    await kube.delete(POD, refOf(cell, pod.metadata.name), { uid: pod.metadata.uid });
  }
  const claim = objects.claims.find(({ metadata }) => metadata.name === claimName(action.member));
  if (action.deleteClaim && claim?.metadata.uid !== undefined) {
    await kube.delete(PERSISTENT_VOLUME_CLAIM, refOf(cell, claim.metadata.name), { uid: claim.metadata.uid });
  }
  if (!action.deleteClaim && claim !== undefined) {
    await disown(kube, PERSISTENT_VOLUME_CLAIM, claim, action.uid);
  }
  await removeFinalizer(kube, CELL_MEMBER, member, MEMBER_FINALIZER);
}

export async function removeFinalizer<T extends KubeObject>(
  kube: KubeClient,
  kind: ResourceKind<T>,
  object: T,
  finalizer: string,
): Promise<void> {
  const { name, namespace, finalizers = [], resourceVersion } = object.metadata;
  if (!finalizers.includes(finalizer)) return;
  await kube.mergePatch(
    kind,
    namespace === undefined ? { name } : { namespace, name },
    { metadata: { finalizers: finalizers.filter((other) => other !== finalizer) } },
    // Somebody else's finalizer, added meanwhile, must not be lost.
    resourceVersion === undefined ? {} : { resourceVersion },
  );
}

/** Before anything is made for a cell: what is made must be taken away in order. */
export async function addFinalizer<T extends KubeObject>(
  kube: KubeClient,
  kind: ResourceKind<T>,
  object: T,
  finalizer: string,
): Promise<T> {
  const { name, namespace, finalizers = [], resourceVersion } = object.metadata;
  return kube.mergePatch(
    kind,
    namespace === undefined ? { name } : { namespace, name },
    { metadata: { finalizers: [...finalizers, finalizer] } },
    resourceVersion === undefined ? {} : { resourceVersion },
  );
}

async function finishRequest(parts: ActParts, target: Target, action: Of<"finish-request">): Promise<void> {
  const request = target.objects.requests.find(({ metadata }) => metadata.name === action.name);
  if (request === undefined) throw new OutdatedPlan(`There is no CellOperation ${action.name} any more.`);
  const now = new Date(parts.wallMs()).toISOString();
  const { metadata } = request;
  const statusOnly: Omit<CellOperation, "spec"> = {
    apiVersion: API_VERSION,
    kind: CELL_OPERATION.kind,
    metadata: {
      name: metadata.name,
      ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }),
      ...(metadata.resourceVersion === undefined ? {} : { resourceVersion: metadata.resourceVersion }),
    },
    status: requestStatus(request, action, now),
  };
  await parts.kube.applyStatus(CELL_OPERATION, statusOnly as CellOperation);
}

/** kstatus: Ready when it succeeded, Reconciling while it waits or runs, Stalled when it failed. */
export function requestStatus(
  request: CellOperation,
  { phase, message }: Pick<Of<"finish-request">, "phase" | "message">,
  now: string,
): CellOperationObjectStatus {
  const ended = phase === "Succeeded" || phase === "Failed";
  const startedAt = request.status?.startedAt ?? now;
  const condition = (type: string, holds: boolean): Parameters<typeof mergeConditions>[1][number] => ({
    type,
    status: holds ? "True" : "False",
    reason: phase,
    message,
  });
  const { generation } = request.metadata;
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    phase,
    message,
    startedAt,
    ...(ended ? { finishedAt: now } : {}),
    conditions: mergeConditions(
      request.status?.conditions,
      [
        condition("Ready", phase === "Succeeded"),
        condition("Reconciling", !ended),
        condition("Stalled", phase === "Failed"),
      ],
      now,
    ),
  };
}
