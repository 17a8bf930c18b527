/**
 * The planner's words. `plan` is pure: what was observed goes in; at most one action, and the status to write before
 * it is done, come out. It remembers nothing: every decision follows from the cell's own configuration, the
 * Kubernetes objects and the status that was written earlier, so it can go on from any crash.
 */
import type {
  CellMember,
  CellOperation,
  CoordinationCell,
  CoordinationCellStatus,
  OperationStatus,
} from "../api/types.ts";
import type { CellConfiguration, MembershipChange, MemberStatus } from "../cell/types.ts";

/** What is seen of one member's Pod. */
export interface PodView {
  readonly name: string;
  readonly uid: string;
  readonly phase: "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";
  readonly node: string | undefined;
  readonly ready: boolean;
  readonly terminating: boolean;
  /** How it starts its member (annotation). */
  readonly start: PodMode["kind"];
  /** Hash of the wanted pod that it was made from (annotation); {@link PodMode} and labels are no part of it. */
  readonly specHash: string;
  readonly image: string;
  readonly createdAtMs: number;
  /** Since when it is ready; undefined: it is not. */
  readonly readySinceMs: number | undefined;
  readonly restarts: number;
  /** Why it cannot run, in the kubelet's or scheduler's words: `ImagePullBackOff: ...`, `Unschedulable: ...`. */
  readonly trouble: { readonly reason: string; readonly message: string } | undefined;
  readonly labels: Readonly<Record<string, string>>;
}

export interface ClaimView {
  readonly name: string;
  readonly uid: string;
  readonly phase: "Pending" | "Bound" | "Lost";
  readonly terminating: boolean;
  readonly requestedBytes: number;
  readonly capacityBytes: number;
  /** Whether its StorageClass lets it grow. Absent: as far as is known. */
  readonly growable?: boolean;
  /** The zone and the only node that its volume can be used from, where it says so. */
  readonly zone: string | undefined;
  readonly node: string | undefined;
  readonly trouble: { readonly reason: string; readonly message: string } | undefined;
}

export interface NodeView {
  readonly name: string;
  readonly zone: string | undefined;
  readonly ready: boolean;
  readonly schedulable: boolean;
}

export interface MemberView {
  /** Undefined: the cell has a member of that name, and Kubernetes has no such object. */
  readonly object: CellMember | undefined;
  readonly name: string;
  readonly pod: PodView | undefined;
  readonly claim: ClaimView | undefined;
  /** The node that the pod runs on or the volume is pinned to. `gone`: there is no such Node object any more. */
  readonly node: NodeView | "gone" | undefined;
  /** Its own answer; undefined: it did not answer. */
  readonly status: MemberStatus | undefined;
  /** Hash of the pod that is wanted for it now. */
  readonly wantedSpecHash: string;
}

export interface Observation {
  readonly nowMs: number;
  readonly cell: CoordinationCell;
  readonly members: readonly MemberView[];
  /** From the leader, linearizable. Undefined: no member could prove what is current. */
  readonly configuration: CellConfiguration | undefined;
  /** The leader's own status, with the progress of the others. */
  readonly leader: MemberStatus | undefined;
  /** PersistentVolumeClaims labelled for the cell that no CellMember owns. */
  readonly orphanedClaims: readonly string[];
  readonly nodes: readonly NodeView[];
  /** Not finished ones, oldest first. */
  readonly requests: readonly CellOperation[];
  /** `NAMESPACE/NAME` of our Namespaces that name this cell and are not being deleted themselves. */
  readonly tenants: readonly string[];
  /** The Kubernetes namespace is being deleted. */
  readonly namespaceTerminating: boolean;
  /** Whether the fleet has room for one more rolling cell (`maxConcurrentRolls`). */
  readonly mayRoll: boolean;
  readonly certificates: CertificatesView;
  /** Shared objects (Services, PodDisruptionBudget, ...) that differ from what is wanted, by kind/name. */
  readonly outdatedObjects: readonly string[];
  /** Why the cell cannot be founded, found while observing: a StorageClass that is missing, members of an earlier cell. */
  readonly obstacles: readonly { readonly reason: string; readonly message: string }[];
  /** minAvailable of the PodDisruptionBudget as it is; undefined: there is none. */
  readonly disruptionBudget: number | undefined;
  /** What the apiserver refused last, by {@link nameOfAction}, and why. Absent: nothing. */
  readonly refused?: { readonly action: string; readonly message: string };
}

export interface CertificatesView {
  readonly kind: "ready" | "waiting";
  readonly message: string;
  /** Soonest end of a certificate in use; undefined: none known. */
  readonly notAfterMs: number | undefined;
  /** An object of a name that is needed is somebody else's, in a sentence that says what to do. Absent: none is. */
  readonly taken?: string;
  /** The next step of a rotation, if one is due: see `certificates/`. */
  readonly due: "issue" | "trust-both" | "reissue-leaves" | "trust-new-only" | undefined;
}

export type Action =
  /** Creates or corrects the shared objects (Services, PodDisruptionBudget, ServiceAccount). */
  | { readonly kind: "apply-shared"; readonly disruptionMinAvailable: number; readonly admitted: boolean }
  | { readonly kind: "advance-certificates" }
  | {
      readonly kind: "create-member";
      readonly name: string;
      readonly zone: string | undefined;
      readonly bootstrap: boolean;
      readonly replaces: string | undefined;
    }
  | { readonly kind: "create-claim"; readonly member: string }
  | { readonly kind: "grow-claim"; readonly member: string; readonly size: string }
  | { readonly kind: "create-pod"; readonly member: string; readonly mode: PodMode; readonly role: PodRole }
  /** Gracefully: the member hands leadership over first. */
  | { readonly kind: "delete-pod"; readonly member: string; readonly uid: string; readonly why: string }
  | { readonly kind: "label-pod"; readonly member: string; readonly uid: string; readonly role: PodRole }
  /** Deletes the CellMember; its finalizer waits for `release-member`. */
  | { readonly kind: "delete-member"; readonly member: string; readonly uid: string }
  /** Takes the finalizer off: the cell's configuration, on a majority, does not have it any more (or the whole cell goes). */
  | {
      readonly kind: "release-member";
      readonly member: string;
      readonly uid: string;
      readonly deleteClaim: boolean;
    }
  | { readonly kind: "change-membership"; readonly change: MembershipChange; readonly why: string }
  | { readonly kind: "transfer-leadership"; readonly to: number; readonly why: string }
  | { readonly kind: "raise-format"; readonly version: number; readonly plannedOn: number }
  | {
      readonly kind: "finish-request";
      readonly name: string;
      readonly phase: "Running" | "Succeeded" | "Failed";
      readonly message: string;
    }
  | { readonly kind: "release-cell" };

/** Tells what was refused: one action from another, the same one from try to try. */
export function nameOfAction(action: Action): string {
  return "member" in action ? `${action.kind} ${action.member}` : action.kind;
}

/** How a new pod starts its member. */
export type PodMode =
  | { readonly kind: "bootstrap" }
  /** Names of members of the cell to ask. */
  | { readonly kind: "join"; readonly targets: readonly string[] }
  /** Only what the volume holds: on an empty one it does not start. */
  | { readonly kind: "existing" }
  /** Makes a new cell of one voter from the volume, if that still belongs to `cellId`; otherwise as `existing`. */
  | { readonly kind: "recover"; readonly newName: string; readonly cellId: string };

/**
 * Value of the pod label that the PodDisruptionBudget and the client Service select by. `former`: no member of the cell (any
 * more, or not yet).
 */
export type PodRole = "voter" | "learner" | "former";

export interface Decision {
  /** What to do now; undefined: nothing. */
  readonly action: Action | undefined;
  /**
   * Status as it is to be, whole; conditions' transition times are settled already. Applied with the resourceVersion of
   * the observed cell before the action, even when nothing in it changed: a conflict says that the observation is old,
   * and then the action is not done.
   */
  readonly status: CoordinationCellStatus;
  /** Told as Kubernetes events, once each. */
  readonly events: readonly PlannedEvent[];
  /** Look again after this long even if nothing changes; undefined: only on change (and the periodic look). */
  readonly lookAgainMs: number | undefined;
}

export interface PlannedEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
}

export type { OperationStatus };
