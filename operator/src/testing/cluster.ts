import type { Node, PersistentVolume, PersistentVolumeClaim, Pod } from "../api/core.ts";
import {
  CELL_MEMBER,
  COORDINATION_CELL,
  NODE,
  PERSISTENT_VOLUME,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
  SERVICE,
  SERVICE_ACCOUNT,
} from "../api/kinds.ts";
import { ANNOTATION, LABEL } from "../api/labels.ts";
import type { ResourceKind } from "../kube/types.ts";
import { compareQuantities } from "../api/quantity.ts";
import { toStamp } from "../plan/time.ts";
import { Apiserver } from "./apiserver.ts";
import type { Dice } from "./dice.ts";
import { fits } from "./fits.ts";
import { RaftCell } from "./raft-cell.ts";
import type { RaftWorld } from "./raft-cell.ts";

export const ZONE_KEY = "topology.kubernetes.io/zone";

export interface SimNode {
  readonly name: string;
  readonly zone: string;
  /** Powered on. */
  up: boolean;
  /** Its network is cut: it runs, and neither Kubernetes nor other members reach it. */
  cut: boolean;
  /** Gone for good, with its disks. */
  gone: boolean;
  heardMs: number;
}

/** What is on a volume. */
export interface Disk {
  readonly volume: string;
  incarnation: string | undefined;
  cellId: string | undefined;
  memberId: number;
  /** Slow: see the admin API's sync time. */
  slow: boolean;
}

/** A member's program in a container. */
export interface Process {
  readonly podUid: string;
  readonly name: string;
  readonly node: string;
  readonly ip: string;
  readonly image: string;
  readonly disk: Disk;
  state: "joining" | "running" | "failing";
  trouble: string;
}

export interface ClusterOptions {
  readonly dice: Dice;
  readonly zones: readonly string[];
  /** Volumes are tied to a node; otherwise to a zone. */
  readonly localVolumes: boolean;
  readonly violate: (law: string) => void;
  /** A membership change of voters is accepted. */
  readonly decided: (cell: RaftCell, before: readonly number[], after: readonly number[]) => void;
}

/** What the garbage collector looks at. */
const COLLECTED: readonly ResourceKind[] = [
  COORDINATION_CELL,
  CELL_MEMBER,
  POD,
  PERSISTENT_VOLUME_CLAIM,
  SERVICE,
  SERVICE_ACCOUNT,
  POD_DISRUPTION_BUDGET,
];
const NOT_READY_AFTER_MS = 10_000;
const EVICT_AFTER_MS = 60_000;
const START_MS = 1_000;
const GRACE_MS = 1_000;

/** Nodes, scheduler, kubelets, volumes and the members' programs; simulated time. */
export class Cluster {
  readonly options: ClusterOptions;
  readonly api: Apiserver;
  readonly nodes: Map<string, SimNode> = new Map();
  readonly disks: Map<string, Disk> = new Map();
  readonly processes: Map<string, Process> = new Map();
  readonly cells: Map<string, RaftCell> = new Map();
  nowMs: number = Date.parse("2030-01-01T00:00:00Z");
  /** Images that do not exist. */
  readonly badImages: Set<string> = new Set(["bad"]);
  /** Cells founded by a bootstrap. */
  readonly founded: string[] = [];
  copyPerS = 4_000;
  #serial = 0;
  readonly #endedMs = new Map<string, number>();
  readonly #placedMs = new Map<string, number>();
  /** When a member was last seen to be reachable, by `CELL/ID`. */
  readonly #seenMs = new Map<string, number>();

  constructor(options: ClusterOptions) {
    this.options = options;
    this.api = new Apiserver(() => this.nowMs);
    for (const [i, zone] of options.zones.entries()) this.addNode(`node-${String(i + 1)}`, zone);
  }

  addNode(name: string, zone: string): void {
    this.nodes.set(name, { name, zone, up: true, cut: false, gone: false, heardMs: this.nowMs });
    const node: Node = {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name, labels: { [ZONE_KEY]: zone, "kubernetes.io/hostname": name } },
      spec: {},
      status: { conditions: [{ type: "Ready", status: "True" }] },
    };
    this.api.create(NODE, node);
  }

  /** Runs for `elapsedMs`. */
  tick(elapsedMs: number): void {
    this.nowMs += elapsedMs;
    this.#keepNodes();
    for (const pod of this.api.list(POD)) {
      if (pod.spec.nodeName === undefined) this.#schedule(pod);
      else this.#runPod(pod, pod.spec.nodeName);
    }
    this.#stopStrays();
    this.#keepClaims();
    if (this.api.hasLost) this.api.collectGarbage(COLLECTED);
    for (const process of this.processes.values()) {
      if (process.state === "joining") this.#join(process);
    }
    for (const cell of this.cells.values()) {
      cell.copyPerS = this.copyPerS;
      cell.tick(this.nowMs);
      for (const id of this.reachable(cell.id)) this.#seenMs.set(`${cell.id}/${String(id)}`, this.nowMs);
    }
  }

  isConnected(node: string): boolean {
    const it = this.nodes.get(node);
    return it !== undefined && it.up && !it.cut && !it.gone;
  }

  reachable(cellId: string): ReadonlySet<number> {
    const ids = new Set<number>();
    for (const { state, disk, node } of this.processes.values()) {
      if (state === "running" && disk.cellId === cellId && this.isConnected(node)) ids.add(disk.memberId);
    }
    return ids;
  }

  /** Reachable now, or so lately that nobody can know better. */
  lately(cellId: string, ms: number): ReadonlySet<number> {
    const ids = new Set(this.reachable(cellId));
    for (const [key, at] of this.#seenMs) {
      const [cell, id] = key.split("/");
      if (cell === cellId && this.nowMs - at <= ms) ids.add(Number(id));
    }
    return ids;
  }

  processOf(name: string): Process | undefined {
    return [...this.processes.values()].find((process) => process.name === name);
  }

  processAt(ip: string): Process | undefined {
    return [...this.processes.values()].find((process) => process.ip === ip);
  }

  diskOf(claim: PersistentVolumeClaim): Disk | undefined {
    return this.disks.get(claim.spec.volumeName ?? "");
  }

  /** The container is restarted by its kubelet. */
  kill(process: Process): void {
    this.processes.delete(process.podUid);
    this.#placedMs.set(process.podUid, this.nowMs);
  }

  wipe(disk: Disk): void {
    for (const process of this.processes.values()) if (process.disk === disk) this.kill(process);
    disk.incarnation = undefined;
    disk.cellId = undefined;
    disk.memberId = 0;
  }

  loseNode(name: string): void {
    const node = this.nodes.get(name);
    if (node === undefined) return;
    node.gone = true;
    node.up = false;
    this.api.remove(NODE, { name });
    for (const process of this.processes.values()) {
      if (process.node === name) this.processes.delete(process.podUid);
    }
  }

  /** An eviction as `kubectl drain` asks for it. @returns whether the budget allowed it. */
  evict(pod: Pod): boolean {
    const [budget] = this.api.list(
      POD_DISRUPTION_BUDGET,
      pod.metadata.namespace === undefined ? {} : { namespace: pod.metadata.namespace },
    );
    const isReady = (it: Pod): boolean =>
      it.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
    if (budget !== undefined && pod.metadata.labels?.[LABEL.role] === "voter") {
      const healthy = this.api
        .list(POD)
        .filter(
          (it) =>
            it.metadata.labels?.[LABEL.role] === "voter" &&
            isReady(it) &&
            it.metadata.deletionTimestamp === undefined,
        );
      const allowed = healthy.length - budget.spec.minAvailable;
      if (isReady(pod) ? allowed <= 0 : healthy.length < budget.spec.minAvailable) return false;
    }
    this.api.delete(POD, pod.metadata);
    return true;
  }

  #keepNodes(): void {
    for (const node of this.nodes.values()) {
      if (node.gone) continue;
      if (this.isConnected(node.name)) node.heardMs = this.nowMs;
      if (!node.up) {
        for (const process of this.processes.values()) {
          if (process.node === node.name) this.processes.delete(process.podUid);
        }
      }
      const ready = this.nowMs - node.heardMs < NOT_READY_AFTER_MS;
      const object = this.api.get(NODE, { name: node.name });
      const was = object?.status?.conditions?.[0]?.status === "True";
      if (object === undefined || was === ready) continue;
      const conditions = [{ type: "Ready", status: ready ? "True" : "Unknown" } as const];
      this.api.applyStatus(NODE, { ...object, metadata: { name: node.name }, status: { conditions } });
    }
    for (const pod of this.api.list(POD)) {
      const node = this.nodes.get(pod.spec.nodeName ?? "");
      if (node === undefined) continue;
      // The garbage collector of pods knows that nobody will ever end them.
      if (node.gone) this.api.remove(POD, pod.metadata);
      else if (this.nowMs - node.heardMs > EVICT_AFTER_MS) this.api.delete(POD, pod.metadata);
      else if (this.nowMs - node.heardMs >= NOT_READY_AFTER_MS)
        this.#setStatus(pod, false, pod.status?.phase ?? "Pending");
    }
  }

  #schedule(pod: Pod): void {
    const claim = this.#claimOf(pod);
    if (claim === undefined || pod.metadata.deletionTimestamp !== undefined) return;
    const volume =
      claim.spec.volumeName === undefined
        ? undefined
        : this.api.get(PERSISTENT_VOLUME, { name: claim.spec.volumeName });
    const fitting = this.api.list(NODE).filter((node) => fits(node, pod, volume));
    if (fitting.length === 0) {
      const message = "0 nodes fit";
      const condition = { type: "PodScheduled", status: "False", reason: "Unschedulable", message } as const;
      this.api.applyStatus(POD, {
        ...pod,
        metadata: bare(pod),
        status: { phase: "Pending", conditions: [condition] },
      });
      return;
    }
    const node = this.options.dice.pick(fitting);
    this.api.mergePatch(POD, pod.metadata, { spec: { nodeName: node.metadata.name } });
    this.#placedMs.set(pod.metadata.uid ?? "", this.nowMs);
    if (volume === undefined) this.#provision(claim, node);
  }

  #provision(claim: PersistentVolumeClaim, node: Node): void {
    const name = `pv-${String((this.#serial += 1))}`;
    const key = this.options.localVolumes ? "kubernetes.io/hostname" : ZONE_KEY;
    const values = [node.metadata.labels?.[key] ?? ""];
    const volume: PersistentVolume = {
      apiVersion: "v1",
      kind: "PersistentVolume",
      metadata: { name },
      spec: {
        nodeAffinity: {
          required: { nodeSelectorTerms: [{ matchExpressions: [{ key, operator: "In", values }] }] },
        },
      },
    };
    this.api.create(PERSISTENT_VOLUME, volume);
    this.disks.set(name, {
      volume: name,
      incarnation: undefined,
      cellId: undefined,
      memberId: 0,
      slow: false,
    });
    this.api.mergePatch(PERSISTENT_VOLUME_CLAIM, claim.metadata, {
      spec: { volumeName: name },
      status: { phase: "Bound", capacity: { storage: claim.spec.resources.requests.storage } },
    });
  }

  #runPod(pod: Pod, nodeName: string): void {
    const node = this.nodes.get(nodeName);
    const uid = pod.metadata.uid ?? "";
    if (node === undefined || !this.isConnected(nodeName)) return;
    if (pod.metadata.deletionTimestamp !== undefined) {
      const since = this.#endedMs.get(uid) ?? this.nowMs;
      this.#endedMs.set(uid, since);
      if (this.nowMs - since < GRACE_MS) return;
      this.processes.delete(uid);
      this.api.remove(POD, pod.metadata);
      return;
    }
    if (pod.status?.phase === "Failed" || pod.status?.phase === "Succeeded") {
      this.processes.delete(uid);
      return;
    }
    const process = this.processes.get(uid);
    if (process === undefined) {
      if (this.nowMs - (this.#placedMs.get(uid) ?? 0) >= START_MS) this.#start(pod, node);
      else this.#setStatus(pod, false, "Pending");
      return;
    }
    if (process.state === "failing") {
      this.#setTrouble(pod, "CrashLoopBackOff", process.trouble);
      // A container that ended is started again: what was amiss may have changed.
      this.kill(process);
      return;
    }
    this.#setStatus(pod, this.isReady(process), "Running", process.ip);
  }

  isReady(process: Process): boolean {
    const cell = this.cells.get(process.disk.cellId ?? "");
    return (
      process.state === "running" &&
      cell !== undefined &&
      cell.leaderId !== 0 &&
      cell.configuration.voters.includes(process.disk.memberId) &&
      cell.knownBy(process.disk.memberId).index > 0
    );
  }

  #start(pod: Pod, node: SimNode): void {
    const { name, uid = "" } = pod.metadata;
    const [container] = pod.spec.containers;
    const image = container?.image ?? "";
    if (this.badImages.has(image)) {
      this.#setTrouble(pod, "ImagePullBackOff", `${image} does not exist`);
      return;
    }
    const claim = this.#claimOf(pod);
    const disk = claim === undefined ? undefined : this.diskOf(claim);
    if (disk === undefined) return;
    const process: Process = {
      podUid: uid,
      name,
      node: node.name,
      ip: `10.0.0.${String((this.#serial += 1))}`,
      image,
      disk,
      state: "running",
      trouble: "",
    };
    for (const other of this.processes.values()) {
      if (other.disk === disk) this.options.violate(`two programs run on the volume of ${name}`);
    }
    this.processes.set(uid, process);
    this.#boot(process, pod.metadata.annotations?.[ANNOTATION.start] ?? "existing", [
      ...(pod.spec.initContainers ?? []).flatMap(({ args = [] }) => args),
    ]);
  }

  #boot(process: Process, mode: string, args: readonly string[]): void {
    const { disk, name } = process;
    if (disk.cellId !== undefined) {
      // An argument names the cell that is given up: another one's volume is left as it is.
      const isMeant = args.some((argument) => argument.endsWith(`=${disk.cellId ?? ""}`));
      if (mode === "recover" && isMeant) this.#found(process, "recovered");
      return;
    }
    disk.incarnation ??= `inc-${String((this.#serial += 1))}`;
    if (mode === "bootstrap") this.#found(process, "founded");
    else if (mode === "join") process.state = "joining";
    else {
      process.state = "failing";
      process.trouble = `the folder of ${name} holds no member`;
    }
  }

  #found(process: Process, how: "founded" | "recovered"): void {
    const { disk, name } = process;
    const before = this.cells.get(disk.cellId ?? "");
    const id = `cell-${String((this.#serial += 1))}`;
    const index = before?.matchOf(disk.memberId);
    disk.cellId = id;
    disk.memberId = 1;
    const founder = { name, incarnation: disk.incarnation ?? "" };
    const world: RaftWorld = {
      reachable: () => this.reachable(id),
      violate: this.options.violate,
      decided: (old, after) => {
        const cell = this.cells.get(id);
        if (cell !== undefined) this.options.decided(cell, old, after);
      },
    };
    this.cells.set(id, new RaftCell(id, this.nowMs, world, founder, index));
    if (how === "founded") this.founded.push(id);
  }

  #join(process: Process): void {
    if (!this.isConnected(process.node)) return;
    // It asks the members that its arguments name; they all belong to the newest cell.
    const cell = [...this.cells.values()].at(-1);
    if (cell === undefined) return;
    try {
      const member = cell.addLearner(process.name, process.disk.incarnation ?? "");
      process.disk.cellId = cell.id;
      process.disk.memberId = member.id;
      process.state = "running";
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if (code !== "name-in-use") return;
      process.state = "failing";
      process.trouble = `${process.name} is in use by another disk`;
    }
  }

  /** Programs whose pod is gone without their kubelet having ended them: it does when it can. */
  #stopStrays(): void {
    const uids = new Set(this.api.list(POD).map(({ metadata }) => metadata.uid));
    for (const process of [...this.processes.values()]) {
      if (!uids.has(process.podUid) && this.isConnected(process.node)) this.processes.delete(process.podUid);
    }
  }

  #keepClaims(): void {
    for (const claim of this.api.list(PERSISTENT_VOLUME_CLAIM)) {
      const isUsed = this.api.get(POD, claim.metadata) !== undefined;
      if (claim.metadata.deletionTimestamp !== undefined && !isUsed) {
        this.api.remove(PERSISTENT_VOLUME_CLAIM, claim.metadata);
        continue;
      }
      const wanted = claim.spec.resources.requests.storage;
      if (claim.status?.phase !== "Bound" || claim.status.capacity?.storage === wanted) continue;
      if (compareQuantities(wanted, claim.status.capacity?.storage ?? "0") < 0) continue;
      this.api.mergePatch(PERSISTENT_VOLUME_CLAIM, claim.metadata, {
        status: { capacity: { storage: wanted } },
      });
    }
  }

  #claimOf(pod: Pod): PersistentVolumeClaim | undefined {
    return this.api.get(PERSISTENT_VOLUME_CLAIM, pod.metadata);
  }

  #setTrouble(pod: Pod, reason: string, message: string): void {
    const container = {
      name: "member",
      ready: false,
      restartCount: 0,
      state: { waiting: { reason, message } },
    };
    const status = { phase: "Pending", conditions: [], containerStatuses: [container] } as const;
    this.api.applyStatus(POD, { ...pod, metadata: bare(pod), status });
  }

  #setStatus(
    pod: Pod,
    ready: boolean,
    phase: "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown",
    ip?: string,
  ): void {
    const before = pod.status?.conditions?.find(({ type }) => type === "Ready");
    const isSame = (before?.status === "True") === ready && before !== undefined;
    const condition = {
      type: "Ready",
      status: ready ? "True" : "False",
      lastTransitionTime: isSame ? (before.lastTransitionTime ?? "") : toStamp(this.nowMs),
    } as const;
    const podIP = ip ?? pod.status?.podIP;
    const status = { phase, conditions: [condition], ...(podIP === undefined ? {} : { podIP }) };
    this.api.applyStatus(POD, { ...pod, metadata: bare(pod), status });
  }
}

function bare(pod: Pod): Pod["metadata"] {
  const { name, namespace, uid } = pod.metadata;
  return { name, ...(namespace === undefined ? {} : { namespace }), ...(uid === undefined ? {} : { uid }) };
}
