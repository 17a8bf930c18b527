/** What is read of the operator's resources: the status that crds/ describe. Every field may be missing. */

export interface ConditionShape {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
}

export interface OperationShape {
  readonly id?: string;
  readonly kind?: string;
  readonly cause?: string;
  readonly step?: string;
  readonly message?: string;
  readonly startedAt?: string;
  readonly deadline?: string;
  readonly finishedAt?: string;
  readonly result?: string;
}

export interface MemberShape {
  readonly name: string;
  readonly id?: number;
  readonly role?: string;
  readonly leader?: boolean;
  readonly zone?: string;
  readonly node?: string;
  readonly ready?: boolean;
  readonly lag?: number;
  readonly version?: string;
  readonly lostSince?: string;
  readonly message?: string;
}

export interface CellShape {
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly generation?: number };
  readonly spec: { readonly voters?: number; readonly paused?: boolean };
  readonly status?: {
    readonly observedGeneration?: number;
    readonly phase?: string;
    readonly leader?: string;
    readonly voters?: number;
    readonly readyVoters?: number;
    readonly version?: string;
    readonly formatVersion?: number;
    readonly cellId?: string;
    readonly members?: readonly MemberShape[];
    readonly operation?: OperationShape;
    readonly lastOperation?: OperationShape;
    readonly conditions?: readonly ConditionShape[];
    readonly endpoints?: { readonly client?: string; readonly http?: string };
  };
}

export interface CellOperationShape {
  readonly metadata: { readonly name: string };
  readonly status?: { readonly phase?: string; readonly message?: string };
}

export const CELLS = "coordinationcells.lockstep.dev";
export const MEMBERS = "cellmembers.lockstep.dev";
export const OPERATIONS = "celloperations.lockstep.dev";
