// Takes the cluster down: also one of a run that was killed, from nothing but what lies on the machine.
import { existsSync, readFileSync, readdirSync, rmSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { COMPONENTS } from "./control-plane.ts";
import { currentMounts, mountsBelow, removeUnmounted, unmountBelow } from "./mounts.ts";
import { stopDaemon } from "./daemon.ts";
import { BRIDGE, IMAGE_RUN_FOLDER, SLOTS, imageStoreOf, networkNamespaceOf, type Layout } from "./layout.ts";
import { removeNetwork } from "./network.ts";
import { killNode, removeNode } from "./residue.ts";

/** The detached loop that plays volume provisioner after `up`. */
export const VOLUMES_DAEMON = "volumes";

/** Folders that Kubernetes and containerd make for themselves, whatever their configuration says. */
const FOREIGN_FOLDERS = [
  "/var/lib/kubelet",
  "/var/lib/cni",
  "/var/log/containers",
  "/var/log/pods",
  "/run/containerd",
] as const;

const absentFile = (layout: Layout): string => join(layout.run, "absent-before.json");

/** Remembers which of the foreign folders were not there, so that `down` removes those and only those. */
export function rememberAbsentFolders(layout: Layout): void {
  const absent = FOREIGN_FOLDERS.filter((folder) => !existsSync(folder));
  writeFileSync(absentFile(layout), JSON.stringify(absent));
}

function absentFolders(layout: Layout): readonly string[] {
  try {
    const parsed: unknown = JSON.parse(readFileSync(absentFile(layout), "utf8"));
    return FOREIGN_FOLDERS.filter((folder) => Array.isArray(parsed) && parsed.includes(folder));
  } catch {
    return [];
  }
}

/** Removes everything of the cluster but the cache. Nothing there is fine. */
export async function takeDown(layout: Layout): Promise<void> {
  await stopDaemon(layout.run, VOLUMES_DAEMON, 0);
  const absent = absentFolders(layout);
  await Promise.all([
    ...SLOTS.map(async (slot) => {
      await killNode(layout, slot);
      await removeNode(layout, slot);
    }),
    ...COMPONENTS.map((component) => stopDaemon(layout.run, component, 0)),
  ]);
  await removeNetwork();
  await unmountBelow(layout.state);
  await unmountBelow(layout.run);
  // A build that was killed leaves the file system of its container mounted.
  await unmountBelow(imageStoreOf(layout));
  for (const folder of [layout.state, layout.run]) removeUnmounted(folder);
  for (const folder of absent) removeForeign(folder);
}

function removeForeign(folder: string): void {
  // Only a kubelet makes this one, and there was none; in the others somebody else may have begun meanwhile.
  if (folder === "/var/lib/kubelet") rmSync(folder, { recursive: true, force: true });
  else removeEmpty(folder);
}

function removeEmpty(folder: string): void {
  if (!existsSync(folder)) return;
  for (const entry of readdirSync(folder, { withFileTypes: true }))
    if (entry.isDirectory()) removeEmpty(join(folder, entry.name));
  try {
    rmdirSync(folder);
  } catch {
    // Not empty: somebody else's.
  }
}

/** What is still there of a cluster, in words; empty after a complete `takeDown`. */
export function remains(layout: Layout): readonly string[] {
  const found: string[] = [];
  for (const folder of [layout.state, layout.run]) {
    if (existsSync(folder) && readdirSync(folder).some((name) => name !== IMAGE_RUN_FOLDER))
      found.push(`folder ${folder}`);
    for (const { target } of mountsBelow(currentMounts(), folder)) found.push(`mount ${target}`);
  }
  for (const slot of SLOTS)
    if (existsSync(`/run/netns/${networkNamespaceOf(slot)}`))
      found.push(`network namespace ${networkNamespaceOf(slot)}`);
  if (existsSync(`/sys/class/net/${BRIDGE}`)) found.push(`bridge ${BRIDGE}`);
  return found;
}
