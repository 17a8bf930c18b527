/** What follows from an observation, derived once and read by every rule. */
import { parseDuration } from "../api/duration.ts";
import type {
  CellMember,
  CellOperation,
  CoordinationCell,
  CoordinationCellSpec,
  CoordinationCellStatus,
  MemberSummary,
  OperationStatus,
} from "../api/types.ts";
import type { CellConfiguration, MemberStatus } from "../cell/types.ts";
import { fromStamp, SILENT_MS } from "./time.ts";
import type { MemberView, Observation } from "./types.ts";

/** The cell refuses to promote a learner that is further behind; a voter that is, is not touched either. */
export const CAUGHT_UP_ENTRIES_MAX = 1_000;
/** Syncs of a healthy disk take a few milliseconds. */
const SLOW_SYNC_US = 200_000;
/** A restart or a short cut of the network is over by then. */
const GONE_MS = 20_000;
const DEFAULT_AFTER_MS = 10 * 60_000;

export interface MemberFacts {
  readonly name: string;
  readonly view: MemberView;
  readonly object: CellMember | undefined;
  /** Somebody deleted its CellMember. */
  readonly deleting: boolean;
  /** In the cell; undefined: never seen there. */
  readonly id: number | undefined;
  /** Undefined: the configuration in force, if one is known, does not have it. */
  readonly kind: "voter" | "learner" | "leaving" | undefined;
  readonly isLeader: boolean;
  /** Its own answer, when it is of this cell and of the disk that the configuration names. */
  readonly status: MemberStatus | undefined;
  /** The leader hears of it: it counts for a majority whatever Kubernetes says. */
  readonly heard: boolean;
  /** Not heard of for so long that it is no moment's weakness. */
  readonly gone: boolean;
  /** Entries behind the leader. */
  readonly lag: number | undefined;
  /** Furthest index that the leader knows it to have. */
  readonly match: number | undefined;
  readonly caughtUp: boolean;
  /** In the configuration, heard, caught up, answering, pod ready: may be counted on. */
  readonly healthy: boolean;
  readonly lostSinceMs: number | undefined;
  readonly slowSinceMs: number | undefined;
  /** Its pod is not what is wanted now. */
  readonly outdated: boolean;
  readonly zone: string | undefined;
  /** Node that it runs on, or that its volume ties it to. */
  readonly host: string | undefined;
}

export interface Facts {
  readonly o: Observation;
  readonly nowMs: number;
  readonly cell: CoordinationCell;
  readonly spec: CoordinationCellSpec;
  readonly previous: CoordinationCellStatus;
  readonly operation: OperationStatus | undefined;
  /** Undefined also when what answers is another cell than ours. */
  readonly configuration: CellConfiguration | undefined;
  /** The id of a cell that answers and is not ours. */
  readonly strangeCellId: string | undefined;
  readonly members: readonly MemberFacts[];
  /** Of the configuration; `leaving` ones too. */
  readonly voters: readonly MemberFacts[];
  readonly leader: MemberFacts | undefined;
  /** How long a loss must last before the member is replaced. */
  readonly lossAfterMs: number;
  /** Whether any member answered. */
  readonly anyAnswer: boolean;
  /** What says that nothing may be changed: `spec.paused`, or a CellOperation that is there for it. */
  readonly pausedBy: "spec.paused" | CellOperation | undefined;
}

export function quorumOf(voters: number): number {
  return Math.floor(voters / 2) + 1;
}

export function findMember(facts: Facts, name: string): MemberFacts | undefined {
  return facts.members.find((member) => member.name === name);
}

export function factsOf(o: Observation): Facts {
  const previous = rebuilt(o);
  const strange =
    o.configuration !== undefined &&
    previous.cellId !== undefined &&
    o.configuration.cellId !== previous.cellId;
  const configuration = strange ? undefined : o.configuration;
  const members = o.members.map((view) => memberFacts({ o, previous }, configuration, view));
  const { replacementPolicy } = o.cell.spec;
  return {
    o,
    nowMs: o.nowMs,
    cell: o.cell,
    spec: o.cell.spec,
    previous,
    operation: previous.operation,
    configuration,
    strangeCellId: strange ? o.configuration.cellId : undefined,
    members,
    voters: members.filter(({ kind }) => kind === "voter" || kind === "leaving"),
    leader: members.find(({ isLeader }) => isLeader),
    lossAfterMs: parseDuration(replacementPolicy.after) ?? DEFAULT_AFTER_MS,
    anyAnswer: o.members.some(({ status }) => status !== undefined),
    pausedBy:
      o.cell.spec.paused === true ? "spec.paused" : o.requests.find(({ spec }) => spec.action === "Pause"),
  };
}

interface Before {
  readonly o: Observation;
  readonly previous: CoordinationCellStatus;
}

/** A status that was lost is made again: the cell's id also stands at its members. */
function rebuilt(o: Observation): CoordinationCellStatus {
  const status = o.cell.status ?? {};
  if (status.cellId !== undefined) return status;
  const cellId = o.members.map(({ object }) => object?.status?.cellId).find((id) => id !== undefined);
  return cellId === undefined ? status : { ...status, cellId };
}

function memberFacts(
  { o, previous }: Before,
  configuration: CellConfiguration | undefined,
  view: MemberView,
): MemberFacts {
  const { name, object, pod } = view;
  const summary = previous.members?.find((member) => member.name === name);
  const configured = configuration?.members.find((member) => member.name === name);
  const cellId = previous.cellId ?? configuration?.cellId;
  const isOurs =
    (cellId === undefined || view.status?.cellId === cellId) &&
    (configured === undefined || view.status?.incarnation === configured.incarnation);
  const status = isOurs ? view.status : undefined;
  const id = configured?.id ?? object?.status?.memberId ?? summary?.id;
  const leading = configured !== undefined && configured.id === configuration?.leaderId;
  const progress = progressOf(o, configured?.id, leading);
  const lostSinceMs = lostSince(o, summary, progress);
  const caughtUp =
    leading || (progress?.state === "replicate" && progress.lag <= CAUGHT_UP_ENTRIES_MAX && progress.isHeard);
  const isReady = pod?.ready === true && !pod.terminating;
  return {
    name,
    view,
    object,
    deleting: object?.metadata.deletionTimestamp !== undefined,
    id,
    kind: configured?.kind,
    isLeader: leading,
    status,
    heard: leading || (progress?.isHeard === true && lostSinceMs === undefined),
    gone:
      !leading &&
      configured !== undefined &&
      o.leader !== undefined &&
      lostSinceMs !== undefined &&
      (o.nowMs - lostSinceMs >= GONE_MS || view.node === "gone"),
    lag: leading ? 0 : progress?.lag,
    match: progress?.match,
    caughtUp,
    healthy:
      configured !== undefined &&
      status?.ready === true &&
      isReady &&
      caughtUp &&
      lostSinceMs === undefined &&
      view.claim?.phase !== "Lost",
    lostSinceMs,
    slowSinceMs: slowSince(o, summary, status),
    outdated: isOutdated(view, cellId),
    zone: object?.spec.zone ?? summary?.zone ?? view.claim?.zone ?? nodeZone(view),
    host: pod?.node ?? view.claim?.node,
  };
}

interface ProgressFacts {
  readonly state: "probe" | "replicate" | "snapshot";
  readonly match: number;
  readonly lag: number;
  readonly recentlyActive: boolean;
  readonly silentMs: number;
  readonly isHeard: boolean;
}

function progressOf(o: Observation, id: number | undefined, leading: boolean): ProgressFacts | undefined {
  if (id === undefined || leading || o.leader === undefined) return undefined;
  const progress = o.leader.progress.find(({ memberId }) => memberId === id);
  if (progress === undefined) return undefined;
  return {
    ...progress,
    lag: Math.max(0, o.leader.lastIndex - progress.match),
    isHeard: progress.recentlyActive || progress.silentMs <= SILENT_MS,
  };
}

/**
 * A new leader counts silence from its own beginning: so only a sign of life ends a loss, and a loss that was noticed
 * before goes on.
 */
function lostSince(
  o: Observation,
  summary: MemberSummary | undefined,
  progress: ProgressFacts | undefined,
): number | undefined {
  const before = fromStamp(summary?.lostSince);
  if (progress === undefined) return o.leader === undefined ? before : undefined;
  if (progress.recentlyActive) return undefined;
  const sinceNow = progress.silentMs > SILENT_MS ? o.nowMs - progress.silentMs : undefined;
  return before === undefined ? sinceNow : Math.min(before, sinceNow ?? before);
}

function slowSince(
  o: Observation,
  summary: MemberSummary | undefined,
  status: MemberStatus | undefined,
): number | undefined {
  const before = fromStamp(summary?.slowSince);
  if (status === undefined) return before;
  return status.syncP90Us > SLOW_SYNC_US ? (before ?? o.nowMs) : undefined;
}

/** A pod that would found a cell again on an emptied volume is not wanted once the cell is known. */
function isOutdated(view: MemberView, cellId: string | undefined): boolean {
  const { pod } = view;
  if (pod === undefined) return false;
  const founds = pod.start === "bootstrap" || pod.start === "recover";
  return pod.specHash !== view.wantedSpecHash || (founds && cellId !== undefined);
}

function nodeZone(view: MemberView): string | undefined {
  return view.node === "gone" ? undefined : view.node?.zone;
}
