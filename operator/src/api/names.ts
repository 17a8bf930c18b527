/** Names of the objects that belong to a cell or to a member. Each is a function of its owner's name or uid alone. */

/** Longest name of a cell: what is made from it still fits in a DNS label (the CRD refuses longer ones). */
export const CELL_NAME_LENGTH_MAX = 40;

/** Service that applications dial: voters only, once the cell is complete. */
export const clientServiceName = (cell: string): string => `${cell}-client`;
/** Headless Service that gives each member's Pod its host name, ready or not. */
export const peersServiceName = (cell: string): string => `${cell}-peers`;
/** Secret with which applications speak to the cell: tls.crt, tls.key and ca.crt. */
export const clientSecretName = (cell: string): string => `${cell}-client`;
export const disruptionBudgetName = (cell: string): string => cell;
export const serviceAccountName = (cell: string): string => cell;
export const networkPolicyName = (cell: string): string => cell;

/** A member's Pod and its PersistentVolumeClaim carry the member's name. */
export const podName = (member: string): string => member;
export const claimName = (member: string): string => member;
/** Secret of one member's certificate. */
export const memberSecretName = (member: string): string => `${member}-tls`;

/**
 * Secrets in the operator's namespace. They carry the cell's uid, because two cells of one name may follow each other
 * or stand in two Kubernetes namespaces.
 */
export const authoritySecretName = (cellUid: string): string => `cell-${cellUid}-ca`;
export const operatorSecretName = (cellUid: string): string => `cell-${cellUid}-operator`;

/** Where members find each other: `MEMBER.CELL-peers.NAMESPACE.svc`. */
export function memberHost(member: string, cell: string, namespace: string): string {
  return `${member}.${peersServiceName(cell)}.${namespace}.svc`;
}

/** Where applications find the cell: `CELL-client.NAMESPACE.svc`. */
export function clientHost(cell: string, namespace: string): string {
  return `${clientServiceName(cell)}.${namespace}.svc`;
}

/**
 * With cert-manager: the Secret of the operator's identity in the cell's own Kubernetes namespace, since cert-manager
 * writes Secrets only beside its Certificates.
 */
export const operatorCertificateName = (cell: string): string => `${cell}-operator`;

/** Identities in certificates, as `lockstep://CELL-UID/KIND/NAME`. */
export const memberIdentity = (cellUid: string, member: string): string =>
  `lockstep://${cellUid}/member/${member}`;
export const clientIdentity = (cellUid: string): string => `lockstep://${cellUid}/client/default`;
export const operatorIdentity = (cellUid: string): string => `lockstep://${cellUid}/admin/operator`;

/** What clients send as the namespace: NAME.KUBERNETES-NAMESPACE. */
export const wireName = (name: string, namespace: string): string => `${name}.${namespace}`;

/** Ports of a member, the same in every Pod and Service. */
export const PORTS = { client: 7400, http: 7401, peer: 7402, admin: 7403, ops: 7404 } as const;

/** Finalizer of a CellMember: a majority of the cell must have the member out of its configuration first. */
export const MEMBER_FINALIZER = "lockstep.dev/member";
/** Finalizer of a CoordinationCell: its members go first, and its Namespaces before them. */
export const CELL_FINALIZER = "lockstep.dev/cell";
/** Finalizer of a Namespace: its keys go by deletionPolicy first. */
export const NAMESPACE_FINALIZER = "lockstep.dev/namespace";
/** The one field manager of all that the operator applies. */
export const FIELD_MANAGER = "lockstep-operator";
