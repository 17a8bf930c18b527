/** Whose an object is that has a name which a cell needs. */
import { identityOf, LABEL } from "../api/labels.ts";
import { GROUP } from "../api/types.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeClient, KubeObject, ResourceKind } from "../kube/types.ts";

export type Belonging =
  | { readonly kind: "ours" }
  /** Of the cell before this one, and it goes by itself in a moment. */
  | { readonly kind: "going"; readonly message: string }
  /** Somebody else's, or left behind by an earlier cell: only a person can say whether it may go. */
  | { readonly kind: "taken"; readonly message: string };

/** The garbage collector and finalizers have this long to take away what an earlier cell of the name left. */
const COLLECTED_WITHIN_MS = 60_000;

/** Writing takes fields over by force, which is right for what is `ours` only. */
export function belongingOf(object: KubeObject, cell: CoordinationCell, nowMs: number): Belonging {
  const { kind, metadata } = object;
  const { uid, name } = identityOf(cell);
  if (isOwned(object, uid) || metadata.labels?.[LABEL.cellUid] === uid) return { kind: "ours" };
  const what = `The ${kind} ${metadata.namespace ?? ""}/${metadata.name}`;
  const owners = metadata.ownerReferences ?? [];
  const isCollected = owners.some((owner) => isCell(owner) && owner.name === name);
  const isLeft = isCollected || metadata.labels?.[LABEL.cell] === name;
  if (!isLeft) {
    const message = `${what} is there already and is not this cell's. Delete or rename it, or give the cell another name.`;
    return { kind: "taken", message };
  }
  const goes = isCollected || metadata.deletionTimestamp !== undefined;
  if (goes && nowMs - Date.parse(cell.metadata.creationTimestamp ?? "") < COLLECTED_WITHIN_MS) {
    return { kind: "going", message: `${what} goes with the cell before this one.` };
  }
  const earlier = metadata.labels?.[LABEL.cellUid] ?? owners[0]?.uid ?? "unknown";
  const message = `${what} is left of an earlier cell of this name (uid ${earlier}). If nothing uses it any more, delete it, and this cell makes its own.`;
  return { kind: "taken", message };
}

/** Whether a CoordinationCell owns the object: the garbage collector would take it with that. */
export function isOwned({ metadata }: KubeObject, cellUid: string): boolean {
  return metadata.ownerReferences?.some((owner) => isCell(owner) && owner.uid === cellUid) === true;
}

function isCell(owner: { readonly apiVersion: string; readonly kind: string }): boolean {
  return owner.kind === "CoordinationCell" && owner.apiVersion.startsWith(`${GROUP}/`);
}

/**
 * Parts an object from an owner, so that the garbage collector does not find it. Refused (`conflict`) when the object
 * moved on since it was read. @returns the object as it is then
 */
export async function disown<T extends KubeObject>(
  kube: KubeClient,
  kind: ResourceKind<T>,
  object: T,
  ownerUid: string,
): Promise<T> {
  const { name, namespace, ownerReferences = [], resourceVersion } = object.metadata;
  const others = ownerReferences.filter(({ uid }) => uid !== ownerUid);
  if (others.length === ownerReferences.length) return object;
  return kube.mergePatch(
    kind,
    namespace === undefined ? { name } : { namespace, name },
    { metadata: { ownerReferences: others } },
    resourceVersion === undefined ? {} : { resourceVersion },
  );
}
