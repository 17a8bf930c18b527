import { API_VERSION } from "../api/types.ts";
import type { CellMember } from "../api/types.ts";
import type { OwnerReference } from "../kube/types.ts";

/**
 * The controller of an object, so that the object goes with it and `kubectl drain` knows that somebody makes it anew.
 * Without blockOwnerDeletion, which would need the right to change the owner's finalizers.
 *
 * Only a member owns anything. What hangs on a CoordinationCell is taken by the garbage collector as soon as somebody
 * deletes that in the foreground, as Argo CD does, whatever its finalizer still waits for.
 * @throws TypeError for an owner that did not come from the apiserver
 */
export function controlledBy(owner: CellMember): OwnerReference {
  const { name, uid } = owner.metadata;
  if (uid === undefined)
    throw new TypeError(`${owner.kind} ${name} has no uid: it was not read from the apiserver`);
  return { apiVersion: API_VERSION, kind: owner.kind, name, uid, controller: true };
}
