// Every name, address, port and path of the cluster. Pure: nothing here touches the machine.
import { join } from "node:path";

/** Nodes of the cluster. Five in three zones, so that five voters fit with one member a host. */
export const NODE_COUNT = 5;
/** Zones of the cluster: nodes 1 and 4, 2 and 5, 3. */
export const ZONE_COUNT = 3;

/** Prefix of all that is visible outside of our folders: bridge, links, network namespaces, cgroups. */
export const PREFIX = "lse2e";
export const BRIDGE: string = `${PREFIX}-br`;

/** The host's address on the bridge: apiserver and cluster DNS listen here. */
export const HOST_ADDRESS = "10.210.0.1";
export const NODE_NETWORK_BITS = 24;
export const POD_NETWORK = "10.211.0.0/16";
export const SERVICE_NETWORK = "10.112.0.0/16";
/** The ClusterIP of `kubernetes.default`: the first address of the service network. */
export const KUBERNETES_SERVICE = "10.112.0.1";

export const PORTS = {
  apiserver: 16443,
  etcdClient: 22479,
  etcdPeer: 22480,
  controllerManager: 20257,
  scheduler: 20259,
} as const;

export const APISERVER_URL: string = `https://${HOST_ADDRESS}:${String(PORTS.apiserver)}`;
export const ETCD_URL: string = `http://127.0.0.1:${String(PORTS.etcdClient)}`;

/** The default StorageClass of the cluster. */
export const STORAGE_CLASS = "lockstep-e2e";
/** The provisioner that the StorageClass names: the harness itself. */
export const PROVISIONER = "e2e.lockstep.dev/local";

export const IMAGES = {
  pause: "e2e.lockstep.dev/pause:1",
  runBase: "e2e.lockstep.dev/run-base:1",
  buildBase: "e2e.lockstep.dev/build-base:1",
} as const;

/** A node's place in the cluster, 1 to NODE_COUNT. It outlives the nodes that stand in it. */
export type Slot = number;

export const SLOTS: readonly Slot[] = Array.from({ length: NODE_COUNT }, (_, index) => index + 1);

export const zoneOf = (slot: Slot): string => `zone-${String(((slot - 1) % ZONE_COUNT) + 1)}`;
export const networkNamespaceOf = (slot: Slot): string => `${PREFIX}-n${String(slot)}`;
/** The host's end of a node's only link; taking it down partitions the node. */
export const linkOf = (slot: Slot): string => `${PREFIX}-v${String(slot)}`;
export const nodeAddressOf = (slot: Slot): string => `10.210.0.${String(10 + slot)}`;
export const podNetworkOf = (slot: Slot): string => `10.211.${String(slot)}.0/24`;
export const cgroupOf = (slot: Slot): string => `${PREFIX}-n${String(slot)}`;
/** The name of the CNI network of a slot, with which the plugins mark the records they keep of each pod. */
export const cniNetworkOf = (slot: Slot): string => `${PREFIX}-n${String(slot)}`;

/** The node's name: `node-3`, and after the slot was rebuilt `node-3-2`, `node-3-3`: a lost machine never comes back under its name. */
export const nodeNameOf = (slot: Slot, generation: number): string =>
  generation === 1 ? `node-${String(slot)}` : `node-${String(slot)}-${String(generation)}`;

/** Reads a node's name; undefined for anything else. */
export function parseNodeName(
  name: string,
): { readonly slot: Slot; readonly generation: number } | undefined {
  const match = /^node-(\d+)(?:-(\d+))?$/.exec(name);
  const slot = Number(match?.[1]);
  if (!SLOTS.includes(slot)) return undefined;
  return { slot, generation: Number(match?.[2] ?? 1) };
}

/** Where things lie. */
export interface Layout {
  /** The root of the repository. */
  readonly repository: string;
  /** Built programs and images, kept between runs. */
  readonly cache: string;
  /** The disks of the running cluster: etcd's data, nodes, volumes, keys, logs. */
  readonly state: string;
  /** Process ids and sockets of the running cluster. Short, for a socket's path has at most 107 bytes. */
  readonly run: string;
}

/** Folders from the environment: XDG_CACHE_HOME, LOCKSTEP_E2E_STATE, LOCKSTEP_E2E_RUN; see `--help`. */
export function layoutOf(environment: NodeJS.ProcessEnv, repository: string): Layout {
  const value = (name: string): string | undefined => environment[name] || undefined;
  const cacheHome = value("XDG_CACHE_HOME") ?? join(value("HOME") ?? "/root", ".cache");
  return {
    repository,
    cache: join(cacheHome, "lockstep-e2e"),
    state: value("LOCKSTEP_E2E_STATE") ?? "/var/lib/lockstep-e2e",
    run: value("LOCKSTEP_E2E_RUN") ?? "/run/lockstep-e2e",
  };
}

/** A node's folders. */
export interface NodeFolders {
  /** All of the node's disk; removing it is losing the disk. */
  readonly root: string;
  /** Its sockets. */
  readonly run: string;
  readonly containerdSocket: string;
  /** Holds the name of the node that stands in the slot. */
  readonly nameFile: string;
  /** Holds the list of its images. */
  readonly importedFile: string;
  /** Backing files of its volumes, and where they are mounted. */
  readonly disks: string;
  readonly volumes: string;
}

export function nodeFoldersOf(layout: Layout, slot: Slot): NodeFolders {
  const root = join(layout.state, `node${String(slot)}`);
  const run = join(layout.run, `node${String(slot)}`);
  return {
    root,
    run,
    containerdSocket: join(run, "containerd.sock"),
    nameFile: join(root, "name"),
    importedFile: join(root, "imported.json"),
    disks: join(root, "disks"),
    volumes: join(root, "volumes"),
  };
}

export const pkiOf = (layout: Layout): string => join(layout.state, "pki");
export const logsOf = (layout: Layout): string => join(layout.state, "logs");
/** The administrator's kubeconfig of the running cluster. */
export const kubeconfigOf = (layout: Layout): string => join(pkiOf(layout), "admin.kubeconfig");

/** Where buildah keeps images and layers between runs. */
export const imageStoreOf = (layout: Layout): string => join(layout.cache, "buildah");
/** The folder in `run` where buildah notes what is mounted just now; it is no sign of a cluster. */
export const IMAGE_RUN_FOLDER = "buildah";
