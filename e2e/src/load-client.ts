// The load as scenarios use it: a pod of a cell's own Kubernetes namespace that writes, locks and watches until it is
// stopped. It goes on by itself while nobody can ask it anything.
import { join } from "node:path";
import type { Cluster, ClientOptions } from "./cluster.ts";
import { E2eError } from "./error.ts";
import type { Archive, ImageBuilder } from "./images.ts";
import type { LoadReport } from "./load/load.ts";
import type { Verification } from "./load/verify.ts";
import type { ScenarioContext } from "./scenario.ts";
import { until } from "./waiting.ts";

export type { LoadReport } from "./load/load.ts";
export type { Verification } from "./load/verify.ts";

const IMAGE = "e2e.lockstep.dev/load:dev";
const PORT = 8080;
const CLIENT_PORT = 7400;
const TLS_PATH = "/tls";
const USER = 65532;
/** A Secret and a Service that the operator is still making, and the cell's first leader. */
const READY_MS = 180_000;
/** How long an apiserver or a pod that does not answer is asked again. */
const ANSWER_MS = 60_000;
/** A verification reads everything back, and waits half a minute for a watch. */
const VERIFY_MS = 180_000;

export interface LoadClientOptions {
  /** Kubernetes namespace of the cell, and of the pod. */
  readonly namespace: string;
  /** Name of the cell: its Service and its Secret are `CELL-client`. */
  readonly cell: string;
  /** Name of the imported load image; see `loadImage`. */
  readonly image: string;
  /** Name of the pod. Default: `CELL-load`. */
  readonly pod?: string;
  /**
   * The Node that it must run on: one that the scenario does not drain or lose, for the load's memory goes with its
   * pod. Absent: the scheduler chooses.
   */
  readonly nodeName?: string;
  /** Writes a second. Default: 50. */
  readonly writesPerSecond?: number;
  /** More flags of the program; see load/options.ts. */
  readonly flags?: readonly string[];
  readonly signal?: AbortSignal | undefined;
}

/** What of the cluster is used. */
export interface LoadCluster {
  readonly api: Pick<Cluster["api"], "get" | "create">;
  kubectl(args: readonly string[], options?: ClientOptions): Promise<string>;
}

/** A load in the cluster. */
export class LoadClient {
  readonly pod: string;
  readonly #cluster: LoadCluster;
  readonly #options: LoadClientOptions;
  /** Of the first report: a load that was started anew would remember nothing of what it was promised. */
  #instance: string | undefined;

  private constructor(cluster: LoadCluster, options: LoadClientOptions) {
    this.#cluster = cluster;
    this.#options = options;
    this.pod = podNameOf(options);
  }

  /** Makes the pod and waits until a write was acknowledged. */
  static async start(cluster: LoadCluster, options: LoadClientOptions): Promise<LoadClient> {
    const load = new LoadClient(cluster, options);
    await load.#kubectl(["apply", "-f", "-"], { input: JSON.stringify(loadPod(options)) });
    await until(
      `the load ${load.pod} has written`,
      async () => (await load.#get<LoadReport>("report")).total.acknowledged > 0,
      { timeoutMs: READY_MS, signal: options.signal },
    );
    load.#instance = (await load.report()).instance;
    return load;
  }

  /** Begins a phase: `report().current` counts and measures from here. Letters, digits, blanks and `.:,+-`. */
  async mark(name: string): Promise<void> {
    const path = `${this.#path("mark")}?name=${encodeURIComponent(name)}`;
    await this.#answered("takes a mark", async () => {
      await this.#cluster.api.create(path, {});
      return true;
    });
  }

  /** Waits up to a minute for an answer: the apiserver may have just come back. */
  async report(): Promise<LoadReport> {
    const report = await this.#answered("reports", () => this.#get<LoadReport>("report"));
    this.#checkInstance(report);
    return report;
  }

  /**
   * Lets the load read back everything. Throws an Error that lists the violations of its whole life, or says why not
   * everything could be looked at.
   */
  async verify(): Promise<LoadReport & { readonly verification: Verification }> {
    const text = await this.#answered("verifies", () =>
      this.#kubectl(["get", "--raw", this.#path("verify")], { timeoutMs: VERIFY_MS }),
    );
    const { verification, report } = JSON.parse(text) as {
      readonly verification: Verification;
      readonly report: LoadReport;
    };
    this.#checkInstance(report);
    if (report.violations.count > 0) throw new Error(describeViolations(report));
    if (!verification.complete)
      throw new E2eError("timeout", `the load could not look at everything: ${verification.reason}`);
    return { ...report, verification };
  }

  /** Deletes the pod. What it found is gone with it: verify first. */
  async stop(): Promise<void> {
    await this.#kubectl(["delete", "pod", this.pod, "--ignore-not-found", "--timeout=60s"]);
  }

  #checkInstance(report: LoadReport): void {
    this.#instance ??= report.instance;
    if (report.instance !== this.#instance)
      throw new E2eError("state", `the load ${this.pod} was started anew: what it remembered is lost`);
  }

  #answered<T extends object | string | true>(what: string, ask: () => Promise<T>): Promise<T> {
    return until(`the load ${this.pod} ${what}`, ask, {
      timeoutMs: ANSWER_MS,
      everyMs: 500,
      signal: this.#options.signal,
    });
  }

  #get<T>(path: string): Promise<T> {
    return this.#cluster.api.get<T>(this.#path(path));
  }

  /** The pod, through the apiserver. */
  #path(path: string): string {
    return `/api/v1/namespaces/${this.#options.namespace}/pods/${this.pod}:${String(PORT)}/proxy/${path}`;
  }

  #kubectl(args: readonly string[], options: ClientOptions = {}): Promise<string> {
    const { namespace, signal } = this.#options;
    return this.#cluster.kubectl([`--namespace=${namespace}`, ...args], { signal, ...options });
  }
}

const podNameOf = ({ pod, cell }: Pick<LoadClientOptions, "pod" | "cell">): string => pod ?? `${cell}-load`;

/**
 * A pod that the `restricted` profile admits. It is never started anew and stays on a node that is away: a load that
 * forgot what it was promised would check nothing.
 */
export function loadPod(options: LoadClientOptions): object {
  const { namespace, cell, image, nodeName, writesPerSecond, flags = [] } = options;
  const args = [
    `--endpoints=${cell}-client.${namespace}.svc:${String(CLIENT_PORT)}`,
    `--tls=${TLS_PATH}`,
    `--listen=0.0.0.0:${String(PORT)}`,
    ...(writesPerSecond === undefined ? [] : [`--writes=${String(writesPerSecond)}`]),
    ...flags,
  ];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: podNameOf(options), namespace, labels: { app: "load" } },
    spec: {
      restartPolicy: "Never",
      terminationGracePeriodSeconds: 10,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...(nodeName === undefined ? {} : { nodeSelector: { "kubernetes.io/hostname": nodeName } }),
      tolerations: ["not-ready", "unreachable"].map((what) => ({
        key: `node.kubernetes.io/${what}`,
        operator: "Exists",
        effect: "NoExecute",
      })),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: USER,
        runAsGroup: USER,
        fsGroup: USER,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [
        {
          name: "load",
          image,
          imagePullPolicy: "Never",
          args,
          ports: [{ name: "http", containerPort: PORT }],
          readinessProbe: { httpGet: { path: "/readyz", port: "http" }, periodSeconds: 2 },
          resources: { requests: { cpu: "10m", memory: "96Mi" } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          },
          // No subPath: a mount of a single file would never see the renewed Secret.
          volumeMounts: [{ name: "tls", mountPath: TLS_PATH, readOnly: true }],
        },
      ],
      volumes: [{ name: "tls", secret: { secretName: `${cell}-client`, defaultMode: 0o440 } }],
    },
  };
}

/** A sentence for each violation that the load kept, and what it had done until then. */
export function describeViolations(report: LoadReport): string {
  const { violations, total, locks, watch } = report;
  const lines = violations.kept.map(({ kind, at, details }) => `  ${kind} at ${at}: ${details}`);
  const more = violations.count - violations.kept.length;
  return [
    `the load found ${String(violations.count)} violations:`,
    ...lines,
    ...(more > 0 ? [`  and ${String(more)} more`] : []),
    `  (${String(total.acknowledged)} writes acknowledged, ${String(total.unknown)} unknown, ${String(locks.acquired)} locks, ${String(watch.events)} events)`,
  ].join("\n");
}

/** One line for a scenario's progress. */
export function describePhase({ current, violations }: LoadReport): string {
  const { name, acknowledged, unknown, failed, longestWriteGapMs, p50Ms, p99Ms } = current;
  return `load, ${name}: ${String(acknowledged)} writes, ${String(unknown)} unknown, ${String(failed)} refused, longest gap ${String(longestWriteGapMs)} ms, p50 ${String(p50Ms)} ms, p99 ${String(p99Ms)} ms, ${String(violations.count)} violations`;
}

/** Builds the load's image upon the cell's, which holds the client library. */
export function loadImage(images: ImageBuilder, cell: Archive): Promise<Archive> {
  const context = join(import.meta.dirname, "load");
  return images.build({ image: IMAGE, context, buildArguments: { CELL_IMAGE: cell.image } });
}

const imported = new WeakMap<Cluster, Promise<Archive>>();

async function buildAndImport(context: ScenarioContext): Promise<Archive> {
  const archive = await loadImage(context.images, (await context.projectImages()).cell);
  await context.cluster.importImage(archive);
  return archive;
}

/**
 * Starts a load on a cell of the scenario's namespace and stops it at the scenario's end. The image is built and
 * imported by the first who asks.
 */
export async function startLoad(
  context: ScenarioContext,
  options: Omit<LoadClientOptions, "namespace" | "image" | "signal">,
): Promise<LoadClient> {
  const { cluster, namespace, signal } = context;
  let image = imported.get(cluster);
  if (image === undefined) {
    image = buildAndImport(context);
    imported.set(cluster, image);
    // The next who asks tries again.
    image.catch(() => imported.delete(cluster));
  }
  const load = await LoadClient.start(cluster, { ...options, namespace, signal, image: (await image).image });
  context.finally(() => load.stop());
  return load;
}
