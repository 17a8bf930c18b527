/** Every kind that the operator reads or writes, beside the events and the lease of kube/. Exactly these stand in its roles. */
import type { KubeObject, ResourceKind } from "../kube/types.ts";
import type * as core from "./core.ts";
import { API_VERSION } from "./types.ts";
import type { CellMember, CellNamespace, CellOperation, CoordinationCell } from "./types.ts";

function namespaced<T extends KubeObject>(apiVersion: string, kind: string, plural: string): ResourceKind<T> {
  return { apiVersion, kind, plural, namespaced: true };
}

function clusterScoped<T extends KubeObject>(
  apiVersion: string,
  kind: string,
  plural: string,
): ResourceKind<T> {
  return { apiVersion, kind, plural, namespaced: false };
}

export const COORDINATION_CELL: ResourceKind<CoordinationCell> = namespaced(
  API_VERSION,
  "CoordinationCell",
  "coordinationcells",
);
export const CELL_MEMBER: ResourceKind<CellMember> = namespaced(API_VERSION, "CellMember", "cellmembers");
export const CELL_OPERATION: ResourceKind<CellOperation> = namespaced(
  API_VERSION,
  "CellOperation",
  "celloperations",
);
/** Our Namespace: a tenant's key space. */
export const CELL_NAMESPACE: ResourceKind<CellNamespace> = namespaced(
  API_VERSION,
  "Namespace",
  "cellnamespaces",
);

export const POD: ResourceKind<core.Pod> = namespaced("v1", "Pod", "pods");
export const PERSISTENT_VOLUME_CLAIM: ResourceKind<core.PersistentVolumeClaim> = namespaced(
  "v1",
  "PersistentVolumeClaim",
  "persistentvolumeclaims",
);
export const SECRET: ResourceKind<core.Secret> = namespaced("v1", "Secret", "secrets");
export const SERVICE: ResourceKind<core.Service> = namespaced("v1", "Service", "services");
export const SERVICE_ACCOUNT: ResourceKind<core.ServiceAccount> = namespaced(
  "v1",
  "ServiceAccount",
  "serviceaccounts",
);
export const POD_DISRUPTION_BUDGET: ResourceKind<core.PodDisruptionBudget> = namespaced(
  "policy/v1",
  "PodDisruptionBudget",
  "poddisruptionbudgets",
);
export const NETWORK_POLICY: ResourceKind<core.NetworkPolicy> = namespaced(
  "networking.k8s.io/v1",
  "NetworkPolicy",
  "networkpolicies",
);
export const CERTIFICATE: ResourceKind<core.Certificate> = namespaced(
  "cert-manager.io/v1",
  "Certificate",
  "certificates",
);

export const NODE: ResourceKind<core.Node> = clusterScoped("v1", "Node", "nodes");
export const PERSISTENT_VOLUME: ResourceKind<core.PersistentVolume> = clusterScoped(
  "v1",
  "PersistentVolume",
  "persistentvolumes",
);
/** The Namespace of Kubernetes itself. */
export const KUBERNETES_NAMESPACE: ResourceKind<core.KubernetesNamespace> = clusterScoped(
  "v1",
  "Namespace",
  "namespaces",
);
export const STORAGE_CLASS: ResourceKind<core.StorageClass> = clusterScoped(
  "storage.k8s.io/v1",
  "StorageClass",
  "storageclasses",
);
