/** Our resources, as the planner uses them. The schemas in `crds/` are the source: field meanings and defaults stand there. */
import type { KubeObject, ObjectMeta } from "../kube/types.ts";

export const GROUP = "lockstep.dev";
export const API_VERSION = "lockstep.dev/v1alpha1";

export type ConditionStatus = "True" | "False" | "Unknown";

export interface Condition {
  readonly type: string;
  readonly status: ConditionStatus;
  /** Stable CamelCase. */
  readonly reason: string;
  /** Names the blocker and the next step. */
  readonly message: string;
  /** RFC 3339; moves only when `status` changes. */
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number;
}

export interface StorageSpec {
  /** Quantity; may grow, not shrink. */
  readonly size: string;
  /** Absent: the cluster's default class. Immutable. */
  readonly storageClassName?: string;
  /** What becomes of volumes when the cell is deleted. Volumes of replaced members follow it too. */
  readonly reclaimPolicy: "Retain" | "Delete";
}

export interface TopologySpec {
  /** Zones that members may be placed in; absent: every zone that has a usable node. */
  readonly zones?: readonly string[];
  /** Node label that names the zone. Default topology.kubernetes.io/zone. */
  readonly zoneKey: string;
  /** `Required`: a member waits rather than share a host with another. Default Required. */
  readonly hostSpread: "Required" | "Preferred";
}

export interface TlsSpec {
  /** `Managed`: certificates from a CA that the operator makes and keeps. */
  readonly mode: "Managed" | "CertManager" | "Secret";
  readonly issuerRef?: {
    readonly name: string;
    readonly kind: "Issuer" | "ClusterIssuer";
    readonly group: string;
  };
  /** `Secret`: names of Secrets with tls.crt, tls.key, ca.crt. */
  readonly memberSecretName?: string;
  readonly operatorSecretName?: string;
  readonly leafDuration: string;
}

export interface ReplacementPolicy {
  /** `AfterLoss`: a voter that is lost for `after` is replaced; `Never`: only by a CellOperation. */
  readonly mode: "AfterLoss" | "Never";
  /** Duration, e.g. 10m. */
  readonly after: string;
  readonly slowDisk: "Report" | "Replace";
}

export interface UpdatePolicy {
  /** `Rolling`: by itself; `Manual`: only members that a CellOperation names. */
  readonly mode: "Rolling" | "Manual";
  /** Seconds that a restarted member must be ready and caught up before the next. */
  readonly minReadySeconds: number;
}

/** What a person asks for after quorum was lost for good. Fires once: it names the cell id that was seen. */
export interface RecoverySpec {
  readonly survivor: string;
  readonly cellId: string;
}

export interface CoordinationCellSpec {
  readonly voters: 1 | 3 | 5;
  /** Absent: the image that came with the operator. */
  readonly image?: string;
  readonly imagePullPolicy?: "Always" | "IfNotPresent" | "Never";
  readonly storage: StorageSpec;
  readonly topology: TopologySpec;
  readonly resources?: Readonly<Record<string, unknown>>;
  /** Overlay on the members' pods: metadata.labels, metadata.annotations, and a chosen set of spec fields. */
  readonly podTemplate?: {
    readonly metadata?: Pick<ObjectMeta, "labels" | "annotations">;
    readonly spec?: Readonly<Record<string, unknown>>;
  };
  readonly tls: TlsSpec;
  readonly updatePolicy: UpdatePolicy;
  readonly replacementPolicy: ReplacementPolicy;
  readonly settings?: {
    readonly quota?: string;
    readonly retention?: string;
    readonly logLevel?: "debug" | "info" | "warn" | "error";
  };
  readonly allowedNamespaces?: {
    readonly from: "Same" | "All" | "Selector";
    readonly selector?: { readonly matchLabels: Readonly<Record<string, string>> };
  };
  readonly paused?: boolean;
  readonly recovery?: RecoverySpec;
}

export type OperationKind =
  | "Create"
  | "Grow"
  | "Shrink"
  | "Replace"
  | "Roll"
  | "Transfer"
  | "RotateCertificates"
  | "RaiseFormat"
  | "Recover"
  | "Delete";

/** The change under way: written before each act, and enough, with what is seen of the cell, to go on from any crash. */
export interface OperationStatus {
  /** Unique; names of new members are made from it. */
  readonly id: string;
  readonly kind: OperationKind;
  /** Why it was begun, in a sentence. */
  readonly cause: string;
  /** Where it is: one of the kind's steps. */
  readonly step: string;
  /** What it waits for, in a sentence. */
  readonly message: string;
  readonly startedAt: string;
  /** After it, an operation that may still be cancelled is. */
  readonly deadline: string;
  /** Members that leave or are acted on, and members that come. */
  readonly outgoing?: readonly string[];
  readonly incoming?: readonly string[];
  /** The CellOperation that asked for it. */
  readonly requestedBy?: string;
}

export interface MemberSummary {
  readonly name: string;
  readonly id?: number;
  readonly role: "Voter" | "Learner" | "Leaving" | "Joining" | "Gone";
  readonly leader?: boolean;
  readonly zone?: string;
  readonly node?: string;
  readonly ready: boolean;
  /** Entries behind the leader; absent: not known. */
  readonly lag?: number;
  readonly version?: string;
  /** RFC 3339: since when it does not answer and the leader does not hear of it. */
  readonly lostSince?: string;
  /** What is the matter with it, in a sentence. */
  readonly message?: string;
}

export interface CoordinationCellStatus {
  readonly observedGeneration?: number;
  readonly conditions?: readonly Condition[];
  /** One word for people: Creating, Ready, Changing, Degraded, Unavailable, Paused, Stalled, Deleting. */
  readonly phase?: string;
  readonly cellId?: string;
  /** Raised by each recovery. */
  readonly recoveries?: number;
  readonly leader?: string;
  readonly voters?: number;
  readonly readyVoters?: number;
  readonly version?: string;
  readonly formatVersion?: number;
  readonly zones?: readonly string[];
  readonly members?: readonly MemberSummary[];
  readonly operation?: OperationStatus;
  readonly lastOperation?: OperationStatus & { readonly finishedAt: string; readonly result: string };
  /** RFC 3339: when a voter was last replaced without a person asking. */
  readonly lastAutomaticReplacement?: string;
  /** True from the moment that all initial voters had joined: clients are let in. */
  readonly admitted?: boolean;
  readonly endpoints?: { readonly client?: string; readonly http?: string };
}

export interface CoordinationCell extends KubeObject {
  readonly spec: CoordinationCellSpec;
  readonly status?: CoordinationCellStatus;
}

/** One member: owns exactly one Pod and one PersistentVolumeClaim, both of its name. Made and ended by the operator. */
export interface CellMemberSpec {
  readonly cell: string;
  readonly cellUid: string;
  /** The first voter of the cell. */
  readonly bootstrap?: boolean;
  /** Chosen once; absent: the cluster has no zones. */
  readonly zone?: string;
  /** The voter that this one is to replace: its host is allowed. */
  readonly replaces?: string;
  readonly storage: Pick<StorageSpec, "size" | "storageClassName">;
}

export interface CellMemberStatus {
  readonly observedGeneration?: number;
  readonly conditions?: readonly Condition[];
  /** Id in the cell, once it was seen there. */
  readonly memberId?: number;
  readonly cellId?: string;
  readonly role?: MemberSummary["role"];
  readonly zone?: string;
  readonly node?: string;
  readonly ready?: boolean;
  readonly message?: string;
}

export interface CellMember extends KubeObject {
  readonly spec: CellMemberSpec;
  readonly status?: CellMemberStatus;
}

export interface CellOperationSpec {
  readonly cell: string;
  readonly action: "Replace" | "TransferLeadership" | "Restart" | "Drain";
  /** The CellMember acted on; for `TransferLeadership` the one that is to lead (absent: any other). For `Drain` absent. */
  readonly member?: string;
  /** `Drain`: the Kubernetes node whose members are to be replaced elsewhere. */
  readonly node?: string;
}

export interface CellOperationObjectStatus {
  readonly observedGeneration?: number;
  readonly phase?: "Pending" | "Running" | "Succeeded" | "Failed";
  readonly message?: string;
  readonly startedAt?: string;
  readonly finishedAt?: string;
  readonly conditions?: readonly Condition[];
}

export interface CellOperation extends KubeObject {
  readonly spec: CellOperationSpec;
  readonly status?: CellOperationObjectStatus;
}

/** A tenant's key space in a cell (kind `Namespace` of our group). */
export interface CellNamespaceSpec {
  /** Immutable for now: moves are not there yet. */
  readonly cellRef: { readonly name: string; readonly namespace?: string };
  readonly deletionPolicy: "Retain" | "Delete";
}

export interface CellNamespaceStatus {
  readonly observedGeneration?: number;
  readonly conditions?: readonly Condition[];
  readonly phase?: string;
  /** What clients send: NAME.KUBERNETES-NAMESPACE. */
  readonly wireName?: string;
  readonly epoch?: number;
  readonly cell?: string;
}

export interface CellNamespace extends KubeObject {
  readonly spec: CellNamespaceSpec;
  readonly status?: CellNamespaceStatus;
}
