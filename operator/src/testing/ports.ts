import { CellAdminError } from "../cell/types.ts";
import type {
  CellAdmin,
  CellConfiguration,
  MembershipChange,
  MemberStatus,
  MemberTarget,
} from "../cell/types.ts";
import { KubeError } from "../kube/types.ts";
import type {
  DeleteOptions,
  KubeClient,
  KubeObject,
  ListOptions,
  ObjectRef,
  ResourceKind,
} from "../kube/types.ts";
import type { Cluster, Process } from "./cluster.ts";
import type { RaftCell } from "./raft-cell.ts";

/** What may happen to one call of an operator. */
export type CallFault =
  | "none"
  /** It takes a while; others go on meanwhile. */
  | "slow"
  /** Refused, and not done. */
  | "conflict"
  | "throttled"
  | "unavailable"
  /** Done, and the answer is lost. */
  | "unknown"
  /** The operator's process ends before or after it. */
  | "crash-before"
  | "crash-after";

/** The operator's process ended in the middle of a pass. */
export class Crash extends Error {
  override readonly name = "Crash";
}

export interface Gate {
  /** Decides about one call. */
  readonly fault: (call: string, isWrite: boolean) => CallFault;
  /** Resolves when a slow call goes on. */
  readonly park: () => Promise<void>;
  /** How old what is read may be. */
  readonly lagMs: () => number;
}

async function through<T>(gate: Gate, call: string, isWrite: boolean, done: () => T): Promise<T> {
  const fault = gate.fault(call, isWrite);
  switch (fault) {
    case "none":
      return done();
    case "slow":
      await gate.park();
      return done();
    case "crash-before":
      throw new Crash(`before ${call}`);
    case "conflict":
      throw new KubeError("conflict", "somebody else was faster", { status: 409 });
    case "throttled":
      throw new KubeError("throttled", "too many requests", { status: 429 });
    case "unavailable":
      throw new KubeError("unavailable", "try later", { status: 503 });
    case "unknown":
      done();
      throw new KubeError("unavailable", "the answer is lost", { status: 0 });
    case "crash-after":
      done();
      throw new Crash(`after ${call}`);
  }
}

/** Kubernetes as one operator reaches it. */
export class SimKube implements KubeClient {
  readonly #cluster: Cluster;
  readonly #gate: Gate;

  constructor(cluster: Cluster, gate: Gate) {
    this.#cluster = cluster;
    this.#gate = gate;
  }

  get<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef): Promise<T | undefined> {
    return this.#read(`get ${kind.kind}`, () => this.#cluster.api.get(kind, ref));
  }

  list<T extends KubeObject>(kind: ResourceKind<T>, options?: ListOptions): Promise<readonly T[]> {
    return this.#read(`list ${kind.kind}`, () => this.#cluster.api.list(kind, options));
  }

  create<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T> {
    return this.#write(`create ${kind.kind}`, () => this.#cluster.api.create(kind, object));
  }

  apply<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T> {
    return this.#write(`apply ${kind.kind}`, () => this.#cluster.api.apply(kind, object));
  }

  applyStatus<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T> {
    return this.#write(`status ${kind.kind}`, () => this.#cluster.api.applyStatus(kind, object));
  }

  mergePatch<T extends KubeObject>(
    kind: ResourceKind<T>,
    ref: ObjectRef,
    patch: Readonly<Record<string, unknown>>,
    options?: { readonly resourceVersion?: string },
  ): Promise<T> {
    return this.#write(`patch ${kind.kind}`, () =>
      this.#cluster.api.mergePatch(kind, ref, patch, options?.resourceVersion),
    );
  }

  delete(kind: ResourceKind, ref: ObjectRef, options: DeleteOptions): Promise<void> {
    return this.#write(`delete ${kind.kind}`, () => this.#cluster.api.delete(kind, ref, options));
  }

  #read<T>(call: string, done: () => T): Promise<T> {
    return through(this.#gate, call, false, done);
  }

  #write<T>(call: string, done: () => T): Promise<T> {
    return through(this.#gate, call, true, done);
  }
}

const VOLUME_BYTES = 1e10;
const FORMATS: Readonly<Record<string, number>> = { v1: 1, v2: 2, v3: 3 };

/** The cells' admin API as one operator reaches it. */
export class SimAdmin implements CellAdmin {
  readonly #cluster: Cluster;
  readonly #gate: Gate;

  constructor(cluster: Cluster, gate: Gate) {
    this.#cluster = cluster;
    this.#gate = gate;
  }

  status(target: MemberTarget): Promise<MemberStatus> {
    return this.#call("status", false, () => {
      const process = this.#processAt(target);
      return statusOf(this.#cluster, process, this.#cellOf(process));
    });
  }

  configuration(target: MemberTarget): Promise<CellConfiguration> {
    return this.#call("configuration", false, () => {
      const cell = this.#cellOf(this.#processAt(target));
      if (!cell.hasMajority(this.#cluster.reachable(cell.id))) {
        throw new CellAdminError("timeout", "no majority confirms it", "not-applied");
      }
      return cell.describe();
    });
  }

  changeMembership(target: MemberTarget, change: MembershipChange): Promise<void> {
    return this.#call("changeMembership", true, () => this.#leaderAt(target).change(change));
  }

  transferLeadership(target: MemberTarget, memberId: number): Promise<number> {
    return this.#call("transferLeadership", true, () => this.#leaderAt(target).transfer(memberId));
  }

  raiseFormatVersion(target: MemberTarget, version: number, plannedOn: number): Promise<void> {
    return this.#call("raiseFormatVersion", true, () => {
      const cell = this.#leaderAt(target);
      if (plannedOn !== cell.configurationIndex) {
        throw new CellAdminError("stale-plan", "planned on another configuration", "not-applied");
      }
      cell.formatVersion = Math.max(cell.formatVersion, version);
    });
  }

  listNamespaces(): Promise<readonly never[]> {
    return Promise.resolve([]);
  }

  createNamespace(): Promise<never> {
    return Promise.reject(new CellAdminError("unimplemented", "no tenants here", "not-applied"));
  }

  deleteNamespace(): Promise<void> {
    return Promise.reject(new CellAdminError("unimplemented", "no tenants here", "not-applied"));
  }

  async #call<T>(call: string, isWrite: boolean, done: () => T): Promise<T> {
    try {
      return await through(this.#gate, call, isWrite, done);
    } catch (error) {
      if (!(error instanceof KubeError)) throw error;
      throw new CellAdminError("unreachable", error.message, isWrite ? "unknown" : "not-applied");
    }
  }

  #processAt(target: MemberTarget): Process {
    const process = this.#cluster.processAt(target.address.split(":")[0] ?? "");
    if (process?.state !== "running" || !this.#cluster.isConnected(process.node)) {
      throw new CellAdminError("unreachable", `${target.address} does not answer`, "not-applied");
    }
    return process;
  }

  #cellOf(process: Process): RaftCell {
    const cell = this.#cluster.cells.get(process.disk.cellId ?? "");
    if (cell === undefined) throw new CellAdminError("unreachable", "not a member yet", "not-applied");
    return cell;
  }

  #leaderAt(target: MemberTarget): RaftCell {
    const process = this.#processAt(target);
    const cell = this.#cellOf(process);
    if (cell.leaderId !== process.disk.memberId) {
      throw new CellAdminError("not-leader", "ask the leader", "not-applied");
    }
    return cell;
  }
}

function statusOf(cluster: Cluster, process: Process, cell: RaftCell): MemberStatus {
  const { disk, image, name } = process;
  const known = cell.knownBy(disk.memberId);
  const isLeader = cell.leaderId === disk.memberId;
  const ready = cluster.isReady(process);
  return {
    cellId: cell.id,
    memberId: disk.memberId,
    name,
    incarnation: disk.incarnation ?? "",
    version: image,
    formatVersion: cell.formatVersion,
    formatVersionMax: FORMATS[image] ?? 1,
    role: isLeader ? "leader" : "follower",
    term: cell.term,
    leaderId: cluster.reachable(cell.id).has(disk.memberId) ? cell.leaderId : 0,
    lastIndex: cell.matchOf(disk.memberId),
    commitIndex: Math.min(cell.commitIndex, cell.matchOf(disk.memberId)),
    appliedIndex: Math.min(cell.commitIndex, cell.matchOf(disk.memberId)),
    revision: cell.commitIndex,
    configurationIndex: known.index,
    joint: known.joint,
    alarms: [],
    progress: isLeader ? cell.progress() : [],
    freeBytes: VOLUME_BYTES / 2,
    volumeBytes: VOLUME_BYTES,
    ready,
    notReady: ready ? "" : "not a voter, or no leader",
    syncP90Us: disk.slow ? 900_000 : 3_000,
    tls: undefined,
  };
}
