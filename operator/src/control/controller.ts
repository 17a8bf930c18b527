import {
  CELL_MEMBER,
  CELL_NAMESPACE,
  CELL_OPERATION,
  COORDINATION_CELL,
  KUBERNETES_NAMESPACE,
  NETWORK_POLICY,
  NODE,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
  SERVICE,
  SERVICE_ACCOUNT,
  STORAGE_CLASS,
} from "../api/kinds.ts";
import type { Node } from "../api/core.ts";
import { identityOf, LABEL } from "../api/labels.ts";
import { CELL_FINALIZER, MEMBER_FINALIZER, NAMESPACE_FINALIZER } from "../api/names.ts";
import { same } from "../api/same.ts";
import type { CoordinationCell } from "../api/types.ts";
import { GrpcCellAdmin } from "../cell/grpc-admin.ts";
import type { CellAdmin, MemberTarget } from "../cell/types.ts";
import { createInformer, KubeError, WorkQueue } from "../kube/index.ts";
import type {
  EventRecorder,
  Informer,
  InformerOptions,
  KubeClient,
  KubeMetrics,
  KubeObject,
  ObjectRef,
  ResourceKind,
  Rest,
  Runtime,
} from "../kube/index.ts";
import { reconcileNamespace } from "../namespaces/reconcile.ts";
import type { NamespacePassParts } from "../namespaces/reconcile.ts";
import { podSpecHash } from "../resources/spec-hash.ts";
import { askCell } from "./ask.ts";
import { createBuilders, outdatedShared } from "./builders.ts";
import type { BuilderSettings, FindShared } from "./builders.ts";
import type { CertificateKeeper } from "./certificate-keeper.ts";
import { hasLeftovers, obstacleOfLeftovers } from "./leftovers.ts";
import { targetsOf } from "./observe.ts";
import { obstaclesOf } from "./obstacles.ts";
import { cachedReader, liveReader, VolumeMemory } from "./reader.ts";
import type { Caches, CellReader } from "./reader.ts";
import { reconcileCell } from "./reconcile-cell.ts";
import type { CellPassParts } from "./reconcile-cell.ts";
import { RollBudget } from "./roll-budget.ts";

export interface ControllerSettings extends BuilderSettings {
  /** Undefined: the whole cluster. */
  readonly watchNamespaces: readonly string[] | undefined;
  readonly maxConcurrentRolls: number;
  /** Cells looked at at once. */
  readonly workers: number;
  /** A cell in which nothing changes is looked at this often. */
  readonly steadyLookMs: number;
}

export interface ControllerParts {
  readonly rest: Rest;
  readonly kube: KubeClient;
  readonly runtime: Runtime;
  readonly events: Pick<EventRecorder, "record">;
  readonly certificates: CertificateKeeper;
  readonly metrics: KubeMetrics;
  readonly log: (
    level: "debug" | "info" | "warn" | "error",
    message: string,
    fields?: Readonly<Record<string, unknown>>,
  ) => void;
  readonly settings: ControllerSettings;
}

type Informers = {
  readonly [K in keyof Caches]: Caches[K] extends { get(ref: ObjectRef): infer T }
    ? Informer<Extract<T, KubeObject>>
    : never;
} & { readonly shared: readonly Informer<KubeObject>[] };

interface Queues {
  readonly cells: WorkQueue;
  readonly namespaces: WorkQueue;
}

/** A cell's status is a heartbeat for people: two of them in a minute would say the same. */
const DELAY_JITTER = 0.2;

/**
 * Keeps the informers and the two queues: one pass per cell and per Namespace at a time, at changes and every now and
 * then. Informers run as long as the process, so that a stand-by can take over at once; queues only while it leads.
 */
export class Controller {
  readonly #parts: ControllerParts;
  readonly #informers: Informers;
  readonly #admins = new Map<string, GrpcCellAdmin>();
  readonly #rolls: RollBudget;
  readonly #refusals = new Map<string, string>();
  readonly #cached: CellReader;
  readonly #live: CellReader;
  #queues: Queues | undefined;

  constructor(parts: ControllerParts) {
    this.#parts = parts;
    this.#informers = this.#createInformers();
    this.#rolls = new RollBudget(parts.settings.maxConcurrentRolls);
    const volumes = new VolumeMemory(parts.kube);
    this.#cached = cachedReader(this.#informers, volumes);
    this.#live = liveReader(parts.kube, this.#informers, volumes);
  }

  /** Resolves when every informer has its first list. */
  async startInformers(signal: AbortSignal): Promise<void> {
    for (const informer of this.#all()) informer.start();
    await Promise.all(this.#all().map((informer) => informer.whenSynced(signal)));
  }

  /** What keeps the informers from following, in words; undefined: nothing. */
  problem(): string | undefined {
    return this.#all()
      .map((informer) => informer.problem())
      .find((problem) => problem !== undefined);
  }

  /** As the informer has them. */
  cells(): readonly CoordinationCell[] {
    return this.#informers.cells.list();
  }

  /** Works until `signal` is aborted: while this process leads. */
  async run(signal: AbortSignal): Promise<void> {
    // Cells that roll since before this operator began count from the first pass on.
    for (const cell of this.cells()) this.#rolls.note(keyOf(cell), cell.status?.operation?.kind === "Roll");
    const queues = this.#createQueues();
    this.#queues = queues;
    const unsubscribe = this.#subscribe(queues);
    queues.cells.start();
    queues.namespaces.start();
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    for (const end of unsubscribe) end();
    this.#queues = undefined;
    await Promise.all([queues.cells.drain(DRAIN_MS), queues.namespaces.drain(DRAIN_MS)]);
  }

  async stop(): Promise<void> {
    await Promise.all(this.#all().map((informer) => informer.stop()));
    for (const admin of this.#admins.values()) admin.close();
    this.#admins.clear();
  }

  #all(): readonly Informer<KubeObject>[] {
    const { shared, ...named } = this.#informers;
    return [...(Object.values(named) as unknown as readonly Informer<KubeObject>[]), ...shared];
  }

  #createInformers(): Informers {
    const { rest, log, settings } = this.#parts;
    const report = (message: string, error: Error): void => log("warn", message, { reason: error.message });
    const make = <T extends KubeObject>(
      kind: ResourceKind<T>,
      options: Partial<InformerOptions<T>> = {},
    ): Informer<T> =>
      createInformer(kind, {
        rest,
        report,
        ...(kind.namespaced && settings.watchNamespaces !== undefined
          ? { namespaces: settings.watchNamespaces }
          : {}),
        ...options,
      });
    // Only what carries our labels: a cluster's other pods are none of our memory.
    const ours = { labelSelector: `${LABEL.managedBy}=lockstep-operator` };
    const shared: Informer<KubeObject>[] = [make(SERVICE, ours), make(SERVICE_ACCOUNT, ours)];
    if (settings.networkPoliciesFor !== undefined) {
      shared.push(make(NETWORK_POLICY, ours));
    }
    return {
      cells: make(COORDINATION_CELL),
      members: make(CELL_MEMBER),
      requests: make(CELL_OPERATION),
      tenants: make(CELL_NAMESPACE),
      pods: make(POD, ours),
      claims: make(PERSISTENT_VOLUME_CLAIM, ours),
      budgets: make(POD_DISRUPTION_BUDGET, ours),
      nodes: make(NODE, { trim: trimNode }),
      storageClasses: make(STORAGE_CLASS),
      kubernetesNamespaces: make(KUBERNETES_NAMESPACE),
      shared,
    };
  }

  #createQueues(): Queues {
    const { runtime, metrics, settings, log } = this.#parts;
    const report = (message: string, error: Error): void => log("warn", message, { reason: error.message });
    const common = { runtime, metrics, report, concurrency: settings.workers };
    const cellParts = this.#cellPassParts();
    const namespaceParts = this.#namespacePassParts();
    return {
      cells: new WorkQueue({
        ...common,
        name: "cells",
        work: async (key) => {
          const { lookAgainMs } = await this.#explain(refOf(key), () => reconcileCell(cellParts, refOf(key)));
          return { requeueAfterMs: Math.min(lookAgainMs ?? Infinity, this.#steadyMs()) };
        },
      }),
      namespaces: new WorkQueue({
        ...common,
        name: "namespaces",
        work: async (key) => {
          const lookAgainMs = await this.#explain(refOf(key), () =>
            reconcileNamespace(namespaceParts, refOf(key)),
          );
          return lookAgainMs === undefined ? {} : { requeueAfterMs: lookAgainMs };
        },
      }),
    };
  }

  /** Rights that stand in the Kubernetes namespace itself may go with it before the cells: only a person can help then. */
  async #explain<T>({ namespace }: { readonly namespace: string }, pass: () => Promise<T>): Promise<T> {
    try {
      return await pass();
    } catch (error) {
      const its = this.#informers.kubernetesNamespaces.get({ name: namespace });
      const goes = its?.metadata.deletionTimestamp !== undefined;
      if (goes && error instanceof KubeError && error.reason === "forbidden") {
        const help = `take the finalizers ${[MEMBER_FINALIZER, CELL_FINALIZER, NAMESPACE_FINALIZER].join(", ")} off its objects by hand: see "Stuck in Terminating" in docs/kubernetes.md`;
        this.#parts.log("error", "the rights in a Kubernetes namespace went before its cells", {
          namespace,
          help,
        });
      }
      throw error;
    }
  }

  /** Spread, so that a fleet is not looked at in one breath. */
  #steadyMs(): number {
    const { settings, runtime } = this.#parts;
    return settings.steadyLookMs * (1 - DELAY_JITTER / 2 + DELAY_JITTER * runtime.random());
  }

  /** What a change of an object means for which keys. */
  #subscribe({ cells, namespaces }: Queues): readonly (() => void)[] {
    const informers = this.#informers;
    const cellOf = (object: KubeObject): void => {
      const name = object.metadata.labels?.[LABEL.cell];
      if (name !== undefined) cells.add(`${object.metadata.namespace ?? ""}/${name}`);
    };
    const everyCell = (): void => {
      for (const cell of informers.cells.list()) cells.add(keyOf(cell));
    };
    return [
      informers.cells.subscribe(({ object }) => {
        cells.add(keyOf(object));
        for (const tenant of informers.tenants.list()) {
          if (cellKeyOfTenant(tenant) === keyOf(object)) namespaces.add(keyOf(tenant));
        }
      }),
      informers.members.subscribe(({ object }) => cellOf(object)),
      informers.pods.subscribe(({ object }) => cellOf(object)),
      informers.claims.subscribe(({ object }) => cellOf(object)),
      informers.budgets.subscribe(({ object }) => cellOf(object)),
      ...informers.shared.map((informer) => informer.subscribe(({ object }) => cellOf(object))),
      informers.requests.subscribe(({ object }) =>
        cells.add(`${object.metadata.namespace ?? ""}/${object.spec.cell}`),
      ),
      informers.tenants.subscribe(({ kind, object }) => {
        if (kind !== "deleted") namespaces.add(keyOf(object));
        cells.add(cellKeyOfTenant(object));
      }),
      informers.nodes.subscribe((change) => {
        // A node's heartbeats come often and mean nothing.
        if (change.kind !== "updated" || !same(placement(change.previous), placement(change.object)))
          everyCell();
      }),
      informers.kubernetesNamespaces.subscribe(({ object }) => {
        if (object.metadata.deletionTimestamp === undefined) return;
        const here = (other: KubeObject): boolean => other.metadata.namespace === object.metadata.name;
        for (const cell of informers.cells.list().filter(here)) cells.add(keyOf(cell));
        for (const tenant of informers.tenants.list().filter(here)) namespaces.add(keyOf(tenant));
      }),
    ];
  }

  #cellPassParts(): CellPassParts {
    const { kube, certificates, runtime, events, log, settings } = this.#parts;
    const builders = createBuilders(settings);
    const wallMs = (): number => runtime.wallMs();
    return {
      kube,
      cached: this.#cached,
      live: this.#live,
      cells: this.#informers.cells,
      rolls: this.#rolls,
      refusals: new Map(),
      configurations: new Map(),
      observeParts: async (cell) => {
        await certificates.load(cell);
        return {
          caches: this.#informers,
          admin: this.#adminOf(cell),
          wallMs,
          mayRoll: this.#rolls.allows(keyOf(cell)),
          certificates: (members, answers) => certificates.view(cell, members, answers),
          wantedSpecHash: (of) => podSpecHash(of.spec),
          outdatedObjects: (of) => outdatedShared(settings, of, this.#findShared()),
          obstacles: (of) => [
            ...obstacleOfLeftovers(this.#informers, identityOf(of)),
            ...obstaclesOf(of, this.#informers),
          ],
        };
      },
      actParts: (cell) =>
        Promise.resolve({
          kube,
          admin: this.#adminOf(cell),
          builders,
          advanceCertificates: () => certificates.advance(cell),
          releaseCertificates: () => certificates.release(cell),
          wallMs,
        }),
      tell: (cell, { type, reason, message }) =>
        events.record(cell, { type, reason, action: "Reconcile", note: message }),
      log: (message, fields) => log("info", message, fields),
      hasLeftovers: (ref, uid) => hasLeftovers(this.#informers, this.#findShared(), ref, uid),
      forget: (ref) => this.#forget(ref),
    };
  }

  #namespacePassParts(): NamespacePassParts {
    const { kube, runtime, events, certificates } = this.#parts;
    return {
      kube,
      cell: (ref) => this.#informers.cells.get(ref),
      kubernetesNamespace: (name) => this.#informers.kubernetesNamespaces.get({ name }),
      reach: async (cell) => {
        await certificates.load(cell);
        return this.#reach(cell);
      },
      wallMs: () => runtime.wallMs(),
      tell: (object, { type, reason, message }) =>
        events.record(object, { type, reason, action: "Reconcile", note: message }),
      refusals: this.#refusals,
    };
  }

  async #reach(
    cell: CoordinationCell,
  ): Promise<{ readonly admin: CellAdmin; readonly target: MemberTarget } | { readonly why: string }> {
    const admin = this.#adminOf(cell);
    const { members, pods } = await this.#cached.objects(cell);
    const answers = await askCell(admin, targetsOf(members, pods), cell.status?.cellId);
    if (answers.leaderTarget === undefined) return { why: answers.silence };
    return { admin, target: answers.leaderTarget };
  }

  #adminOf(cell: CoordinationCell): CellAdmin {
    const { uid } = identityOf(cell);
    const known = this.#admins.get(uid);
    if (known !== undefined) return known;
    const admin = new GrpcCellAdmin({ credentials: () => this.#parts.certificates.adminCredentials(uid) });
    this.#admins.set(uid, admin);
    return admin;
  }

  #findShared(): FindShared {
    const { shared, budgets } = this.#informers;
    const caches = [...shared, budgets as unknown as Informer<KubeObject>];
    return (kind, ref) => caches.find((informer) => informer.kind.plural === kind.plural)?.get(ref);
  }

  /** The object is gone; its uid is known only here. */
  #forget(ref: ObjectRef): void {
    const alive = new Set(this.#informers.cells.list().map((cell) => cell.metadata.uid ?? ""));
    for (const [uid, admin] of this.#admins) {
      if (alive.has(uid)) continue;
      admin.close();
      this.#admins.delete(uid);
    }
    this.#parts.certificates.forget(alive);
    this.#queues?.cells.forget(`${ref.namespace ?? ""}/${ref.name}`);
  }
}

const DRAIN_MS = 5_000;

/** What of a node decides about members: informers have trimmed the rest. */
function placement({ metadata, spec, status }: Node): unknown {
  return [metadata.labels, spec, status];
}

function keyOf({ metadata }: KubeObject): string {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

function refOf(key: string): ObjectRef & { readonly namespace: string } {
  const [namespace = "", name = ""] = key.split("/");
  return { namespace, name };
}

function cellKeyOfTenant(
  tenant: KubeObject & { readonly spec: { readonly cellRef: { name: string; namespace?: string } } },
): string {
  const { name, namespace } = tenant.spec.cellRef;
  return `${namespace ?? tenant.metadata.namespace ?? ""}/${name}`;
}

/** Images and addresses are most of a node's object, and nobody asks for them. */
function trimNode<T extends KubeObject>(node: T): T {
  const { metadata, spec, status, ...rest } = node as T & {
    readonly spec?: Readonly<Record<string, unknown>>;
    readonly status?: { readonly conditions?: readonly Readonly<Record<string, unknown>>[] };
  };
  const kept = Object.entries(metadata).filter(
    ([field]) => field !== "annotations" && field !== "managedFields",
  );
  return {
    ...rest,
    metadata: Object.fromEntries(kept),
    spec: { unschedulable: spec?.["unschedulable"], taints: spec?.["taints"] },
    status: {
      conditions: (status?.conditions ?? [])
        .filter(({ type }) => type === "Ready")
        .map(({ type, status: is, reason }) => ({ type, status: is, reason })),
    },
  } as unknown as T;
}
