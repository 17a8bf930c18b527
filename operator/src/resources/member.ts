import { cellLabels, identityOf, LABEL } from "../api/labels.ts";
import { MEMBER_FINALIZER } from "../api/names.ts";
import { API_VERSION } from "../api/types.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";

export interface NewMember {
  /** Never used before in this Kubernetes namespace. */
  readonly name: string;
  /** undefined: the cluster has no zones. */
  readonly zone: string | undefined;
  readonly bootstrap: boolean;
  /** undefined: it replaces none. */
  readonly replaces: string | undefined;
}

/**
 * The object of a member that is to come, with the finalizer that keeps it until the cell has let it go. Labels say
 * whose it is; no owner does, see `controlledBy`.
 * @throws TypeError for a cell that did not come from the apiserver
 */
export function cellMember(cell: CoordinationCell, member: NewMember): CellMember {
  const identity = identityOf(cell);
  const { size, storageClassName } = cell.spec.storage;
  const { name, zone, bootstrap, replaces } = member;
  return {
    apiVersion: API_VERSION,
    kind: "CellMember",
    metadata: {
      name,
      namespace: identity.namespace,
      labels: { ...cellLabels(identity, "member"), [LABEL.member]: name },
      finalizers: [MEMBER_FINALIZER],
    },
    spec: {
      cell: identity.name,
      cellUid: identity.uid,
      ...(bootstrap ? { bootstrap } : {}),
      ...(zone === undefined ? {} : { zone }),
      ...(replaces === undefined ? {} : { replaces }),
      storage: { size, ...(storageClassName === undefined ? {} : { storageClassName }) },
    },
  };
}
