/**
 * What is left of cells that are gone: made by a write that arrived after the cell's end, or kept when somebody took the
 * cell's finalizer off. Nothing owns it, so nobody else would ever take it away.
 */
import type { PersistentVolumeClaim, Pod } from "../api/core.ts";
import { CELL_MEMBER, COORDINATION_CELL, PERSISTENT_VOLUME_CLAIM, POD, SECRET } from "../api/kinds.ts";
import { LABEL } from "../api/labels.ts";
import type { CellIdentity } from "../api/labels.ts";
import { claimName, clientSecretName, MEMBER_FINALIZER, podName } from "../api/names.ts";
import type { CellMember } from "../api/types.ts";
import type { KubeClient, KubeObject, ObjectRef } from "../kube/types.ts";
import type { Observation } from "../plan/types.ts";
import { removeFinalizer } from "./act.ts";
import { disown } from "./belonging.ts";
import type { FindShared } from "./builders.ts";
import type { Caches } from "./reader.ts";
import { deleteIf, sharedNames } from "./release.ts";

type MemberCaches = Pick<Caches, "members" | "pods" | "claims">;

/** CellMembers, as caches have them, of another cell of the name than that with `uid`. */
function leftMembers(
  { members }: Pick<Caches, "members">,
  { namespace, name }: ObjectRef,
  uid: string | undefined,
): readonly CellMember[] {
  return members
    .byLabel(LABEL.cell, name)
    .filter(({ metadata, spec }) => metadata.namespace === namespace && spec.cellUid !== uid);
}

/** Whether caches show something that {@link sweepLeftovers} would take away. @param uid of the cell; undefined: it is gone */
export function hasLeftovers(
  caches: MemberCaches,
  findShared: FindShared,
  ref: ObjectRef,
  uid: string | undefined,
): boolean {
  const members = leftMembers(caches, ref, uid);
  const isDue = ({ metadata }: CellMember): boolean =>
    metadata.deletionTimestamp !== undefined ||
    (caches.pods.get({ ...ref, name: podName(metadata.name) }) === undefined &&
      caches.claims.get({ ...ref, name: claimName(metadata.name) }) === undefined);
  if (uid !== undefined || members.length > 0) return members.some(isDue);
  return sharedNames(ref).some(({ kind, ref: its }) => isOfCell(findShared(kind, its), ref));
}

/** Members that an earlier cell left with their volumes: a cell is not founded beside them. */
export function obstacleOfLeftovers(
  caches: Pick<Caches, "members">,
  cell: CellIdentity,
): Observation["obstacles"] {
  const names = leftMembers(caches, cell, cell.uid).map(({ metadata }) => metadata.name);
  if (names.length === 0) return [];
  const message = `CellMembers of an earlier cell of this name are still there: ${names.join(", ")}. Delete them, and their Pods go too; their PersistentVolumeClaims stay.`;
  return [{ reason: "MembersLeft", message }];
}

/**
 * Decided on the apiserver alone. Lets go the members that are being deleted, deletes those that have neither Pod nor
 * volume, and, when there is no cell and no member any more, what a cell has once. Volumes stay, and members that still
 * have theirs stay until a person deletes them. Again, it does nothing.
 */
export async function sweepLeftovers(kube: KubeClient, ref: ObjectRef): Promise<void> {
  const cell = await kube.get(COORDINATION_CELL, ref);
  const ofName = {
    ...(ref.namespace === undefined ? {} : { namespace: ref.namespace }),
    labelSelector: `${LABEL.cell}=${ref.name}`,
  };
  const [members, pods, claims] = await Promise.all([
    kube.list(CELL_MEMBER, ofName),
    kube.list(POD, ofName),
    kube.list(PERSISTENT_VOLUME_CLAIM, ofName),
  ]);
  for (const member of members.filter(({ spec }) => spec.cellUid !== cell?.metadata.uid)) {
    const { name } = member.metadata;
    await sweepMember(kube, member, {
      pod: pods.find(({ metadata }) => metadata.name === podName(name)),
      claim: claims.find(({ metadata }) => metadata.name === claimName(name)),
    });
  }
  if (cell !== undefined || members.length > 0) return;
  const client = { kind: SECRET, ref: { ...ref, name: clientSecretName(ref.name) } };
  for (const named of [...sharedNames(ref), client])
    await deleteIf(kube, named, (found) => isOfCell(found, ref));
}

async function sweepMember(
  kube: KubeClient,
  member: CellMember,
  { pod, claim }: { readonly pod: Pod | undefined; readonly claim: PersistentVolumeClaim | undefined },
): Promise<void> {
  const { name, namespace = "", uid = "", deletionTimestamp } = member.metadata;
  if (deletionTimestamp === undefined) {
    if (pod === undefined && claim === undefined)
      await kube.delete(CELL_MEMBER, { namespace, name }, { uid });
    return;
  }
  if (pod?.metadata.uid !== undefined) {
    await kube.delete(POD, { namespace, name: pod.metadata.name }, { uid: pod.metadata.uid });
  }
  if (claim !== undefined) await disown(kube, PERSISTENT_VOLUME_CLAIM, claim, uid);
  await removeFinalizer(kube, CELL_MEMBER, member, MEMBER_FINALIZER);
}

function isOfCell(object: KubeObject | undefined, { name }: ObjectRef): boolean {
  const labels = object?.metadata.labels;
  return labels?.[LABEL.cell] === name && labels[LABEL.managedBy] === "lockstep-operator";
}
