// What the harness does as provisioner and resizer of volumes. Pure: objects in, actions out.
import { PROVISIONER } from "./layout.ts";
import { parseBytes } from "./quantity.ts";

/** The fields of a PersistentVolumeClaim that matter here. */
export interface Claim {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: {
    readonly storageClassName?: string;
    readonly volumeName?: string;
    readonly accessModes?: readonly string[];
    readonly resources?: { readonly requests?: { readonly storage?: string } };
  };
  readonly status?: {
    readonly phase?: string;
    readonly capacity?: { readonly storage?: string };
    readonly conditions?: readonly { readonly type: string }[];
  };
}

/** The fields of a PersistentVolume that matter here. */
export interface Volume {
  readonly metadata: {
    readonly name: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: {
    readonly capacity?: { readonly storage?: string };
    readonly persistentVolumeReclaimPolicy?: string;
    readonly claimRef?: { readonly name?: string; readonly namespace?: string; readonly uid?: string };
    readonly local?: { readonly path?: string };
  };
  readonly status?: { readonly phase?: string };
}

/** One thing to do; each can be done again after a crash in the middle of it. */
export type VolumeAction =
  /** Make a disk on the node that the scheduler chose, and the volume for it. */
  | { readonly kind: "provision"; readonly claim: Claim; readonly node: string; readonly volume: string }
  /** Grow the disk, then the volume's capacity, then the claim's. */
  | { readonly kind: "grow"; readonly claim: Claim; readonly volume: Volume; readonly storage: string }
  /** Destroy the disk, then the volume. */
  | { readonly kind: "reclaim"; readonly volume: string };

const PROVISIONED_BY = "pv.kubernetes.io/provisioned-by";
/** The scheduler's choice for a claim that waits for its first consumer. */
export const SELECTED_NODE = "volume.kubernetes.io/selected-node";
/** Set on a claim by Kubernetes when its class names a provisioner outside of Kubernetes. */
const PROVISIONER_OF_CLAIM = "volume.kubernetes.io/storage-provisioner";

export const volumeNameOf = (claim: Claim): string => `pvc-${claim.metadata.uid}`;

/** Annotations of a volume that is ours. */
export const volumeAnnotations: Readonly<Record<string, string>> = { [PROVISIONED_BY]: PROVISIONER };

const isOurs = (volume: Volume): boolean => volume.metadata.annotations?.[PROVISIONED_BY] === PROVISIONER;

/** All that is to be done now, in no order that matters. */
export function planVolumes(claims: readonly Claim[], volumes: readonly Volume[]): readonly VolumeAction[] {
  const byName = new Map(volumes.map((volume) => [volume.metadata.name, volume]));
  return [
    ...claims.flatMap((claim) => [...planProvision(claim, byName), ...planGrowth(claim, byName)]),
    ...volumes.flatMap(planReclaim),
  ];
}

function planProvision(claim: Claim, volumes: ReadonlyMap<string, Volume>): readonly VolumeAction[] {
  const node = claim.metadata.annotations?.[SELECTED_NODE];
  const wanted =
    claim.metadata.annotations?.[PROVISIONER_OF_CLAIM] === PROVISIONER &&
    claim.spec.volumeName === undefined &&
    claim.metadata.deletionTimestamp === undefined;
  const volume = volumeNameOf(claim);
  if (!wanted || node === undefined || volumes.has(volume)) return [];
  return [{ kind: "provision", claim, node, volume }];
}

function planGrowth(claim: Claim, volumes: ReadonlyMap<string, Volume>): readonly VolumeAction[] {
  const storage = claim.spec.resources?.requests?.storage;
  const volume = volumes.get(claim.spec.volumeName ?? "");
  const capacity = claim.status?.capacity?.storage;
  if (storage === undefined || capacity === undefined || volume === undefined) return [];
  if (claim.status?.phase !== "Bound" || !isOurs(volume)) return [];
  if (parseBytes(storage) <= parseBytes(capacity)) return [];
  return [{ kind: "grow", claim, volume, storage }];
}

/** `Delete`: once released. `Retain`: never; the disk stays until the cluster goes, as it would with a real provisioner. */
function planReclaim(volume: Volume): readonly VolumeAction[] {
  if (!isOurs(volume) || volume.status?.phase !== "Released") return [];
  if (volume.spec.persistentVolumeReclaimPolicy !== "Delete") return [];
  return [{ kind: "reclaim", volume: volume.metadata.name }];
}
