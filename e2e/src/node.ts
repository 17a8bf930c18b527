// One node of the cluster: its namespace, containerd, kubelet and kube-proxy.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createCgroup } from "./cgroups.ts";
import { run, type CommandResult } from "./command.ts";
import { identityOf, runningDaemon, signalProcess, startDaemon, stopDaemon } from "./daemon.ts";
import { E2eError } from "./error.ts";
import {
  logsOf,
  networkNamespaceOf,
  nodeAddressOf,
  nodeFoldersOf,
  nodeNameOf,
  pkiOf,
  zoneOf,
  type Layout,
  type NodeFolders,
  type Slot,
} from "./layout.ts";
import type { Archive } from "./images.ts";
import { hasArchive, readImported, withImage, writeImported, type ImportedImage } from "./imported.ts";
import { setLink } from "./network.ts";
import { issue, nodeIdentity } from "./pki.ts";
import type { Programs } from "./programs.ts";
import { renderCni, renderContainerd, renderKubeProxy, renderKubelet, renderRegistries } from "./render.ts";
import { killNode, removeNode } from "./residue.ts";
import { until } from "./waiting.ts";

const IMPORT_TIMEOUT_MS = 300_000;

/** Which container of a pod a signal is for. */
export interface SignalOptions {
  /** The container's name. Absent: every container of the pod. */
  readonly container?: string;
  /** Default: SIGKILL. SIGSTOP and SIGCONT freeze and thaw it. */
  readonly signal?: NodeJS.Signals;
}

/** A node's state as the harness knows it. */
export type NodeCondition = "running" | "partitioned" | "lost";

/** One node. Made by `Cluster`; its slot stays, while a lost node's successor has another name. */
export class ClusterNode {
  /** 1 to 5. */
  readonly slot: Slot;
  readonly zone: string;
  readonly address: string;
  readonly folders: NodeFolders;
  readonly #layout: Layout;
  readonly #programs: Programs;
  #generation: number;
  #condition: NodeCondition = "running";

  constructor(layout: Layout, programs: Programs, slot: Slot, generation = 1) {
    this.slot = slot;
    this.zone = zoneOf(slot);
    this.address = nodeAddressOf(slot);
    this.folders = nodeFoldersOf(layout, slot);
    this.#layout = layout;
    this.#programs = programs;
    this.#generation = generation;
  }

  /** The Node object's name now: `node-3`, after a rebuild `node-3-2`. */
  get name(): string {
    return nodeNameOf(this.slot, this.#generation);
  }

  get generation(): number {
    return this.#generation;
  }

  get condition(): NodeCondition {
    return this.#condition;
  }

  /** Writes the node's configuration and starts containerd; returns when it answers. */
  async startContainerd(signal?: AbortSignal): Promise<void> {
    const { root, run: runFolder, containerdSocket } = this.folders;
    for (const folder of ["containerd", "kubelet", "cni", "disks", "volumes", "registries/_default"])
      mkdirSync(join(root, folder), { recursive: true });
    mkdirSync(runFolder, { recursive: true });
    createCgroup(this.slot);
    writeFileSync(this.folders.nameFile, this.name);
    writeFileSync(join(root, "containerd.toml"), renderContainerd(this.folders));
    writeFileSync(join(root, "registries/_default/hosts.toml"), renderRegistries());
    writeFileSync(join(root, "cni/10-pods.conflist"), renderCni(this.slot, this.folders));
    this.#startDaemon("containerd", "containerd", ["--config", join(root, "containerd.toml")]);
    await until(
      `containerd of ${this.name} answers`,
      async () => (await run("ctr", ["--address", containerdSocket, "version"])).code === 0,
      { everyMs: 100, timeoutMs: 60_000, signal },
    );
  }

  /** Starts kubelet and kube-proxy; the node registers itself with the apiserver. */
  startAgents(): void {
    const pki = (file: string): string => join(pkiOf(this.#layout), file);
    const kubelet = renderKubelet({
      slot: this.slot,
      folders: this.folders,
      authorityFile: pki("ca.crt"),
      certificateFile: pki(`${this.name}.crt`),
      keyFile: pki(`${this.name}.key`),
    });
    writeFileSync(join(this.folders.root, "kubelet.json"), kubelet);
    const proxy = renderKubeProxy(this.name, pki("proxy.kubeconfig"));
    writeFileSync(join(this.folders.root, "kube-proxy.json"), proxy);
    this.#startKubelet();
    this.#startProxy();
  }

  #startKubelet(): void {
    const labels = [`topology.kubernetes.io/zone=${this.zone}`, "topology.kubernetes.io/region=region-1"];
    this.#startDaemon("kubelet", join(this.#programs.kubernetes, "kubelet"), [
      `--config=${join(this.folders.root, "kubelet.json")}`,
      `--kubeconfig=${join(pkiOf(this.#layout), `${this.name}.kubeconfig`)}`,
      `--root-dir=${join(this.folders.root, "kubelet")}`,
      `--cert-dir=${join(this.folders.root, "kubelet/pki")}`,
      `--hostname-override=${this.name}`,
      `--node-ip=${this.address}`,
      `--node-labels=${labels.join(",")}`,
      // Statistics of five nodes' cgroups every 10 s each would be most of what an idle cluster costs.
      "--housekeeping-interval=30s",
    ]);
  }

  #startProxy(): void {
    this.#startDaemon("kube-proxy", join(this.#programs.kubernetes, "kube-proxy"), [
      `--config=${join(this.folders.root, "kube-proxy.json")}`,
    ]);
  }

  /** Inside the node's network namespace. Not with `ip netns exec`, which mounts another /sys and so hides the cgroups. */
  #startDaemon(program: string, command: string, args: readonly string[]): void {
    const name = this.#daemon(program);
    const enter = `--net=/run/netns/${networkNamespaceOf(this.slot)}`;
    startDaemon(this.#layout.run, {
      name,
      command: "nsenter",
      args: [enter, command, ...args],
      logFile: join(logsOf(this.#layout), `${name}.log`),
    });
  }

  #daemon(program: string): string {
    return `node${String(this.slot)}-${program}`;
  }

  /** Cuts the node off from everything outside of it. Its pods run on and see each other. */
  async partition(): Promise<void> {
    this.#require("running");
    await setLink(this.slot, "down");
    this.#condition = "partitioned";
  }

  /** Ends `partition`. */
  async heal(): Promise<void> {
    this.#require("partitioned");
    await setLink(this.slot, "up");
    this.#condition = "running";
  }

  /**
   * Loses the machine for good: everything on it is killed at once and its disks are destroyed. The Node object stays,
   * NotReady, until someone deletes it; `rebuild` of the cluster puts a new machine into its slot.
   */
  async lose(): Promise<void> {
    if (this.#condition === "lost") throw new E2eError("state", `${this.name} is lost already`);
    await setLink(this.slot, "down");
    this.#condition = "lost";
    await killNode(this.#layout, this.slot);
    await removeNode(this.#layout, this.slot);
  }

  /** A new machine in the slot of a lost one, under a new name, with empty disks. */
  async startSuccessor(): Promise<void> {
    this.#require("lost");
    this.#generation += 1;
    await issue(this.#layout, nodeIdentity(this.slot, this.#generation));
    await setLink(this.slot, "up");
    await this.startContainerd();
    this.startAgents();
    this.#condition = "running";
  }

  /** Kills the kubelet at once; the pods run on. */
  async stopKubelet(): Promise<void> {
    await stopDaemon(this.#layout.run, this.#daemon("kubelet"), 0);
  }

  /** Starts the kubelet. Throws `state` when it runs. */
  startKubelet(): void {
    this.#startKubelet();
  }

  async restartKubelet(): Promise<void> {
    await this.stopKubelet();
    this.startKubelet();
  }

  /** Starts what should run on this node and does not, and ends a partition. A lost node stays lost. */
  async restore(): Promise<void> {
    if (this.#condition === "lost") return;
    if (this.#condition === "partitioned") await this.heal();
    const stopped = (program: string): boolean =>
      runningDaemon(this.#layout.run, this.#daemon(program)) === undefined;
    if (stopped("containerd")) await this.startContainerd();
    if (stopped("kubelet")) this.#startKubelet();
    if (stopped("kube-proxy")) this.#startProxy();
  }

  /** Runs containerd's client on this node, in Kubernetes' namespace of it. */
  async ctr(args: readonly string[], timeoutMs?: number): Promise<CommandResult> {
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    return run(
      "ctr",
      ["--address", this.folders.containerdSocket, "--namespace", "k8s.io", ...args],
      options,
    );
  }

  /** Imports a docker archive, so that pods with `imagePullPolicy: Never` or `IfNotPresent` find its image. Again is quick. */
  async importImage({ image, file }: Archive): Promise<void> {
    if (hasArchive(this.imported(), image, file)) return;
    await this.ctr(["images", "import", file], IMPORT_TIMEOUT_MS);
    this.#note({ image, file });
  }

  /** Gives an image that is there another name too. */
  async tagImage(source: string, target: string): Promise<void> {
    await this.ctr(["images", "tag", "--force", source, target]);
    this.#note({ image: target, source });
  }

  /** The images that were imported or named, in that order. */
  imported(): readonly ImportedImage[] {
    return readImported(this.folders.importedFile);
  }

  #note(added: ImportedImage): void {
    writeImported(this.folders.importedFile, withImage(this.imported(), added));
  }

  /**
   * Sends a signal to the first process of a pod's containers, past Kubernetes. Throws `state` when the pod has no
   * running container of that name on this node.
   */
  async signalPod(namespace: string, pod: string, options: SignalOptions = {}): Promise<void> {
    const pids = await this.processesOfPod(namespace, pod, options.container);
    if (pids.length === 0)
      throw new E2eError("state", `pod ${namespace}/${pod} has no running container on ${this.name}`);
    for (const pid of pids) {
      const identity = identityOf(pid);
      if (identity !== undefined) signalProcess(identity, options.signal ?? "SIGKILL");
    }
  }

  /** The first process of each running container of a pod (of the named one), as this machine numbers them. */
  async processesOfPod(namespace: string, pod: string, container?: string): Promise<readonly number[]> {
    const label = (name: string, value: string): string => `labels."io.kubernetes.${name}"=="${value}"`;
    const filter = [
      label("pod.namespace", namespace),
      label("pod.name", pod),
      ...(container === undefined
        ? [`labels."io.cri-containerd.kind"=="container"`]
        : [label("container.name", container)]),
    ].join(",");
    const [containers, tasks] = await Promise.all([
      this.ctr(["containers", "list", "--quiet", filter]),
      this.ctr(["tasks", "list"]),
    ]);
    return runningTasks(tasks.stdout, containers.stdout.split("\n").filter(Boolean));
  }

  #require(condition: NodeCondition): void {
    if (this.#condition !== condition)
      throw new E2eError("state", `${this.name} is ${this.#condition}, not ${condition}`);
  }
}

/** Process ids from the table of `ctr tasks list` (TASK PID STATUS) for these containers. */
export function runningTasks(table: string, containers: readonly string[]): readonly number[] {
  return table
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([task, , status]) => task !== undefined && containers.includes(task) && status === "RUNNING")
    .map(([, pid]) => Number(pid));
}
