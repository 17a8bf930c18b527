/**
 * Our resources. The schemas in `crds/` are the source of specs and statuses: field meanings and defaults stand there.
 * Fields with a default are always there in what the apiserver gives back.
 */
import type { KubeObject } from "../kube/types.ts";
import type {
  CellMemberSpec,
  CellMemberStatus,
  CellNamespaceSpec,
  CellNamespaceStatus,
  CellOperationObjectStatus,
  CellOperationSpec,
  Condition,
  CoordinationCellSpec,
  CoordinationCellStatus,
  OperationStatus,
} from "./generated/resources.ts";

export type {
  AllowedNamespaces,
  CellMemberSpec,
  CellMemberStatus,
  CellNamespaceSpec,
  CellNamespaceStatus,
  CellOperationObjectStatus,
  CellOperationSpec,
  CellReference,
  CellSettings,
  Condition,
  CoordinationCellSpec,
  CoordinationCellStatus,
  FinishedOperation,
  IssuerReference,
  MemberSummary,
  OperationStatus,
  PodOverlay,
  PodTemplate,
  RecoverySpec,
  ReplacementPolicy,
  ResourceRequirements,
  StorageSpec,
  TlsSpec,
  Toleration,
  TopologySpec,
  UpdatePolicy,
} from "./generated/resources.ts";

export const GROUP = "lockstep.dev";
export const API_VERSION = "lockstep.dev/v1alpha1";

export type ConditionStatus = Condition["status"];
export type OperationKind = OperationStatus["kind"];
export type OperationTrigger = OperationStatus["trigger"];

export interface CoordinationCell extends KubeObject {
  readonly spec: CoordinationCellSpec;
  readonly status?: CoordinationCellStatus;
}

/** One member: owns exactly one Pod and one PersistentVolumeClaim, both of its name. Made and ended by the operator. */
export interface CellMember extends KubeObject {
  readonly spec: CellMemberSpec;
  readonly status?: CellMemberStatus;
}

export interface CellOperation extends KubeObject {
  readonly spec: CellOperationSpec;
  readonly status?: CellOperationObjectStatus;
}

/** A tenant's key space in a cell (kind `Namespace` of our group). */
export interface CellNamespace extends KubeObject {
  readonly spec: CellNamespaceSpec;
  readonly status?: CellNamespaceStatus;
}
