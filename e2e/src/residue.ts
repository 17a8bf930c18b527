// Takes a node away by force: its processes, mounts, namespaces, files. It works on whatever a killed run left.
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { join } from "node:path";
import { tryRun } from "./command.ts";
import { processesOf, removeCgroup } from "./cgroups.ts";
import { endProcess, identityOf, stopDaemon, type ProcessIdentity } from "./daemon.ts";
import { cniNetworkOf, nodeFoldersOf, type Layout, type Slot } from "./layout.ts";
import { removeUnmounted, unmountBelow } from "./mounts.ts";
import { until } from "./waiting.ts";

const CNI_RESULTS = "/var/lib/cni/results";
const CONTAINER_LOG_LINKS = "/var/log/containers";

/** The daemons of a node, by the names under which they are recorded. */
export const nodeDaemonsOf = (slot: Slot): readonly string[] =>
  ["kubelet", "kube-proxy", "containerd"].map((program) => `node${String(slot)}-${program}`);

/** Kills all of a node at once, as a machine that loses its power: daemons, shims and containers. */
export async function killNode(layout: Layout, slot: Slot): Promise<void> {
  await Promise.all(nodeDaemonsOf(slot).map((name) => stopDaemon(layout.run, name, 0)));
  const { containerdSocket } = nodeFoldersOf(layout, slot);
  // Shims first: they would take note of every container that ends.
  await killAll(shimsOf(containerdSocket));
  await until(
    `the containers of node ${String(slot)} are gone`,
    async () => {
      await killAll(processesOf(slot));
      return processesOf(slot).length === 0;
    },
    { timeoutMs: 20_000, everyMs: 50 },
  );
}

async function killAll(pids: readonly number[]): Promise<void> {
  const identities = pids.map(identityOf).filter((one): one is ProcessIdentity => one !== undefined);
  await Promise.all(identities.map((identity) => endProcess(identity, 0).catch(() => undefined)));
}

/** The shims that report to this containerd: each names the socket in its arguments. */
function shimsOf(socket: string): readonly number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.filter((pid) => isShimOf(commandLineOf(pid), socket)).map(Number);
}

/** Do these arguments start a shim of that containerd? */
export function isShimOf(args: readonly string[], socket: string): boolean {
  const [program = ""] = args;
  return /(^|\/)containerd-shim[^/]*$/.test(program) && args[args.indexOf("-address") + 1] === socket;
}

function commandLineOf(pid: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}

/** Removes all that a killed node has left on this machine, its disks among them. */
export async function removeNode(layout: Layout, slot: Slot): Promise<void> {
  const folders = nodeFoldersOf(layout, slot);
  removeShimSockets(folders.run);
  await removePodNamespaces(slot);
  await unmountBelow(folders.root);
  await unmountBelow(folders.run);
  removeLogLinks(folders.root);
  removeUnmounted(folders.root);
  removeUnmounted(folders.run);
  await until(`the cgroups of node ${String(slot)} are gone`, () => removeCgroup(slot), {
    timeoutMs: 10_000,
    everyMs: 50,
  });
}

/** A shim's own socket lies in a folder that every containerd of the machine shares; its address is written down beside its container. */
function removeShimSockets(nodeRun: string): void {
  const tasks = join(nodeRun, "containerd/io.containerd.runtime.v2.task/k8s.io");
  for (const task of existsSync(tasks) ? readdirSync(tasks) : []) {
    const file = join(tasks, task, "address");
    if (!existsSync(file)) continue;
    const address = readFileSync(file, "utf8").trim();
    if (address.startsWith("unix://")) rmSync(address.slice("unix://".length), { force: true });
  }
}

/** The network namespaces of a node's pods are known from the records that the CNI library keeps for each. */
async function removePodNamespaces(slot: Slot): Promise<void> {
  const prefix = `${cniNetworkOf(slot)}-`;
  const files = existsSync(CNI_RESULTS) ? readdirSync(CNI_RESULTS) : [];
  const names: string[] = [];
  for (const file of files.filter((name) => name.startsWith(prefix))) {
    names.push(...namespacesIn(readFileSync(join(CNI_RESULTS, file), "utf8")));
    // The same pod's record of its loopback device carries nothing of ours but the pod's id.
    const pod = file.slice(prefix.length).replace(/-eth0$/, "");
    for (const record of [file, `cni-loopback-${pod}-lo`]) rmSync(join(CNI_RESULTS, record), { force: true });
  }
  await Promise.all([...new Set(names)].map((name) => tryRun("ip", ["netns", "delete", name])));
}

/** The names of the network namespaces that a record of the CNI library mentions. */
export function namespacesIn(record: string): readonly string[] {
  const matches = record.matchAll(/\/run\/netns\/(cni-[0-9a-f-]+)/g);
  return [...new Set([...matches].map((match) => match[1] ?? ""))];
}

function removeLogLinks(nodeRoot: string): void {
  for (const name of existsSync(CONTAINER_LOG_LINKS) ? readdirSync(CONTAINER_LOG_LINKS) : []) {
    const link = join(CONTAINER_LOG_LINKS, name);
    try {
      if (readlinkSync(link).startsWith(`${nodeRoot}/`)) rmSync(link);
    } catch {
      // Not a link, or gone already.
    }
  }
}
