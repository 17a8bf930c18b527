/** Observations in a few words: what is not said is well. */
import type {
  CoordinationCellSpec,
  CoordinationCellStatus,
  CellMember,
  CellOperation,
  CellOperationSpec,
  OperationStatus,
} from "../../api/types.ts";
import { API_VERSION } from "../../api/types.ts";
import type { MemberProgress, MemberStatus } from "../../cell/types.ts";
import { toStamp } from "../time.ts";
import type { ClaimView, MemberView, NodeView, Observation, PodView } from "../types.ts";

export const NOW_MS: number = Date.parse("2030-01-01T12:00:00Z");
const CONFIGURATION_INDEX = 70;
const LAST_INDEX = 10_000;

export interface SceneMember {
  /** Absent: the configuration does not have it. */
  readonly is?: "leader" | "voter" | "learner" | "leaving";
  /** Default: one after the other. */
  readonly id?: number;
  /** Its program answers and is ready. Default true for voters. */
  readonly answers?: boolean;
  /** How long the leader has not heard of it. Default 0. */
  readonly silentMs?: number;
  readonly lag?: number;
  readonly deleting?: boolean;
  /** No CellMember. */
  readonly forsaken?: boolean;
  readonly bootstrap?: boolean;
  readonly outdated?: boolean;
  readonly pod?: Partial<PodView> | "missing";
  readonly claim?: Partial<ClaimView> | "missing";
  /** Default: one of its own, which is there. */
  readonly node?: "gone" | "unplaced";
  readonly nodeReady?: boolean;
  readonly zone?: string;
  readonly status?: Partial<MemberStatus>;
}

export interface Scene {
  readonly spec?: Partial<CoordinationCellSpec>;
  readonly status?: CoordinationCellStatus;
  /** By name; nodes are node-a for a, and so on, each in its own zone unless said. */
  readonly members?: Readonly<Record<string, SceneMember>>;
  /** Nobody can prove what is current. */
  readonly blind?: boolean;
  readonly joint?: boolean;
  readonly requests?: readonly CellOperationSpec[];
  readonly deleting?: boolean;
  readonly over?: Partial<Observation>;
}

export function scene(from: Scene): Observation {
  const described = Object.entries(from.members ?? {}).map(([name, member], i) => ({
    ...member,
    name,
    id: member.id ?? i + 1,
  }));
  const configured = described.filter(({ is }) => is !== undefined);
  const leader = configured.find(({ is }) => is === "leader");
  const isKnown = from.blind !== true && configured.length > 0;
  const views = described.map((member) => viewOf(member));
  const voters = configured.filter(({ is }) => is === "leader" || is === "voter").length;
  const names = new Set(described.map(({ name }) => name));
  return {
    nowMs: NOW_MS,
    cell: {
      apiVersion: API_VERSION,
      kind: "CoordinationCell",
      metadata: {
        name: "cell",
        namespace: "default",
        uid: "cell-uid",
        generation: 7,
        ...(from.deleting === true ? { deletionTimestamp: toStamp(NOW_MS) } : {}),
      },
      spec: { ...SPEC, ...from.spec },
      status: {
        ...(configured.length > 0 ? { cellId: "id-1", admitted: true, voters } : {}),
        ...from.status,
      },
    },
    members: views,
    configuration: isKnown
      ? {
          cellId: "id-1",
          configurationIndex: CONFIGURATION_INDEX,
          joint: from.joint === true,
          leaderId: leader?.id ?? 0,
          members: configured.map(({ id, name, is }) => ({
            id,
            name,
            incarnation: `disk-${name}`,
            kind: is === "learner" || is === "leaving" ? is : "voter",
          })),
          removedIds: [],
        }
      : undefined,
    leader: isKnown && leader !== undefined ? leaderStatus(leader, configured) : undefined,
    orphanedClaims: [],
    nodes: ["a", "b", "c", "d", "e", "f", "g"].map((letter) => nodeOf(`node-${letter}`, letter)),
    requests: (from.requests ?? []).map((spec, i) => requestOf(spec, i)),
    tenants: [],
    namespaceTerminating: false,
    mayRoll: true,
    certificates: { kind: "ready", message: "", notAfterMs: undefined, due: undefined },
    outdatedObjects: [],
    obstacles: [],
    disruptionBudget: wantedBudgetOf(from.status?.operation, voters === 0 ? 1 : voters),
    ...(names.size === 0 && from.over?.disruptionBudget === undefined ? { disruptionBudget: 1 } : {}),
    ...from.over,
  };
}

const SPEC: CoordinationCellSpec = {
  voters: 3,
  image: "v1",
  storage: { size: "1Gi", reclaimPolicy: "Delete" },
  topology: { zoneKey: "topology.kubernetes.io/zone", hostSpread: "Required" },
  tls: { mode: "Managed", leafDuration: "2160h", clientOverlap: "5m" },
  updatePolicy: { mode: "Rolling", minReadySeconds: 10 },
  replacementPolicy: { mode: "AfterLoss", after: "10m", slowDisk: "Report" },
};

/** An operation under way; it begins a minute ago and has time. */
export function operation(from: Pick<OperationStatus, "kind"> & Partial<OperationStatus>): OperationStatus {
  return {
    id: "operation",
    trigger: "Spec",
    cause: "a test",
    attempt: 1,
    step: "begin",
    stepSince: toStamp(NOW_MS - 60_000),
    message: "",
    startedAt: toStamp(NOW_MS - 60_000),
    deadline: toStamp(NOW_MS + 60_000),
    ...from,
  };
}

type Described = SceneMember & { readonly name: string; readonly id: number };

function viewOf(member: Described): MemberView {
  const { name, is, id, deleting, bootstrap, forsaken } = member;
  const host = member.node === "unplaced" ? undefined : `node-${name}`;
  const answers = member.answers ?? is !== undefined;
  const object: CellMember = {
    apiVersion: API_VERSION,
    kind: "CellMember",
    metadata: {
      name,
      namespace: "default",
      uid: `member-${name}`,
      ...(deleting === true ? { deletionTimestamp: toStamp(NOW_MS) } : {}),
    },
    spec: {
      cell: "cell",
      cellUid: "cell-uid",
      zone: member.zone ?? name,
      storage: { size: "1Gi" },
      ...(bootstrap === true ? { bootstrap } : {}),
    },
    ...(is === undefined ? {} : { status: { memberId: id, cellId: "id-1" } }),
  };
  const isVoter = is === "leader" || is === "voter";
  return {
    name,
    object: forsaken === true ? undefined : object,
    pod: member.pod === "missing" ? undefined : { ...podOf(name, member, host), ...member.pod },
    claim: member.claim === "missing" ? undefined : { ...claimOf(name), ...member.claim },
    node:
      member.node === "gone"
        ? "gone"
        : host === undefined
          ? undefined
          : { ...nodeOf(host, member.zone ?? name), ready: member.nodeReady ?? true },
    status: answers ? statusOf(member, isVoter) : undefined,
    wantedSpecHash: "wanted",
  };
}

function podOf(name: string, member: Described, host: string | undefined): PodView {
  const isVoter = member.is === "leader" || member.is === "voter";
  const ready = (member.answers ?? true) && isVoter;
  const role = member.is === undefined || member.is === "learner" ? "learner" : "voter";
  return {
    name,
    uid: `pod-${name}`,
    phase: "Running",
    node: host,
    ready,
    terminating: false,
    start: "existing",
    specHash: member.outdated === true ? "old" : "wanted",
    image: "v1",
    createdAtMs: NOW_MS - 3_600_000,
    readySinceMs: ready ? NOW_MS - 3_600_000 : undefined,
    restarts: 0,
    trouble: undefined,
    labels: { "lockstep.dev/role": role },
  };
}

function claimOf(name: string): ClaimView {
  return {
    name,
    uid: `claim-${name}`,
    phase: "Bound",
    terminating: false,
    requestedBytes: 2 ** 30,
    capacityBytes: 2 ** 30,
    zone: undefined,
    node: `node-${name}`,
    trouble: undefined,
  };
}

export function nodeOf(name: string, zone: string): NodeView {
  return { name, zone, ready: true, schedulable: true };
}

function statusOf(member: Described, ready: boolean): MemberStatus {
  return {
    cellId: "id-1",
    memberId: member.id,
    name: member.name,
    incarnation: `disk-${member.name}`,
    version: "v1",
    formatVersion: 1,
    formatVersionMax: 1,
    role: member.is === "leader" ? "leader" : "follower",
    term: 3,
    leaderId: 1,
    lastIndex: LAST_INDEX,
    commitIndex: LAST_INDEX,
    appliedIndex: LAST_INDEX,
    revision: LAST_INDEX,
    configurationIndex: CONFIGURATION_INDEX,
    joint: false,
    alarms: [],
    progress: [],
    freeBytes: 5e8,
    volumeBytes: 1e9,
    ready,
    notReady: ready ? "" : "a learner",
    syncP90Us: 2_000,
    tls: undefined,
    ...member.status,
  };
}

function leaderStatus(leader: Described, members: readonly Described[]): MemberStatus {
  const progress = members
    .filter(({ id }) => id !== leader.id)
    .map(({ id, silentMs = 0, lag = 0 }): MemberProgress => ({
      memberId: id,
      state: silentMs > 0 ? "probe" : "replicate",
      match: LAST_INDEX - lag,
      recentlyActive: silentMs === 0,
      silentMs,
    }));
  return { ...statusOf(leader, true), progress };
}

function requestOf(spec: CellOperationSpec, i: number): CellOperation {
  return {
    apiVersion: API_VERSION,
    kind: "CellOperation",
    metadata: {
      name: `wish-${String(i + 1)}`,
      namespace: "default",
      uid: `wish-${String(i + 1)}`,
      creationTimestamp: toStamp(NOW_MS - 120_000),
    },
    spec,
  };
}

function wantedBudgetOf(under: OperationStatus | undefined, voters: number): number {
  const isExclusive = under !== undefined && under.kind !== "Transfer" && under.kind !== "Recover";
  return isExclusive ? voters : Math.floor(voters / 2) + 1;
}
