// The running cluster: what scenarios hold in their hands.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Api } from "./api.ts";
import { run, type CommandResult } from "./command.ts";
import { ControlPlane } from "./control-plane.ts";
import { E2eError } from "./error.ts";
import type { Archive } from "./images.ts";
import { SLOTS, kubeconfigOf, nodeFoldersOf, parseNodeName, type Layout, type Slot } from "./layout.ts";
import { createNetwork } from "./network.ts";
import { ClusterNode } from "./node.ts";
import { adminCredentials, createIdentities } from "./pki.ts";
import type { Programs } from "./programs.ts";
import type { Say } from "./progress.ts";
import { renderStorageClass } from "./render.ts";
import { rememberAbsentFolders } from "./teardown.ts";
import { Volumes } from "./volumes.ts";
import { until } from "./waiting.ts";

const READY_TIMEOUT_MS = 120_000;

/** How a client program is run. */
export interface ClientOptions {
  /** Its standard input, e.g. a manifest for `apply -f -`. */
  readonly input?: string;
  /** Default: 120 s. */
  readonly timeoutMs?: number;
  /** Exit codes that do not throw. Default: only 0. */
  readonly allowedCodes?: readonly number[];
  readonly signal?: AbortSignal | undefined;
}

/** All that a new or a running cluster is made of. */
export interface ClusterParts {
  readonly layout: Layout;
  readonly programs: Programs;
  readonly say: Say;
  /** Ends a start that is under way. */
  readonly signal: AbortSignal;
}

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly unschedulable?: boolean };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

/** A real Kubernetes of five nodes in three zones on this machine. */
export class Cluster {
  readonly layout: Layout;
  readonly programs: Programs;
  /** Path of the administrator's kubeconfig. */
  readonly kubeconfig: string;
  readonly controlPlane: ControlPlane;
  /** The volumes' provisioner, and what scenarios may do to a volume: `wipe`, `fill`, `free`. */
  readonly volumes: Volumes;
  /** The five nodes, by slot 1 to 5 in order. */
  readonly nodes: readonly ClusterNode[];
  /** A client of the apiserver as administrator, for what is asked often; see `kubectl` for the rest. */
  readonly api: Api;

  private constructor(parts: ClusterParts, generations: ReadonlyMap<Slot, number>) {
    const { layout, programs, say } = parts;
    this.layout = layout;
    this.programs = programs;
    this.kubeconfig = kubeconfigOf(layout);
    this.api = new Api(adminCredentials(layout));
    this.controlPlane = new ControlPlane(layout, programs, this.api);
    this.volumes = new Volumes(this.api, layout, say);
    this.nodes = SLOTS.map((slot) => new ClusterNode(layout, programs, slot, generations.get(slot)));
  }

  /** Starts a new cluster on a machine that has none; `pause` is the sandbox image. Returns when every node is Ready. */
  static async start(parts: ClusterParts, pause: Archive): Promise<Cluster> {
    const { layout, signal } = parts;
    mkdirSync(layout.state, { recursive: true });
    mkdirSync(layout.run, { recursive: true });
    rememberAbsentFolders(layout);
    await Promise.all([createIdentities(layout), createNetwork()]);
    const cluster = new Cluster(parts, new Map());
    await Promise.all([
      cluster.controlPlane.startAll(signal),
      ...cluster.nodes.map(async (node) => {
        await node.startContainerd(signal);
        await node.importImage(pause);
      }),
    ]);
    signal.throwIfAborted();
    for (const node of cluster.nodes) node.startAgents();
    await cluster.kubectl(["apply", "-f", "-"], { input: renderStorageClass(), signal });
    await cluster.untilReady(cluster.nodes, signal);
    writeFileSync(join(layout.run, "up"), "");
    return cluster;
  }

  /** The cluster that `up` or `run --keep` left running. Throws `state` when there is none. */
  static attach(parts: ClusterParts): Cluster {
    const generations = new Map<Slot, number>();
    try {
      readFileSync(join(parts.layout.run, "up"));
      for (const slot of SLOTS) {
        const name = readFileSync(nodeFoldersOf(parts.layout, slot).nameFile, "utf8");
        generations.set(slot, parseNodeName(name)?.generation ?? 1);
      }
    } catch (error) {
      throw new E2eError("state", "no whole cluster is running; `npm run e2e -- up` starts one", {
        cause: error,
      });
    }
    return new Cluster(parts, generations);
  }

  /** The node in a slot, 1 to 5. */
  node(slot: Slot): ClusterNode {
    const node = this.nodes[slot - 1];
    if (node === undefined)
      throw new TypeError(`no node ${String(slot)}: they are 1 to ${String(SLOTS.length)}`);
    return node;
  }

  /** The node with this name now. */
  nodeNamed(name: string): ClusterNode {
    const node = this.nodes.find((one) => one.name === name);
    if (node === undefined) throw new E2eError("state", `no node is named ${name}`);
    return node;
  }

  /** Runs kubectl as administrator and returns what it printed. Throws `command` with its last lines when it fails. */
  async kubectl(args: readonly string[], options: ClientOptions = {}): Promise<string> {
    return (await this.client("kubectl", args, options)).stdout;
  }

  /** Runs kubectl with `-o json` and returns the parsed answer. */
  async kubectlJson<T>(args: readonly string[], options: ClientOptions = {}): Promise<T> {
    return JSON.parse(await this.kubectl([...args, "--output=json"], options)) as T;
  }

  /** Runs helm as administrator and returns what it printed. */
  async helm(args: readonly string[], options: ClientOptions = {}): Promise<string> {
    return (await this.client("helm", args, options)).stdout;
  }

  /** Like `kubectl` and `helm`, and returns exit code and both outputs: to look at a refusal, allow its code. */
  async client(
    program: "kubectl" | "helm",
    args: readonly string[],
    options: ClientOptions = {},
  ): Promise<CommandResult> {
    return run(join(this.programs.clients, program), args, { ...options, env: this.clientEnvironment() });
  }

  /** What a shell needs to use kubectl and helm on this cluster. */
  clientEnvironment(): Record<string, string> {
    const path = `${this.programs.clients}:${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
    const home = join(this.layout.state, "home");
    return {
      KUBECONFIG: this.kubeconfig,
      PATH: path,
      // Their caches and settings: those of this cluster, not those of the person who runs it.
      KUBECACHEDIR: join(home, "kube-cache"),
      HELM_CACHE_HOME: join(home, "helm-cache"),
      HELM_CONFIG_HOME: join(home, "helm-config"),
      HELM_DATA_HOME: join(home, "helm-data"),
    };
  }

  /** Imports an image into all nodes at once. Nodes that are rebuilt later get it too. */
  async importImage(archive: Archive): Promise<void> {
    await Promise.all(this.#standingNodes().map((node) => node.importImage(archive)));
  }

  /** Gives an imported image a second name on all nodes: `repository:tag` both. */
  async tagImage(source: string, target: string): Promise<void> {
    await Promise.all(this.#standingNodes().map((node) => node.tagImage(source, target)));
  }

  /** Puts a new machine into the slot of a lost one: deletes its Node object, and starts a node of another name. */
  async rebuild(slot: Slot): Promise<void> {
    const node = this.node(slot);
    await this.kubectl(["delete", "node", node.name, "--ignore-not-found"]);
    const [model] = this.#standingNodes();
    await node.startSuccessor();
    for (const one of model?.imported() ?? [])
      if ("file" in one) await node.importImage(one);
      else await node.tagImage(one.source, one.image);
    await this.untilReady([node]);
  }

  #standingNodes(): readonly ClusterNode[] {
    return this.nodes.filter((node) => node.condition !== "lost");
  }

  /** Waits until these nodes (default: all) are Ready. Throws `timeout` after two minutes. */
  async untilReady(nodes: readonly ClusterNode[] = this.nodes, signal?: AbortSignal): Promise<void> {
    const names = nodes.map((node) => node.name);
    const what = `${names.join(", ")} Ready`;
    await until(
      what,
      async () => (await this.readyNodes()).filter((name) => names.includes(name)).length === names.length,
      {
        timeoutMs: READY_TIMEOUT_MS,
        signal,
      },
    );
  }

  /** Names of the nodes that Kubernetes holds for Ready. */
  async readyNodes(): Promise<readonly string[]> {
    const { items } = await this.#nodeObjects();
    const ready = (node: NodeObject): boolean =>
      node.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
    return items.filter(ready).map((node) => node.metadata.name);
  }

  async #nodeObjects(): Promise<{ readonly items: readonly NodeObject[] }> {
    return this.api.get("/api/v1/nodes");
  }

  /** Undoes what a scenario may have left: stopped programs, partitions, cordons, lost nodes. */
  async restore(): Promise<void> {
    await this.controlPlane.restore();
    for (const node of this.nodes) {
      if (node.condition === "lost") await this.rebuild(node.slot);
      else await node.restore();
    }
    const cordoned = (await this.#nodeObjects()).items.filter((node) => node.spec.unschedulable === true);
    for (const node of cordoned) await this.kubectl(["uncordon", node.metadata.name]);
    await this.untilReady();
  }
}
