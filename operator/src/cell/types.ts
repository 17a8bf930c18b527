/** A cell as the operator sees it: through the admin API only. */

/** host:port of one member's admin API, and whose identity is expected there. */
export interface MemberTarget {
  readonly address: string;
  readonly memberName: string;
}

export interface MemberProgress {
  readonly memberId: number;
  readonly state: "probe" | "replicate" | "snapshot";
  readonly match: number;
  readonly recentlyActive: boolean;
  /** How long the leader has not heard of it; at most since it began to lead. */
  readonly silentMs: number;
}

/** One member's own view. */
export interface MemberStatus {
  readonly cellId: string;
  readonly memberId: number;
  readonly name: string;
  readonly incarnation: string;
  readonly version: string;
  readonly formatVersion: number;
  readonly formatVersionMax: number;
  readonly role: "follower" | "pre-candidate" | "candidate" | "leader";
  readonly term: number;
  /** 0: none known. */
  readonly leaderId: number;
  readonly lastIndex: number;
  readonly commitIndex: number;
  readonly appliedIndex: number;
  readonly revision: number;
  readonly configurationIndex: number;
  readonly joint: boolean;
  readonly alarms: readonly string[];
  /** On the leader only. */
  readonly progress: readonly MemberProgress[];
  readonly freeBytes: number;
  readonly volumeBytes: number;
  readonly ready: boolean;
  readonly notReady: string;
  readonly syncP90Us: number;
  readonly tls:
    | {
        readonly bundleHash: string;
        readonly leafHash: string;
        readonly leafNotAfterMs: number;
        readonly reloadError: string;
      }
    | undefined;
}

/** Linearizable: what a change may be planned on. */
export interface CellConfiguration {
  readonly cellId: string;
  readonly configurationIndex: number;
  readonly joint: boolean;
  readonly leaderId: number;
  readonly members: readonly {
    readonly id: number;
    readonly name: string;
    readonly incarnation: string;
    /** `leaving`: a voter of the old half of a joint configuration. */
    readonly kind: "voter" | "learner" | "leaving";
  }[];
  readonly removedIds: readonly number[];
}

export interface MembershipChange {
  /** The configuration index that the change was planned on; refused (`stale-plan`) when it moved. */
  readonly plannedOn: number;
  readonly promote: readonly number[];
  readonly demote: readonly number[];
  readonly remove: readonly number[];
}

export interface NamespaceInCell {
  readonly name: string;
  readonly uid: string;
  readonly epoch: number;
  readonly keys: number;
  readonly bytes: number;
}

/** Every call has a deadline and rejects with {@link CellAdminError}. */
export interface CellAdmin {
  status(target: MemberTarget): Promise<MemberStatus>;
  configuration(target: MemberTarget): Promise<CellConfiguration>;
  changeMembership(target: MemberTarget, change: MembershipChange): Promise<void>;
  /** `memberId` 0: the leader picks the most caught-up voter. @returns the new leader's id. */
  transferLeadership(target: MemberTarget, memberId: number): Promise<number>;
  raiseFormatVersion(target: MemberTarget, version: number, plannedOn: number): Promise<void>;
  listNamespaces(target: MemberTarget): Promise<readonly NamespaceInCell[]>;
  createNamespace(target: MemberTarget, name: string, uid: string): Promise<NamespaceInCell>;
  deleteNamespace(target: MemberTarget, name: string, uid: string): Promise<void>;
}

export class CellAdminError extends Error {
  override readonly name = "CellAdminError";
  /** The admin API's code (`stale-plan`, `learner-not-ready`, `unhealthy-cell`, `not-leader`, ...), or `unreachable`. */
  readonly code: string;
  /** Whether the change may have been made all the same. */
  readonly outcome: "not-applied" | "unknown";

  constructor(code: string, message: string, outcome: "not-applied" | "unknown", cause?: unknown) {
    super(message, cause === undefined ? {} : { cause });
    this.code = code;
    this.outcome = outcome;
  }
}
