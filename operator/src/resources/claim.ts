import type { PersistentVolumeClaim } from "../api/core.ts";
import { identityOf, memberLabels } from "../api/labels.ts";
import { claimName } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import { controlledBy } from "./owner.ts";

/**
 * The volume of one member. It is owned, and so goes with the member, only when the spec says Delete; otherwise its labels
 * tell whose it was.
 *
 * @param size default: what the CellMember says
 * @throws TypeError for objects that did not come from the apiserver
 */
export function memberClaim(
  cell: CoordinationCell,
  member: CellMember,
  size: string = member.spec.storage.size,
): PersistentVolumeClaim {
  const identity = identityOf(cell);
  const { storageClassName } = member.spec.storage;
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: {
      name: claimName(member.metadata.name),
      namespace: identity.namespace,
      labels: memberLabels(identity, member.metadata.name),
      ...(cell.spec.storage.reclaimPolicy === "Delete" ? { ownerReferences: [controlledBy(member)] } : {}),
    },
    spec: {
      accessModes: ["ReadWriteOnce"],
      ...(storageClassName === undefined ? {} : { storageClassName }),
      resources: { requests: { storage: size } },
    },
  };
}
