// A cgroup of its own for the pods of each node: kubelets in one would remove each other's.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { cgroupOf, type Slot } from "./layout.ts";

const MOUNT = "/sys/fs/cgroup";
const CONTROLLERS = "+cpu +cpuset +memory +pids";

/** The root folders of the hierarchies: one on v2, one a controller on v1. */
function hierarchies(): readonly string[] {
  if (existsSync(join(MOUNT, "cgroup.controllers"))) return [MOUNT];
  // cpu and cpuacct are often two names of one hierarchy.
  const folders = readdirSync(MOUNT).map((name) => realpathSync(join(MOUNT, name)));
  return [...new Set(folders)].filter((folder) => existsSync(join(folder, "cgroup.procs")));
}

/** Makes a node's cgroup in every hierarchy. */
export function createCgroup(slot: Slot): void {
  for (const root of hierarchies()) {
    const folder = join(root, cgroupOf(slot));
    if (root === MOUNT) enableControllers(root);
    mkdirSync(folder, { recursive: true });
    if (root === MOUNT) enableControllers(folder);
    // On v1 a new cpuset is empty, and no process can be put into it.
    if (root !== MOUNT && existsSync(join(folder, "cpuset.cpus")))
      for (const file of ["cpuset.cpus", "cpuset.mems"]) copyFileSync(join(root, file), join(folder, file));
  }
}

function enableControllers(folder: string): void {
  try {
    writeFileSync(join(folder, "cgroup.subtree_control"), CONTROLLERS);
  } catch {
    // Whoever manages this machine's cgroups has decided; what the kubelet then misses it says itself.
  }
}

function foldersBelow(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const children = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return [...children.flatMap((child) => foldersBelow(join(folder, child.name))), folder];
}

/** Every process in a node's cgroup: those of its containers. */
export function processesOf(slot: Slot): readonly number[] {
  const pids = new Set<number>();
  for (const root of hierarchies())
    for (const folder of foldersBelow(join(root, cgroupOf(slot))))
      for (const pid of procs(folder)) pids.add(pid);
  return [...pids];
}

function procs(folder: string): readonly number[] {
  try {
    return readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** Removes a node's empty cgroups, deepest first. False when some could not be removed yet. */
export function removeCgroup(slot: Slot): boolean {
  let whole = true;
  for (const root of hierarchies())
    for (const folder of foldersBelow(join(root, cgroupOf(slot)))) {
      try {
        rmdirSync(folder);
      } catch {
        // Its processes are dead, and the kernel has not yet let go of them.
        whole = false;
      }
    }
  return whole;
}
