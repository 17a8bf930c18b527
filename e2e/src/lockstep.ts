// Lockstep as scenarios use it: the operator installed by Helm, and cells.
import { join } from "node:path";
import assert from "node:assert/strict";
import { run } from "./command.ts";
import type { CommandResult } from "./command.ts";
import type { ScenarioContext } from "./scenario.ts";

export const OPERATOR_NAMESPACE = "lockstep-system";
/** The names by which charts and examples know the images. */
const RELEASED = { cell: "lockstep-cell:0.1.0", operator: "lockstep-operator:0.1.0" } as const;
/** As containerd names what a manifest calls `NAME:TAG`. */
const inRegistry = (image: string): string => `docker.io/library/${image}`;
const CLUSTER_WIDE_MS = 150_000;
const CHANGE_MS = 180_000;
/** After it a loss counts: far less than in production, so that scenarios end. */
export const LOSS_AFTER = "1m";

export interface CellMember {
  readonly name: string;
  readonly id?: number;
  readonly role: string;
  readonly leader?: boolean;
  readonly zone?: string;
  readonly node?: string;
  readonly ready: boolean;
  readonly lag?: number;
  readonly version?: string;
}

export interface CellOperation {
  readonly id: string;
  readonly kind: string;
  readonly step: string;
  readonly message: string;
  readonly cause: string;
  readonly result?: string;
}

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

/** A CoordinationCell as it stands. */
export interface CellObject {
  readonly metadata: { readonly name: string; readonly uid: string; readonly generation: number };
  readonly spec: Readonly<Record<string, unknown>> & { readonly voters: number };
  readonly status?: {
    readonly observedGeneration?: number;
    readonly phase?: string;
    readonly cellId?: string;
    readonly leader?: string;
    readonly voters?: number;
    readonly readyVoters?: number;
    readonly formatVersion?: number;
    readonly admitted?: boolean;
    readonly members?: readonly CellMember[];
    readonly operation?: CellOperation;
    readonly lastOperation?: CellOperation;
    readonly conditions?: readonly Condition[];
  };
}

export interface CellPod {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName?: string; readonly containers: readonly { readonly image: string }[] };
  readonly status?: {
    readonly phase?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

/** Gives this run's images the names that charts and examples use, on every node. */
export async function nameImages(context: ScenarioContext): Promise<void> {
  const { cluster } = context;
  const images = await context.projectImages();
  await cluster.tagImage(images.cell.image, inRegistry(RELEASED.cell));
  await cluster.tagImage(images.operator.image, inRegistry(RELEASED.operator));
}

/** Another name of this run's cell image: to Kubernetes, and so to the operator, another image. */
export async function otherCellImage(context: ScenarioContext, tag: string): Promise<string> {
  const { cluster } = context;
  const name = `lockstep-cell:${tag}`;
  await cluster.tagImage((await context.projectImages()).cell.image, inRegistry(name));
  return name;
}

/** Installs the operator by its chart, with its real roles; again changes nothing. @param values `--set` each */
export async function installOperator(
  context: ScenarioContext,
  values: readonly string[] = [],
): Promise<void> {
  const { cluster, signal } = context;
  await nameImages(context);
  await cluster.helm(
    [
      ...["upgrade", "--install", "lockstep", join(cluster.layout.repository, "charts/lockstep")],
      ...["--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait", "--timeout", "2m"],
      // Short leases, so that an operator that is killed is followed soon.
      ...["--set", "leaseDuration=3s,renewDeadline=2s,retryPeriod=1s"],
      ...values.flatMap((value) => ["--set", value]),
    ],
    { timeoutMs: CLUSTER_WIDE_MS, signal },
  );
}

export interface CellWish {
  readonly name?: string;
  readonly voters?: 1 | 3 | 5;
  readonly image?: string;
  /** Merged into the spec. */
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** One cell of the scenario's namespace. */
export class Cell {
  readonly name: string;
  readonly #context: ScenarioContext;

  constructor(context: ScenarioContext, name: string) {
    this.#context = context;
    this.name = name;
  }

  /** Applies it and waits until it is Ready. @returns how long that took, in seconds */
  static async create(
    context: ScenarioContext,
    wish: CellWish = {},
  ): Promise<{ cell: Cell; seconds: number }> {
    const cell = new Cell(context, wish.name ?? "main");
    const started = performance.now();
    await cell.apply(wish);
    await cell.untilReady();
    return { cell, seconds: (performance.now() - started) / 1000 };
  }

  async apply(wish: CellWish): Promise<void> {
    const { voters = 3, image, spec } = wish;
    await this.#context.apply({
      apiVersion: "lockstep.dev/v1alpha1",
      kind: "CoordinationCell",
      metadata: { name: this.name },
      spec: {
        voters,
        ...(image === undefined ? {} : { image }),
        storage: { size: "600Mi" },
        replacementPolicy: { after: LOSS_AFTER },
        updatePolicy: { minReadySeconds: 3 },
        // Two cores for a whole cluster: what a member asks for must fit five times over.
        resources: { requests: { cpu: "20m", memory: "128Mi" } },
        ...spec,
      },
    });
  }

  /** Merges into the spec, as `kubectl patch` does. */
  async patch(spec: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#context.kubectl([
      ...["patch", "coordinationcell", this.name, "--type=merge"],
      ...["--patch", JSON.stringify({ spec })],
    ]);
  }

  get(): Promise<CellObject> {
    return this.#context.kubectlJson<CellObject>(["get", "coordinationcell", this.name]);
  }

  async pods(): Promise<readonly CellPod[]> {
    const selector = `--selector=lockstep.dev/cell=${this.name},app.kubernetes.io/component=member`;
    return (
      await this.#context.kubectlJson<{ readonly items: readonly CellPod[] }>(["get", "pods", selector])
    ).items;
  }

  /** Until the cell is as `holds` wants it; the failure shows what it was. */
  async until(
    what: string,
    holds: (cell: CellObject) => boolean,
    timeoutMs: number = CHANGE_MS,
  ): Promise<CellObject> {
    let last: CellObject | undefined;
    try {
      return await this.#context.until(
        `${this.name}: ${what}`,
        async () => {
          last = await this.get();
          return holds(last) ? last : undefined;
        },
        { timeoutMs, everyMs: 300 },
      );
    } catch (error) {
      const status = last?.status;
      const shown = {
        phase: status?.phase,
        operation: status?.operation,
        lastOperation: status?.lastOperation,
      };
      this.#context.say(`${this.name} was: ${JSON.stringify(shown)}`);
      for (const condition of status?.conditions ?? []) {
        this.#context.say(
          `  ${condition.type}=${condition.status} ${condition.reason}: ${condition.message}`,
        );
      }
      throw error;
    }
  }

  /** Ready for the spec as it stands, with so many voters. */
  untilReady(timeoutMs?: number): Promise<CellObject> {
    return this.until(
      "Ready",
      (cell) =>
        isTrue(cell, "Ready") &&
        cell.status?.observedGeneration === cell.metadata.generation &&
        cell.status.readyVoters === cell.spec.voters,
      timeoutMs,
    );
  }

  /** Asks for a one-off action and waits until the operator says that it is done. */
  async request(
    spec: Readonly<Record<string, unknown>> & { readonly action: string },
    timeoutMs: number = CHANGE_MS,
  ): Promise<void> {
    const name = `${spec.action.toLowerCase()}-${String(Date.now())}`;
    await this.#context.apply({
      apiVersion: "lockstep.dev/v1alpha1",
      kind: "CellOperation",
      metadata: { name },
      spec: { cell: this.name, ...spec },
    });
    await this.#context.until(
      `CellOperation ${name} has succeeded`,
      async () => {
        const { status } = await this.#context.kubectlJson<{
          readonly status?: { readonly phase?: string; readonly message?: string };
        }>(["get", "celloperation", name]);
        assert.notEqual(status?.phase, "Failed", status?.message);
        return status?.phase === "Succeeded";
      },
      { timeoutMs, everyMs: 500 },
    );
  }

  /** What must hold whenever the cell is at rest. */
  async checkAtRest(): Promise<void> {
    const cell = await this.get();
    const { members = [], operation } = cell.status ?? {};
    assert.equal(operation, undefined, "no operation is under way");
    assert.equal(members.length, cell.spec.voters, `members: ${members.map(({ name }) => name).join(", ")}`);
    assert.ok(members.every(({ role, ready }) => role === "Voter" && ready));
    const nodes = members.map(({ node }) => node);
    assert.equal(new Set(nodes).size, nodes.length, `one member a host: ${nodes.join(", ")}`);
    const zones = new Set(members.map(({ zone }) => zone));
    assert.equal(zones.size, Math.min(3, members.length), `zones: ${[...zones].join(", ")}`);
    // A pod on a machine that is gone ends when Kubernetes gives it up; nobody waits for it.
    const pods = (await this.pods()).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
    assert.deepEqual(
      pods.map(({ metadata }) => metadata.name).sort(),
      members.map(({ name }) => name).sort(),
    );
    const budget = await this.#context.kubectlJson<{ readonly spec: { readonly minAvailable: number } }>([
      ...["get", "poddisruptionbudget", this.name],
    ]);
    assert.equal(budget.spec.minAvailable, Math.floor(members.length / 2) + 1);
  }
}

export function isTrue(cell: CellObject, type: string): boolean {
  return cell.status?.conditions?.some((each) => each.type === type && each.status === "True") === true;
}

export function conditionOf(cell: CellObject, type: string): Condition | undefined {
  return cell.status?.conditions?.find((each) => each.type === type);
}

/** Runs `kubectl lockstep`, as a person has it: the plugin in the PATH. */
export function kubectlLockstep(context: ScenarioContext, args: readonly string[]): Promise<CommandResult> {
  const { cluster, namespace, signal } = context;
  const environment = cluster.clientEnvironment();
  const plugins = join(cluster.layout.repository, "cli/bin");
  return run(join(cluster.programs.clients, "kubectl"), ["lockstep", ...args, "--namespace", namespace], {
    env: { ...environment, PATH: `${plugins}:${environment["PATH"] ?? ""}` },
    signal,
    allowedCodes: [0, 1],
  });
}

/** The operator that leads, by its Lease. */
export async function leadingOperator({ cluster }: ScenarioContext): Promise<{ pod: string; node: string }> {
  const lease = await cluster.kubectlJson<{ readonly spec: { readonly holderIdentity?: string } }>([
    ...["get", "lease", "lockstep-operator", "--namespace", OPERATOR_NAMESPACE],
  ]);
  const pod = (lease.spec.holderIdentity ?? "").split("_")[0] ?? "";
  assert.notEqual(pod, "", "somebody leads");
  const { spec } = await cluster.kubectlJson<CellPod>([
    ...["get", "pod", pod, "--namespace", OPERATOR_NAMESPACE],
  ]);
  return { pod, node: spec.nodeName ?? "" };
}
