// Generated from crds/*.yaml by `npm run gen`: do not edit. Fields with a default are always there, because the
// apiserver fills them in; those that may be left out say what absence means.

/** The volume of each member. */
export interface StorageSpec {
  /** Size of a member's volume, e.g. 10Gi; at least 512Mi, of which 256Mi are kept free. May grow (volumes in use are grown when their class allows it), not shrink. */
  readonly size: string;
  /** StorageClass of the volumes; one with volumeBindingMode WaitForFirstConsumer lets the scheduler choose the node first. Immutable. Absent: the cluster's default class at the time when a member is made. */
  readonly storageClassName?: string;
  /** What becomes of the volumes of members that are gone: those of a deleted cell and those of members that were replaced. Retain: they stay until somebody deletes them, and a new cell of the same name does not start over them. Delete: they go with their member. Default: Retain. */
  readonly reclaimPolicy: "Retain" | "Delete";
}
/** Where members may be placed. */
export interface TopologySpec {
  /** Zones that members may be placed in, each once; voters are spread over them evenly. Absent: every zone that has a usable node. */
  readonly zones?: readonly string[];
  /** The node label that names the zone. Immutable. Default: topology.kubernetes.io/zone. */
  readonly zoneKey: string;
  /** Whether two members of the cell may share a node. Required: a member waits rather than share. Preferred: it shares if it must. Default: Required. */
  readonly hostSpread: "Required" | "Preferred";
}
/** Requests and limits of a member's container. Absent: requests of 100m CPU and 256Mi of memory, and no limits. */
export interface ResourceRequirements {
  /** What a node must have left, by resource (cpu, memory, ...). Absent: as the limits, if there are any. */
  readonly requests?: {
    readonly [k: string]: number | string;
  };
  /** What the container may use at most, by resource. Absent: not limited. A CPU limit delays heartbeats when it throttles, so leave it out or choose it generously. */
  readonly limits?: {
    readonly [k: string]: number | string;
  };
}
export interface Toleration {
  /** Key of the taint. Absent: every key. */
  readonly key?: string;
  /** How value is compared. Absent: Equal. */
  readonly operator?: "Equal" | "Exists";
  /** Value of the taint. Absent: the empty one. */
  readonly value?: string;
  /** Effect of the taint. Absent: every effect. */
  readonly effect?: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
  /** With NoExecute: how long it is tolerated, in seconds. Absent: for ever. */
  readonly tolerationSeconds?: number;
}
/** Fields of the Pod that may be set. What is not listed here is decided by the operator: placement, security context, volumes and probes are part of what keeps a cell safe. Absent: none. */
export interface PodOverlay {
  /** Labels that a node must have, in addition to its member's zone. Absent: none. */
  readonly nodeSelector?: {
    readonly [k: string]: string;
  };
  /** Taints that members tolerate. Absent: those that Kubernetes adds. */
  readonly tolerations?: readonly Toleration[];
  /** PriorityClass of the Pods. Absent: the cluster's default. */
  readonly priorityClassName?: string;
  /** RuntimeClass of the Pods. Absent: the cluster's default. */
  readonly runtimeClassName?: string;
  /** Scheduler that places the Pods. Absent: the default scheduler. */
  readonly schedulerName?: string;
  /** ServiceAccount of the Pods, which must exist; its token is never mounted. Absent: one of the cell's name, which the operator makes. */
  readonly serviceAccountName?: string;
  /** Secrets with which the image is pulled. Absent: none. */
  readonly imagePullSecrets?: readonly {
    /** Name of the Secret. */
    readonly name: string;
  }[];
  /** Environment variables of the member's container. Absent: none. */
  readonly env?: readonly {
    /** Name of the variable. */
    readonly name: string;
    /** Its value. */
    readonly value: string;
  }[];
}
/** Additions to the members' Pods. A change restarts the members one by one. Absent: none. */
export interface PodTemplate {
  /** Labels and annotations to add. Absent: none. */
  readonly metadata?: {
    /** Labels to add. Keys that begin with lockstep.dev/ or app.kubernetes.io/ belong to the operator. Absent: none. */
    readonly labels?: {
      readonly [k: string]: string;
    };
    /** Annotations to add. Keys that begin with lockstep.dev/ belong to the operator. Absent: none. */
    readonly annotations?: {
      readonly [k: string]: string;
    };
  };
  readonly spec?: PodOverlay;
}
/** With CertManager: the issuer, which must be able to sign URI names. Absent otherwise. */
export interface IssuerReference {
  /** Name of the issuer. */
  readonly name: string;
  /** Kind of the issuer. Default: Issuer. */
  readonly kind: "Issuer" | "ClusterIssuer";
  /** API group of the issuer. Default: cert-manager.io. */
  readonly group: string;
}
/** Certificates of the cell. Every port that carries state speaks TLS 1.3 with them. */
export interface TlsSpec {
  /** Who issues certificates. Managed: the operator, from an authority that it makes for this cell and whose key stays in the operator's namespace. CertManager: cert-manager, from issuerRef. Secret: you, in Secrets that you make. Immutable. Default: Managed. */
  readonly mode: "Managed" | "CertManager" | "Secret";
  readonly issuerRef?: IssuerReference;
  /** With Secret: name of each member's Secret (tls.crt, tls.key, ca.crt), where $(MEMBER) stands for the member's name. Its certificate carries the URI lockstep://CELL-UID/member/MEMBER. Absent: $(MEMBER)-tls. */
  readonly memberSecretName?: string;
  /** With Secret: name of the Secret (tls.crt, tls.key, ca.crt) with which the operator calls the cell; its certificate carries the URI lockstep://CELL-UID/admin/operator. Absent otherwise. */
  readonly operatorSecretName?: string;
  /** How long a certificate is valid, e.g. 2160h (90 days); it is renewed, without a restart, after two thirds of it. At least 1h. Of no effect with mode Secret. Default: 2160h. */
  readonly leafDuration: string;
  /** With Managed, when the authority is changed: how long applications get to load the Secret CELL-client again before the old authority is no longer trusted, in each of two phases. Kubelets bring a changed Secret to Pods within two minutes; raise it, e.g. to 168h, for applications that read theirs only when they start. At least 1m. Of no effect with other modes. Default: 5m. */
  readonly clientOverlap: string;
}
/** How changes that need a restart reach the members. */
export interface UpdatePolicy {
  /** Rolling: the operator restarts member by member, the leader last. Manual: only members that a CellOperation names. Default: Rolling. */
  readonly mode: "Rolling" | "Manual";
  /** Seconds that a restarted member must be ready and caught up before the next one is touched. Default: 10. */
  readonly minReadySeconds: number;
}
/** When a voter is replaced without a person asking. */
export interface ReplacementPolicy {
  /** AfterLoss: a voter is replaced when its node is gone from Kubernetes or the leader has not heard of it for `after`, at most once an hour for each cell, and only while a quorum is healthy. Never: only by a CellOperation or by deleting the CellMember. Default: AfterLoss. */
  readonly mode: "AfterLoss" | "Never";
  /** How long a voter must be lost, e.g. 10m; at least 10s. Default: 10m. */
  readonly after: string;
  /** What happens to a voter whose disk stays slow. Report: the condition Degraded says so. Replace: it is replaced like a lost one. Default: Report. */
  readonly slowDisk: "Report" | "Replace";
}
/** Settings of the members' program. A change restarts the members one by one. Absent: its defaults. */
export interface CellSettings {
  /** Live and retained data that the cell may hold, e.g. 4Gi; beyond it writes that grow it are refused. Absent: the default of the members' program. */
  readonly quota?: string;
  /** How long history is kept for watches that resume and for reads of the past, e.g. 1h; at least 1m. Absent: the default of the members' program, one hour. */
  readonly retention?: string;
  /** The least severe lines that members log. Absent: info. */
  readonly logLevel?: "debug" | "info" | "warn" | "error";
}
/** Kubernetes namespaces whose Namespace objects (cellnamespaces.lockstep.dev) may live in this cell. Absent: only the cell's own. */
export interface AllowedNamespaces {
  /** Same: the cell's own. All: every one. Selector: the cell's own and those that selector matches. Default: Same. */
  readonly from: "Same" | "All" | "Selector";
  /** With from Selector: labels that the Kubernetes namespace must have. Absent otherwise. */
  readonly selector?: {
    /** Labels that must all be there with these values. */
    readonly matchLabels: {
      readonly [k: string]: string;
    };
  };
}
/** Asks for a recovery after a quorum was lost for good: the cell goes on from one surviving member's volume under a new identity, and what only the lost majority had is gone. It names the identity that is to be left behind, so it fires at most once; remove it afterwards. Absent: none. */
export interface RecoverySpec {
  /** Name of the CellMember whose volume the cell goes on from. */
  readonly survivor: string;
  /** The cell's identity as status.cellId shows it now. If the cell has another one, nothing happens. */
  readonly cellId: string;
}
/** What the cell is to be. */
export interface CoordinationCellSpec {
  /** Members that vote: 1, 3 or 5. Three survive the loss of one, five of two, one of none (for development). May be changed at any time; each change is one joint change of the Raft configuration, and the cell never rests at 2 or 4. Default: 3. */
  readonly voters: 1 | 3 | 5;
  /** Image of the members, by tag or digest. A change is rolled out member by member, the leader last. Absent: the image that came with the operator when a member's Pod is made; an upgrade of the operator alone restarts no member. */
  readonly image?: string;
  /** When nodes pull the image. Absent: Kubernetes decides by the tag (Always for `latest`, IfNotPresent for any other). */
  readonly imagePullPolicy?: "Always" | "IfNotPresent" | "Never";
  readonly storage: StorageSpec;
  readonly topology: TopologySpec;
  readonly resources?: ResourceRequirements;
  readonly podTemplate?: PodTemplate;
  readonly tls: TlsSpec;
  readonly updatePolicy: UpdatePolicy;
  readonly replacementPolicy: ReplacementPolicy;
  readonly settings?: CellSettings;
  readonly allowedNamespaces?: AllowedNamespaces;
  /** True: the operator changes nothing about this cell, its Pods and its volumes; it goes on observing and writing the status. Default: false. */
  readonly paused?: boolean;
  readonly recovery?: RecoverySpec;
}
/** One aspect of an object's state. */
export interface Condition {
  /** Name of the aspect, in CamelCase. */
  readonly type: string;
  /** Whether it holds. */
  readonly status: "True" | "False" | "Unknown";
  /** Why, in one CamelCase word that stays the same between releases. */
  readonly reason: string;
  /** Why, in a sentence that names what is in the way and the next step. */
  readonly message: string;
  /** When status changed last. */
  readonly lastTransitionTime: string;
  /** The generation of the spec that this was decided on. Absent: not tied to one. */
  readonly observedGeneration?: number;
}
/** What is seen of one member. */
export interface MemberSummary {
  /** Name of the CellMember. */
  readonly name: string;
  /** Its id in the cell, never used twice. Absent: it has not joined. */
  readonly id?: number;
  /** Voter and Learner: in the cell's configuration as such. Leaving: a voter that a joint change takes out. Joining: not in the configuration yet. Gone: not in it any more. */
  readonly role: "Voter" | "Learner" | "Leaving" | "Joining" | "Gone";
  /** Whether it leads. Absent: no. */
  readonly leader?: boolean;
  /** Zone that was chosen for it. Absent: the cluster has no zones. */
  readonly zone?: string;
  /** Node that its Pod runs on. Absent: not placed. */
  readonly node?: string;
  /** Whether its Pod is ready. */
  readonly ready: boolean;
  /** Log entries that it is behind the leader. Absent: not known. */
  readonly lag?: number;
  /** Version of its program. Absent: not known. */
  readonly version?: string;
  /** Since when its disk is slow. Absent: it is not. */
  readonly slowSince?: string;
  /** Since when neither operator nor leader hears of it. Absent: it is not lost. */
  readonly lostSince?: string;
  /** What is the matter with it. Absent: nothing. */
  readonly message?: string;
}
/** The change that is under way; there is at most one. Absent: none. */
export interface OperationStatus {
  /** Tells this operation from every other; names of new members are made from it. */
  readonly id: string;
  /** What is being done. */
  readonly kind:
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
  /** What began it: the spec, a CellOperation, a CellMember that was deleted, a node that is drained, a lost member or a slow disk. */
  readonly trigger: "Spec" | "Requested" | "Deleted" | "Drained" | "Lost" | "SlowDisk";
  /** Why it was begun. */
  readonly cause: string;
  /** 1 for the first try, and more after tries of the same kind that were aborted. */
  readonly attempt: number;
  /** Where it is, one of the steps of its kind. */
  readonly step: string;
  /** When it entered that step. */
  readonly stepSince: string;
  /** What it waits for. */
  readonly message: string;
  /** When it was begun. */
  readonly startedAt: string;
  /** After it the operation is cancelled, if it still can be. */
  readonly deadline: string;
  /** Members that leave or are acted on. Absent: none. */
  readonly outgoing?: readonly string[];
  /** Members that come. Absent: none. */
  readonly incoming?: readonly string[];
  /** Name of the CellOperation that asked for it. Absent: the operator itself began it. */
  readonly requestedBy?: string;
  /** UID of the Pod that is to be made anew. Absent: none is. */
  readonly podUid?: string;
  /** Log index that the slowest incoming member had reached when the deadline was last moved. Absent: none. */
  readonly progress?: number;
}
/** The operation that ended last. Absent: none has. */
export interface FinishedOperation {
  /** Tells this operation from every other; names of new members are made from it. */
  readonly id: string;
  /** What is being done. */
  readonly kind:
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
  /** What began it: the spec, a CellOperation, a CellMember that was deleted, a node that is drained, a lost member or a slow disk. */
  readonly trigger: "Spec" | "Requested" | "Deleted" | "Drained" | "Lost" | "SlowDisk";
  /** Why it was begun. */
  readonly cause: string;
  /** 1 for the first try, and more after tries of the same kind that were aborted. */
  readonly attempt: number;
  /** Where it is, one of the steps of its kind. */
  readonly step: string;
  /** When it entered that step. */
  readonly stepSince: string;
  /** What it waits for. */
  readonly message: string;
  /** When it was begun. */
  readonly startedAt: string;
  /** After it the operation is cancelled, if it still can be. */
  readonly deadline: string;
  /** Members that leave or are acted on. Absent: none. */
  readonly outgoing?: readonly string[];
  /** Members that come. Absent: none. */
  readonly incoming?: readonly string[];
  /** Name of the CellOperation that asked for it. Absent: the operator itself began it. */
  readonly requestedBy?: string;
  /** UID of the Pod that is to be made anew. Absent: none is. */
  readonly podUid?: string;
  /** Log index that the slowest incoming member had reached when the deadline was last moved. Absent: none. */
  readonly progress?: number;
  /** When it ended. */
  readonly finishedAt: string;
  /** How it ended. */
  readonly result: string;
}
/** What the operator sees, and what it is doing. Can be rebuilt from the cell and its objects. */
export interface CoordinationCellStatus {
  /** The generation of the spec that the rest of the status was made from; -1: none yet. */
  readonly observedGeneration?: number;
  /** Ready, Reconciling, Stalled, Available, Degraded, QuorumHealthy, ZonesSpread, UpToDate, CertificatesValid and Paused. */
  readonly conditions?: readonly Condition[];
  /** One word for people: Creating, Ready, Changing, Degraded, Unavailable, Paused, Stalled or Deleting. Programs read the conditions. */
  readonly phase?: string;
  /** The identity that the cell drew for itself. Absent: it does not exist yet. */
  readonly cellId?: string;
  /** How often the cell was recovered; each time it took a new identity. Absent: never. */
  readonly recoveries?: number;
  /** Name of the member that leads. Absent: none is known. */
  readonly leader?: string;
  /** Voters in the cell's configuration. Absent: not known. */
  readonly voters?: number;
  /** Voters that are ready. Absent: not known. */
  readonly readyVoters?: number;
  /** Ready voters of those wanted, for people, e.g. 2/3. */
  readonly readiness?: string;
  /** Label selector of the voters' Pods, for the scale subresource. */
  readonly selector?: string;
  /** Version that the members run, the lowest if they differ. Absent: not known. */
  readonly version?: string;
  /** Format version that the cell has committed; it never goes back. Absent: not known. */
  readonly formatVersion?: number;
  /** Zones that voters are in. */
  readonly zones?: readonly string[];
  /** The members, by name. */
  readonly members?: readonly MemberSummary[];
  readonly operation?: OperationStatus;
  readonly lastOperation?: FinishedOperation;
  /** When a voter was last replaced without a person asking. Absent: never. */
  readonly lastAutomaticReplacement?: string;
  /** True from the moment that all initial voters had joined and clients were let in. Absent: not yet. */
  readonly admitted?: boolean;
  /** Where applications find the cell, within the Kubernetes cluster. Absent: not yet. */
  readonly endpoints?: {
    /** HOST:PORT for gRPC (native and etcd v3). */
    readonly client?: string;
    /** HOST:PORT for HTTP/JSON. */
    readonly http?: string;
  };
}
/** The cell that it lives in. Immutable. */
export interface CellReference {
  /** Name of the CoordinationCell. While there is none of the name, the Namespace waits. */
  readonly name: string;
  /** Kubernetes namespace of the cell, whose allowedNamespaces must let this one in. Absent: the same as this object's. */
  readonly namespace?: string;
}
/** What the Namespace is to be. */
export interface CellNamespaceSpec {
  readonly cellRef: CellReference;
  /** What becomes of the keys when this object is deleted. Retain: they stay in the cell. Delete: they are deleted with it. Default: Retain. */
  readonly deletionPolicy: "Retain" | "Delete";
}
/** What the operator sees. */
export interface CellNamespaceStatus {
  /** The generation of the spec that the rest of the status was made from; -1: none yet. */
  readonly observedGeneration?: number;
  /** Ready, Reconciling and Stalled. */
  readonly conditions?: readonly Condition[];
  /** One word for people. Absent: not seen yet. */
  readonly phase?: string;
  /** What clients send, NAME.KUBERNETES-NAMESPACE. */
  readonly wireName?: string;
  /** Counts the moves of the key space. Absent: not known. */
  readonly epoch?: number;
  /** KUBERNETES-NAMESPACE/NAME of the cell that holds it now. Absent: none. */
  readonly cell?: string;
}
/** What is to be done. Immutable; to ask for something else, make another one. */
export interface CellOperationSpec {
  /** Name of the CoordinationCell, in the same Kubernetes namespace. */
  readonly cell: string;
  /** Replace: another member takes the place of `member`. TransferLeadership: `member` leads, or any but the one that leads now. Restart: the Pod of `member` is made anew on its volume, with the image and settings of now. Drain: members on `node` are replaced elsewhere. Pause: nothing of the cell is changed for as long as this object is there. */
  readonly action: "Replace" | "TransferLeadership" | "Restart" | "Drain" | "Pause";
  /** Name of the CellMember. Absent with Drain; with TransferLeadership: any other than the one that leads. */
  readonly member?: string;
  /** With Drain: name of the Kubernetes node. Absent otherwise. */
  readonly node?: string;
}
/** How far it is. */
export interface CellOperationObjectStatus {
  /** The generation of the spec that the rest of the status was made from; -1: none yet. */
  readonly observedGeneration?: number;
  /** Ready (it succeeded), Reconciling (it waits or runs) and Stalled (it failed). */
  readonly conditions?: readonly Condition[];
  /** Pending: something else is being done first. Running: it is being done. Succeeded and Failed: it has ended. Absent: not seen yet. */
  readonly phase?: "Pending" | "Running" | "Succeeded" | "Failed";
  /** What it waits for, or how it ended. Absent: nothing to say. */
  readonly message?: string;
  /** When it began to run. Absent: it has not. */
  readonly startedAt?: string;
  /** When it ended. Absent: it has not. */
  readonly finishedAt?: string;
}
/** The volume. */
export interface MemberStorage {
  /** Size of the volume. May grow, not shrink. */
  readonly size: string;
  /** StorageClass of the volume. Immutable. Absent: the cluster's default class. */
  readonly storageClassName?: string;
}
/** What the member is. Written once, by the operator; only the size of its volume changes. */
export interface CellMemberSpec {
  /** Name of the CoordinationCell, in the same Kubernetes namespace. Immutable. */
  readonly cell: string;
  /** UID of the CoordinationCell; one of the same name made later is another cell. Immutable. */
  readonly cellUid: string;
  /** Always 1, for the scale subresource. Default: 1. */
  readonly replicas?: 1;
  /** Whether it is the first voter of the cell. Immutable. Default: false. */
  readonly bootstrap?: boolean;
  /** Zone that its Pod must run in. Immutable. Absent: the cluster has no zones. */
  readonly zone?: string;
  /** Name of the voter that it is to replace, whose node it may share. Immutable. Absent: it replaces none. */
  readonly replaces?: string;
  readonly storage: MemberStorage;
}
/** What is seen of the member. */
export interface CellMemberStatus {
  /** The generation of the spec that the rest of the status was made from; -1: none yet. */
  readonly observedGeneration?: number;
  /** Ready. */
  readonly conditions?: readonly Condition[];
  /** 1 while it has a Pod, for the scale subresource. */
  readonly replicas?: number;
  /** Label selector of its Pod, for the scale subresource. */
  readonly selector?: string;
  /** Its id in the cell, never used twice. Absent: it has not joined. */
  readonly memberId?: number;
  /** Identity of the cell that it joined. Absent: it has not joined. */
  readonly cellId?: string;
  /** What it is in the cell's configuration. Absent: not known. */
  readonly role?: "Voter" | "Learner" | "Leaving" | "Joining" | "Gone";
  /** Zone of the node that it runs on. Absent: not placed, or the node names none. */
  readonly zone?: string;
  /** Node that its Pod runs on. Absent: not placed. */
  readonly node?: string;
  /** Whether its Pod is ready. Absent: not known. */
  readonly ready?: boolean;
  /** What is the matter with it. Absent: nothing. */
  readonly message?: string;
}
