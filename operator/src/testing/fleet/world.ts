import type { Node, PersistentVolume, PersistentVolumeClaim, Pod } from "../../api/core.ts";
import {
  COORDINATION_CELL,
  KUBERNETES_NAMESPACE,
  NODE,
  PERSISTENT_VOLUME,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  SECRET,
  STORAGE_CLASS,
} from "../../api/kinds.ts";
import { LABEL } from "../../api/labels.ts";
import { memberSecretName } from "../../api/names.ts";
import { API_VERSION } from "../../api/types.ts";
import type { CoordinationCell, CoordinationCellSpec } from "../../api/types.ts";
import { createInformer, REAL_RUNTIME, WorkQueue } from "../../kube/index.ts";
import type { Informer, ObjectRef } from "../../kube/index.ts";
import { toStamp } from "../../plan/time.ts";
import { fits } from "../fits.ts";
import type { FleetApi } from "./access.ts";
import { nodeStatus, podStatus } from "./kubelet.ts";
import type { Members } from "./members.ts";

export interface WorldOptions {
  readonly api: FleetApi;
  readonly members: Members;
  readonly cells: number;
  readonly voters: 1 | 3 | 5;
  /** Kubernetes namespaces that the cells are spread over. */
  readonly namespaces: number;
  readonly nodes: number;
  readonly operatorNamespace: string;
  readonly report: (message: string, error: Error) => void;
}

const ZONES = 3;
const ZONE_KEY = "topology.kubernetes.io/zone";
const CLASS = "fleet";
const AGAIN_MS = 250;
const WORKERS = 20;
/** A kubelet whose node does not change says so this often. */
const HEARTBEAT_MS = 5 * 60_000;
/** With what the definition fills in. */
const SPEC: Omit<CoordinationCellSpec, "voters"> = {
  storage: { size: "1Gi", reclaimPolicy: "Retain" },
  topology: { zoneKey: ZONE_KEY, hostSpread: "Required" },
  tls: { mode: "Managed", leafDuration: "2160h", clientOverlap: "5m" },
  updatePolicy: { mode: "Rolling", minReadySeconds: 10 },
  replacementPolicy: { mode: "AfterLoss", after: "10m", slowDisk: "Report" },
};

/** A Kubernetes cluster around its apiserver: nodes, scheduler, volume provisioner, kubelets. Nothing in it fails. */
export class World {
  readonly #options: WorldOptions;
  readonly #pods: Informer<Pod>;
  readonly #claims: Informer<PersistentVolumeClaim>;
  readonly #cells: Informer<CoordinationCell>;
  readonly #nodes: Node[] = [];
  readonly #volumes = new Map<string, PersistentVolume>();
  readonly #load = new Map<string, number>();
  /** By the Pod's uid, because informers are late: who has a node, and whether it was told to be ready. */
  readonly #placed = new Set<string>();
  readonly #told = new Map<string, boolean>();
  readonly #queue: WorkQueue;
  #heartbeats: NodeJS.Timeout | undefined;

  constructor(options: WorldOptions) {
    this.#options = options;
    const { report } = options;
    const common = { rest: options.api.rest, report };
    const ours = { ...common, labelSelector: `${LABEL.component}=member` };
    this.#pods = createInformer(POD, ours);
    this.#claims = createInformer(PERSISTENT_VOLUME_CLAIM, ours);
    this.#cells = createInformer(COORDINATION_CELL, common);
    this.#queue = new WorkQueue({
      ...{ name: "world", runtime: REAL_RUNTIME, concurrency: WORKERS, report },
      work: (key) => this.#keep(key),
    });
  }

  /** Makes what a cluster has before any cell, and from then on keeps Pods running. */
  async start(): Promise<void> {
    const { kube } = this.#options.api;
    await kube.create(STORAGE_CLASS, {
      ...{ apiVersion: "storage.k8s.io/v1", kind: "StorageClass", metadata: { name: CLASS } },
      ...{ provisioner: "fleet.lockstep.dev", allowVolumeExpansion: true },
      volumeBindingMode: "WaitForFirstConsumer",
    });
    const namespaces = [this.#options.operatorNamespace, ...this.#namespaceNames()];
    for (const name of namespaces) {
      await kube.create(KUBERNETES_NAMESPACE, { apiVersion: "v1", kind: "Namespace", metadata: { name } });
    }
    for (let number = 1; number <= this.#options.nodes; number += 1)
      this.#nodes.push(await this.#addNode(number));
    for (const informer of [this.#pods, this.#claims]) {
      informer.subscribe(({ object }) => this.#queue.add(keyOf(object.metadata)));
      informer.start();
    }
    this.#cells.start();
    this.#queue.start();
    let next = 0;
    this.#heartbeats = setInterval(() => {
      const node = this.#nodes[next % this.#nodes.length];
      next += 1;
      if (node === undefined) return;
      kube.applyStatus(NODE, withStatus(node)).catch((error: unknown) => this.#complain("heartbeat", error));
    }, HEARTBEAT_MS / this.#options.nodes);
  }

  async createCells(): Promise<void> {
    const { cells, voters, api } = this.#options;
    const namespaces = this.#namespaceNames();
    const spec = { ...SPEC, voters, storage: { ...SPEC.storage, storageClassName: CLASS } };
    for (let number = 0; number < cells; number += 1) {
      const namespace = namespaces[number % namespaces.length] ?? "";
      const metadata = { name: `cell-${String(number + 1)}`, namespace };
      await api.kube.create(COORDINATION_CELL, {
        ...{ apiVersion: API_VERSION, kind: "CoordinationCell", metadata, spec },
      });
    }
  }

  /**
   * Resolves when all cells are Ready.
   * @returns for each cell, in milliseconds, how long that took since `sinceMs`
   * @throws Error after `withinMs`, with what some cells say
   */
  whenReady(sinceMs: number, withinMs: number): Promise<readonly number[]> {
    const ready = new Map<string, number>();
    return new Promise((resolve, reject) => {
      const unsubscribe = this.#cells.subscribe(({ object }) => {
        if (!isReady(object) || ready.has(keyOf(object.metadata))) return;
        ready.set(keyOf(object.metadata), performance.now() - sinceMs);
        if (ready.size < this.#options.cells) return;
        clearTimeout(late);
        // Subscribing tells what is there already: before there is anything to call.
        queueMicrotask(() => unsubscribe());
        resolve([...ready.values()]);
      });
      const late = setTimeout(() => {
        unsubscribe();
        const rest = this.#cells.list().filter((cell) => !isReady(cell));
        const words = rest.slice(0, 5).map((cell) => `${cell.metadata.name}: ${wordsOf(cell)}`);
        reject(new Error(`${String(rest.length)} cells are not Ready: ${words.join("; ")}`));
      }, withinMs);
    });
  }

  /** How many are not Ready. */
  unready(): number {
    return this.#cells.list().filter((cell) => !isReady(cell)).length;
  }

  async stop(): Promise<void> {
    clearInterval(this.#heartbeats);
    await this.#queue.drain(AGAIN_MS);
    await Promise.all([this.#pods, this.#claims, this.#cells].map((informer) => informer.stop()));
  }

  #namespaceNames(): readonly string[] {
    return Array.from({ length: this.#options.namespaces }, (_, index) => `team-${String(index + 1)}`);
  }

  async #addNode(number: number): Promise<Node> {
    const name = `node-${String(number)}`;
    const zone = `zone-${String((number % ZONES) + 1)}`;
    const node: Node = {
      ...{ apiVersion: "v1", kind: "Node" },
      metadata: { name, labels: { [ZONE_KEY]: zone, "kubernetes.io/hostname": name } },
    };
    const { kube } = this.#options.api;
    await kube.create(NODE, { ...node, spec: {} });
    await kube.applyStatus(NODE, withStatus(node));
    return withStatus(node);
  }

  async #keep(key: string): Promise<{ readonly requeueAfterMs?: number }> {
    const [namespace = "", name = ""] = key.split("/");
    const pod = this.#pods.get({ namespace, name });
    if (pod === undefined) return {};
    if (pod.metadata.deletionTimestamp !== undefined) {
      await this.#end(pod);
      return {};
    }
    if (pod.spec.nodeName === undefined) return this.#schedule(pod);
    return this.#run(pod, pod.spec.nodeName);
  }

  async #end(pod: Pod): Promise<void> {
    const { uid = "" } = pod.metadata;
    this.#options.members.stop(uid);
    this.#told.delete(uid);
    await this.#options.api.kube.delete(POD, pod.metadata, { uid, gracePeriodSeconds: 0 });
  }

  async #schedule(pod: Pod): Promise<{ readonly requeueAfterMs?: number }> {
    const claim = this.#claims.get(pod.metadata);
    const { uid = "" } = pod.metadata;
    if (claim === undefined || this.#placed.has(uid)) return {};
    const volume = this.#volumes.get(keyOf(claim.metadata));
    const [node] = this.#nodes
      .filter((candidate) => fits(candidate, pod, volume))
      .sort((a, b) => this.#loadOf(a) - this.#loadOf(b));
    if (node === undefined) return { requeueAfterMs: AGAIN_MS };
    this.#load.set(node.metadata.name, this.#loadOf(node) + 1);
    if (volume === undefined) await this.#provision(claim, node);
    await this.#options.api.bind(pod.metadata, node.metadata.name);
    this.#placed.add(uid);
    return {};
  }

  #loadOf({ metadata }: Node): number {
    return this.#load.get(metadata.name) ?? 0;
  }

  async #provision(claim: PersistentVolumeClaim, node: Node): Promise<void> {
    const { kube } = this.#options.api;
    const { namespace, name, uid } = claim.metadata;
    const volumeName = `pvc-${uid ?? ""}`;
    const capacity = claim.spec.resources.requests;
    const accessModes = ["ReadWriteOnce"];
    const values = [node.metadata.labels?.[ZONE_KEY] ?? ""];
    const spec = {
      ...{ capacity, accessModes, storageClassName: CLASS, persistentVolumeReclaimPolicy: "Delete" },
      claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace, name, uid },
      csi: { driver: "fleet.lockstep.dev", volumeHandle: volumeName },
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: ZONE_KEY, operator: "In" as const, values }] }],
        },
      },
    };
    const volume = { apiVersion: "v1", kind: "PersistentVolume", metadata: { name: volumeName }, spec };
    await kube.create(PERSISTENT_VOLUME, volume);
    this.#volumes.set(keyOf(claim.metadata), volume);
    await kube.mergePatch(PERSISTENT_VOLUME_CLAIM, claim.metadata, { spec: { volumeName } });
    await kube.applyStatus(PERSISTENT_VOLUME_CLAIM, {
      ...{ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: identity(claim.metadata) },
      status: { phase: "Bound", capacity, accessModes },
    } as unknown as PersistentVolumeClaim);
  }

  /** The kubelet: starts the member, and tells what its readiness probe finds. */
  async #run(pod: Pod, nodeName: string): Promise<{ readonly requeueAfterMs?: number }> {
    const { members, api } = this.#options;
    const { namespace, name, uid = "" } = pod.metadata;
    if (members.ofPod(pod) === undefined) {
      const ref = { name: memberSecretName(name), ...(namespace === undefined ? {} : { namespace }) };
      const secret = await api.kube.get(SECRET, ref);
      if (secret === undefined) return { requeueAfterMs: AGAIN_MS };
      await members.start(pod, secret);
    }
    const member = members.ofPod(pod);
    if (member === undefined) return { requeueAfterMs: AGAIN_MS };
    const ready = members.isReady(member);
    if (this.#told.get(uid) !== ready) {
      this.#told.set(uid, ready);
      await api.kube.applyStatus(POD, {
        ...{ apiVersion: "v1", kind: "Pod", metadata: identity(pod.metadata) },
        status: podStatus({
          pod,
          ready,
          ip: member.ip,
          hostIp: `10.0.0.${nodeName.split("-").at(-1) ?? ""}`,
        }),
      } as unknown as Pod);
    }
    return ready ? {} : { requeueAfterMs: AGAIN_MS };
  }

  #complain(what: string, error: unknown): void {
    this.#options.report(what, error instanceof Error ? error : new Error(String(error)));
  }
}

function withStatus(node: Node): Node {
  return { ...node, status: nodeStatus(toStamp(Date.now())) };
}

function identity({ name, namespace }: ObjectRef): ObjectRef {
  return { name, ...(namespace === undefined ? {} : { namespace }) };
}

function keyOf({ namespace, name }: ObjectRef): string {
  return `${namespace ?? ""}/${name}`;
}

function isReady({ status }: CoordinationCell): boolean {
  return status?.conditions?.find(({ type }) => type === "Ready")?.status === "True";
}

function wordsOf({ status }: CoordinationCell): string {
  return status?.conditions?.find(({ type }) => type === "Ready")?.message ?? "has no status";
}
