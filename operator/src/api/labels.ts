import type { CellMember, CoordinationCell } from "./types.ts";

/** Labels and annotations that the operator sets. */
export const LABEL = {
  cell: "lockstep.dev/cell",
  /** Tells the objects of a cell from those of an earlier one of its name. */
  cellUid: "lockstep.dev/cell-uid",
  member: "lockstep.dev/member",
  /** voter, learner or former: what the PodDisruptionBudget and the client Service select by. */
  role: "lockstep.dev/role",
  /** On no object, only in the selector of a client Service that is to select nothing yet. */
  admitted: "lockstep.dev/admitted",
  name: "app.kubernetes.io/name",
  component: "app.kubernetes.io/component",
  managedBy: "app.kubernetes.io/managed-by",
} as const;

export const ANNOTATION = {
  /** Hash of what a Pod was made from, as far as the user decides it. */
  specHash: "lockstep.dev/spec-hash",
  /** How the Pod starts its member: bootstrap, join, existing or recover. */
  start: "lockstep.dev/start",
} as const;

export type Labels = Readonly<Record<string, string>>;

/** Which cell an object belongs to. */
export interface CellIdentity {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
}

/**
 * @throws TypeError for an object that did not come from the apiserver
 */
export function identityOf(cell: CoordinationCell): CellIdentity {
  const { name, namespace, uid } = cell.metadata;
  if (namespace === undefined || uid === undefined) {
    throw new TypeError(`the cell ${name} has no namespace or uid: it was not read from the apiserver`);
  }
  return { name, namespace, uid };
}

/**
 * Of every object of a cell. Not `app.kubernetes.io/instance`: by that label Argo CD knows what belongs to an
 * application, and would prune a retained volume, which has no owner, from one that happens to have the cell's name.
 */
export function cellLabels(cell: CellIdentity, component: string): Labels {
  return {
    [LABEL.name]: "lockstep",
    [LABEL.component]: component,
    [LABEL.managedBy]: "lockstep-operator",
    [LABEL.cell]: cell.name,
    [LABEL.cellUid]: cell.uid,
  };
}

/** Of a member's CellMember, Pod, claim and Secret. */
export function memberLabels(cell: CellIdentity, member: string): Labels {
  return { ...cellLabels(cell, "member"), [LABEL.member]: member };
}

/** Selects all Pods of a cell's members. */
export function memberSelector(cell: CellIdentity): Labels {
  return { [LABEL.cellUid]: cell.uid, [LABEL.component]: "member" };
}

/** Selects the Pods of voters. */
export function voterSelector(cell: CellIdentity): Labels {
  return { ...memberSelector(cell), [LABEL.role]: "voter" };
}

/**
 * Selects the Pods that applications may be sent to. No Pod carries the label `admitted`: until clients are let in the
 * selector asks for it, so it selects none, and letting them in is one change of one Service.
 */
export function clientSelector(cell: CellIdentity, admitted: boolean): Labels {
  return { ...voterSelector(cell), ...(admitted ? {} : { [LABEL.admitted]: "true" }) };
}

/** As the API wants it in queries and in the scale subresource: `a=b,c=d`, in the order of the keys. */
export function selectorText(labels: Labels): string {
  return Object.keys(labels)
    .sort()
    .map((key) => `${key}=${labels[key] ?? ""}`)
    .join(",");
}

/** Whether a CellMember is of this cell, and not of an earlier one of its name. */
export function isMemberOf(member: CellMember, cell: CellIdentity): boolean {
  return member.metadata.namespace === cell.namespace && member.spec.cellUid === cell.uid;
}
