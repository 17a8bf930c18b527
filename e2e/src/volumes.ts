// The harness as provisioner and resizer of the cluster's volumes, and what scenarios may do to a volume.
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Api } from "./api.ts";
import {
  createDisk,
  destroyDisk,
  diskOf,
  fillDisk,
  freeDisk,
  growDisk,
  wipeDisk,
  type Disk,
} from "./disks.ts";
import { E2eError } from "./error.ts";
import { nodeFoldersOf, parseNodeName, type Layout, type NodeFolders } from "./layout.ts";
import type { Say } from "./progress.ts";
import { parseBytes } from "./quantity.ts";
import {
  SELECTED_NODE,
  planVolumes,
  volumeAnnotations,
  type Claim,
  type Volume,
  type VolumeAction,
} from "./volume-plan.ts";

/** Two small lists twice a second: cheap beside what the cluster does by itself, and a claim waits no longer than that. */
const EVERY_MS = 500;
const CLAIMS = "/api/v1/persistentvolumeclaims";
const VOLUMES = "/api/v1/persistentvolumes";
const CLASSES = "/apis/storage.k8s.io/v1/storageclasses";

const claimPath = (namespace: string, name: string): string =>
  `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${name}`;

interface List<T> {
  readonly items: readonly T[];
}

interface StorageClass {
  readonly reclaimPolicy?: string;
}

/** Plays provisioner and resizer for every StorageClass that names it; one at a time in a cluster. */
export class Volumes {
  readonly #api: Api;
  readonly #layout: Layout;
  readonly #say: Say;
  #lastComplaint = "";

  constructor(api: Api, layout: Layout, say: Say) {
    this.#api = api;
    this.#layout = layout;
    this.#say = say;
  }

  /** Works until the signal fires. No error ends it: the apiserver may be down for as long as a scenario likes. */
  async work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#round().catch((error: unknown) => this.#complain((error as Error).message));
      await delay(EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async #round(): Promise<void> {
    const [claims, volumes] = await Promise.all([
      this.#api.get<List<Claim>>(CLAIMS),
      this.#api.get<List<Volume>>(VOLUMES),
    ]);
    for (const action of planVolumes(claims.items, volumes.items))
      await this.#act(action).catch((error: unknown) => this.#complain((error as Error).message));
  }

  #complain(message: string): void {
    if (message !== this.#lastComplaint) this.#say(`volumes: ${message}`);
    this.#lastComplaint = message;
  }

  async #act(action: VolumeAction): Promise<void> {
    switch (action.kind) {
      case "provision":
        return this.#provision(action.claim, action.node, action.volume);
      case "grow":
        return this.#grow(action.claim, action.volume, action.storage);
      case "reclaim":
        return this.#reclaim(action.volume);
    }
  }

  async #provision(claim: Claim, node: string, name: string): Promise<void> {
    const folders = this.#foldersOf(node);
    if (folders === undefined) return this.#chooseAgain(claim);
    const storage = claim.spec.resources?.requests?.storage ?? "0";
    const className = claim.spec.storageClassName ?? "";
    const { reclaimPolicy = "Delete" } = await this.#api.get<StorageClass>(`${CLASSES}/${className}`);
    const disk = diskOf(folders, name);
    await createDisk(disk, parseBytes(storage));
    const volume = volumeObject({ claim, node, name, storage, path: disk.mount, className, reclaimPolicy });
    await this.#api.create(VOLUMES, volume);
  }

  /** The chosen machine was lost meanwhile: without the annotation the scheduler chooses again. */
  async #chooseAgain(claim: Claim): Promise<void> {
    await this.#api.patch(claimPath(claim.metadata.namespace, claim.metadata.name), {
      metadata: { annotations: { [SELECTED_NODE]: null } },
    });
  }

  async #grow(claim: Claim, volume: Volume, storage: string): Promise<void> {
    const { name, namespace } = claim.metadata;
    await growDisk(this.#diskOf(volume), parseBytes(storage));
    await this.#api.patch(`${VOLUMES}/${volume.metadata.name}`, { spec: { capacity: { storage } } });
    await this.#api.patch(`${claimPath(namespace, name)}/status`, {
      // The kubelet may have asked for its part; there is none with a file system that we have grown already.
      status: { capacity: { storage }, conditions: null },
    });
  }

  async #reclaim(name: string): Promise<void> {
    const volume = await this.#api.get<Volume>(`${VOLUMES}/${name}`);
    const disk = this.#findDisk(volume);
    // None when its node is lost: the disk went with it.
    if (disk !== undefined) await destroyDisk(disk);
    await this.#api.delete(`${VOLUMES}/${name}`);
  }

  /** The folders of a node that still stands; undefined when another machine, or none, is in its slot. */
  #foldersOf(nodeName: string): NodeFolders | undefined {
    const parsed = parseNodeName(nodeName);
    if (parsed === undefined) return undefined;
    const folders = nodeFoldersOf(this.#layout, parsed.slot);
    if (!existsSync(folders.nameFile) || readFileSync(folders.nameFile, "utf8") !== nodeName)
      return undefined;
    return folders;
  }

  #findDisk(volume: Volume): Disk | undefined {
    const folders = this.#foldersOf(volume.metadata.annotations?.[NODE_ANNOTATION] ?? "");
    return folders === undefined ? undefined : diskOf(folders, volume.metadata.name);
  }

  #diskOf(volume: Volume): Disk {
    const disk = this.#findDisk(volume);
    if (disk === undefined) throw new E2eError("state", `the disk of ${volume.metadata.name} is gone`);
    return disk;
  }

  async #claimedDisk(namespace: string, claimName: string): Promise<Disk> {
    const claim = await this.#api.get<Claim>(claimPath(namespace, claimName));
    if (claim.spec.volumeName === undefined)
      throw new E2eError("state", `claim ${namespace}/${claimName} has no volume yet`);
    return this.#diskOf(await this.#api.get<Volume>(`${VOLUMES}/${claim.spec.volumeName}`));
  }

  /** Removes every file on a claim's volume, under the feet of the pod that uses it: kill the pod's process too if it should notice. */
  async wipe(namespace: string, claimName: string): Promise<void> {
    wipeDisk(await this.#claimedDisk(namespace, claimName));
  }

  /** Takes a volume's free space, all of it or all but `leaveBytes`. `free` gives it back. */
  async fill(namespace: string, claimName: string, leaveBytes = 0): Promise<void> {
    await fillDisk(await this.#claimedDisk(namespace, claimName), leaveBytes);
  }

  /** Gives back what `fill` took. */
  async free(namespace: string, claimName: string): Promise<void> {
    freeDisk(await this.#claimedDisk(namespace, claimName));
  }

  /** Where a claim's volume lies on this machine: to look into it, or to damage a file. */
  async folderOf(namespace: string, claimName: string): Promise<string> {
    return (await this.#claimedDisk(namespace, claimName)).mount;
  }
}

/** Whose disk a volume is; the node affinity says the same, deeper down. */
const NODE_ANNOTATION = "e2e.lockstep.dev/node";

interface VolumeSpec {
  readonly claim: Claim;
  readonly node: string;
  readonly name: string;
  readonly storage: string;
  readonly path: string;
  readonly className: string;
  readonly reclaimPolicy: string;
}

function volumeObject(spec: VolumeSpec): unknown {
  const { claim, node, name, storage, path } = spec;
  const { namespace, name: claimName, uid } = claim.metadata;
  const hostname = { key: "kubernetes.io/hostname", operator: "In", values: [node] };
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name, annotations: { ...volumeAnnotations, [NODE_ANNOTATION]: node } },
    spec: {
      capacity: { storage },
      accessModes: claim.spec.accessModes ?? ["ReadWriteOnce"],
      persistentVolumeReclaimPolicy: spec.reclaimPolicy,
      storageClassName: spec.className,
      volumeMode: "Filesystem",
      claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace, name: claimName, uid },
      local: { path },
      nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [hostname] }] } },
    },
  };
}
