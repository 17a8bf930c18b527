import type {
  KubernetesNamespace,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  PodDisruptionBudget,
  StorageClass,
} from "../api/core.ts";
import {
  CELL_MEMBER,
  CELL_OPERATION,
  NODE,
  PERSISTENT_VOLUME,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
} from "../api/kinds.ts";
import { identityOf, LABEL } from "../api/labels.ts";
import { disruptionBudgetName } from "../api/names.ts";
import type { CellMember, CellNamespace, CellOperation, CoordinationCell } from "../api/types.ts";
import type { KubeClient, KubeObject, ObjectCache } from "../kube/types.ts";

/** What belongs to one cell, as Kubernetes tells it. */
export interface CellObjects {
  readonly members: readonly CellMember[];
  readonly pods: readonly Pod[];
  /** Labelled with the cell's name: also those that a cell of that name left behind. */
  readonly claims: readonly PersistentVolumeClaim[];
  /** That name the cell, in any phase. */
  readonly requests: readonly CellOperation[];
  readonly budget: PodDisruptionBudget | undefined;
}

/** Reads what belongs to a cell: from memory to learn whether there is something to do, live to decide what. */
export interface CellReader {
  objects(cell: CoordinationCell): Promise<CellObjects>;
  node(name: string): Promise<Node | undefined>;
  volume(name: string): Promise<PersistentVolume | undefined>;
}

/** What informers hold. */
export interface Caches {
  readonly cells: ObjectCache<CoordinationCell>;
  readonly members: ObjectCache<CellMember>;
  readonly requests: ObjectCache<CellOperation>;
  readonly tenants: ObjectCache<CellNamespace>;
  readonly pods: ObjectCache<Pod>;
  readonly claims: ObjectCache<PersistentVolumeClaim>;
  readonly budgets: ObjectCache<PodDisruptionBudget>;
  readonly nodes: ObjectCache<Node>;
  readonly storageClasses: ObjectCache<StorageClass>;
  readonly kubernetesNamespaces: ObjectCache<KubernetesNamespace>;
}

/** From the informers: free, and late. */
export function cachedReader(caches: Caches, volumes: VolumeMemory): CellReader {
  return {
    objects: (cell) => {
      const { name, namespace, uid } = identityOf(cell);
      const here = (object: KubeObject): boolean => object.metadata.namespace === namespace;
      return Promise.resolve({
        members: caches.members.byLabel(LABEL.cellUid, uid).filter(here),
        pods: caches.pods.byLabel(LABEL.cellUid, uid).filter(here),
        claims: caches.claims.byLabel(LABEL.cell, name).filter(here),
        requests: caches.requests.list(namespace).filter(({ spec }) => spec.cell === name),
        budget: caches.budgets.get({ namespace, name: disruptionBudgetName(name) }),
      });
    },
    node: (name) => Promise.resolve(nodeIn(caches, name)),
    volume: (name) => volumes.get(name),
  };
}

/** From the apiserver, at this moment. */
export function liveReader(kube: KubeClient, caches: Caches, volumes: VolumeMemory): CellReader {
  return {
    objects: async (cell) => {
      const { name, namespace, uid } = identityOf(cell);
      const ofUid = { namespace, labelSelector: `${LABEL.cellUid}=${uid}` };
      const [members, pods, claims, requests, budget] = await Promise.all([
        kube.list(CELL_MEMBER, ofUid),
        kube.list(POD, ofUid),
        kube.list(PERSISTENT_VOLUME_CLAIM, { namespace, labelSelector: `${LABEL.cell}=${name}` }),
        kube.list(CELL_OPERATION, { namespace }),
        kube.get(POD_DISRUPTION_BUDGET, { namespace, name: disruptionBudgetName(name) }),
      ]);
      return {
        members,
        pods,
        claims,
        requests: requests.filter(({ spec }) => spec.cell === name),
        budget,
      };
    },
    // A node that the cache has may be late by a heartbeat; one that it has not may be younger than the cache. Only
    // that a node is gone for good is worth a question.
    node: async (name) => nodeIn(caches, name) ?? (await kube.get(NODE, { name })),
    volume: (name) => volumes.get(name),
  };
}

function nodeIn(caches: Caches, name: string): Node | undefined {
  return caches.nodes.get({ name });
}

const VOLUMES_MAX = 10_000;

/** Where volumes can be used from never changes, so each is read once; a cluster's other volumes are none of our business. */
export class VolumeMemory {
  readonly #kube: KubeClient;
  readonly #known = new Map<string, PersistentVolume>();

  constructor(kube: KubeClient) {
    this.#kube = kube;
  }

  /** @returns undefined for one that does not exist */
  async get(name: string): Promise<PersistentVolume | undefined> {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const volume = await this.#kube.get(PERSISTENT_VOLUME, { name });
    if (volume === undefined) return undefined;
    const [oldest] = this.#known.keys();
    if (this.#known.size >= VOLUMES_MAX && oldest !== undefined) this.#known.delete(oldest);
    this.#known.set(name, volume);
    return volume;
  }
}
