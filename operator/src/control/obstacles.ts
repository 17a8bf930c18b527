import type { CoordinationCell } from "../api/types.ts";
import type { Observation } from "../plan/types.ts";
import type { Caches } from "./reader.ts";

const DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class";

/** What a cell's spec names and the cluster does not have: told at once, before a claim waits for it in silence. */
export function obstaclesOf(
  cell: CoordinationCell,
  caches: Pick<Caches, "storageClasses">,
): Observation["obstacles"] {
  const { storageClasses } = caches;
  if (!storageClasses.synced) return [];
  const { storageClassName } = cell.spec.storage;
  if (storageClassName === undefined) {
    const hasDefault = storageClasses
      .list()
      .some(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS] === "true");
    if (hasDefault) return [];
    return [
      {
        reason: "NoDefaultStorageClass",
        message:
          "The cluster has no default StorageClass. Name one in spec.storage.storageClassName, or make one the default.",
      },
    ];
  }
  // An empty name asks for volumes that somebody made beforehand.
  if (storageClassName === "" || storageClasses.get({ name: storageClassName }) !== undefined) return [];
  const names = storageClasses.list().map(({ metadata }) => metadata.name);
  return [
    {
      reason: "StorageClassMissing",
      // storageClassName cannot be changed.
      message: `There is no StorageClass ${storageClassName}. Create it, or make this cell anew with one of the cluster's: ${names.join(", ") || "it has none"}.`,
    },
  ];
}
