/** One pass of the operator over the cell of the simulated world: the production loop on simulated ports. */
import type { KubernetesNamespace, StorageClass } from "../api/core.ts";
import {
  CELL_MEMBER,
  CELL_NAMESPACE,
  CELL_OPERATION,
  COORDINATION_CELL,
  KUBERNETES_NAMESPACE,
  NODE,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
} from "../api/kinds.ts";
import { CELL_FINALIZER } from "../api/names.ts";
import type { CoordinationCellSpec } from "../api/types.ts";
import { act, addFinalizer } from "../control/act.ts";
import type { ActParts, Builders } from "../control/act.ts";
import { createBuilders, outdatedShared } from "../control/builders.ts";
import type { BuilderSettings } from "../control/builders.ts";
import { hasLeftovers } from "../control/leftovers.ts";
import { observe } from "../control/observe.ts";
import type { ObserveParts } from "../control/observe.ts";
import type { Caches } from "../control/reader.ts";
import { cachedReader, liveReader, VolumeMemory } from "../control/reader.ts";
import { hostsOf, reconcileCell } from "../control/reconcile-cell.ts";
import type { CellPassParts, PassResult } from "../control/reconcile-cell.ts";
import { RollBudget } from "../control/roll-budget.ts";
import type { KubeObject, ObjectCache, ObjectRef, ResourceKind } from "../kube/types.ts";
import { plan } from "../plan/plan.ts";
import type { CertificatesView, Decision, Observation } from "../plan/types.ts";
import { podSpecHash } from "../resources/spec-hash.ts";
import type { Cluster } from "./cluster.ts";
import { SimAdmin, SimKube } from "./ports.ts";
import type { Gate } from "./ports.ts";

/** One operator's process: what it remembers goes with it. */
export interface OperatorProcess {
  readonly pass: (ref: ObjectRef) => Promise<PassResult>;
}

/** The production loop. */
export function startOperator(cluster: Cluster, gate: Gate): OperatorProcess {
  const ports = portsOf(cluster, gate);
  const parts: CellPassParts = {
    kube: ports.kube,
    cached: cachedReader(ports.caches, ports.volumes),
    live: liveReader(ports.kube, ports.caches, ports.volumes),
    cells: ports.caches.cells,
    rolls: new RollBudget(1),
    refusals: new Map(),
    configurations: new Map(),
    observeParts: () => Promise.resolve(ports.observeParts),
    actParts: () => Promise.resolve(ports.actParts),
    tell: () => undefined,
    log: () => undefined,
    hasLeftovers: (ref, uid) =>
      hasLeftovers(ports.caches, (kind, its) => cluster.api.get(kind, its), ref, uid),
    forget: () => undefined,
  };
  return { pass: (ref) => reconcileCell(parts, ref) };
}

/** What a planted bug changes: what is seen, what is decided on it, or what is made then. */
export interface Bug {
  readonly see?: (observation: Observation) => Observation;
  readonly decide?: (decision: Decision, observation: Observation) => Decision;
  readonly build?: (builders: Builders) => Builders;
}

/** The shortest loop there can be, with a planner that is wrong in one way. */
export function startBuggyOperator(bug: Bug): (cluster: Cluster, gate: Gate) => OperatorProcess {
  return (cluster, gate) => {
    const { kube, caches, volumes, observeParts, actParts } = portsOf(cluster, gate);
    const reader = liveReader(kube, caches, volumes);
    return {
      pass: async (ref) => {
        const cell = await kube.get(COORDINATION_CELL, ref);
        if (cell === undefined) return { lookAgainMs: undefined };
        if (cell.metadata.finalizers === undefined && cell.metadata.deletionTimestamp === undefined) {
          await addFinalizer(kube, COORDINATION_CELL, cell, CELL_FINALIZER);
          return { lookAgainMs: 0 };
        }
        const { observation, objects, answers } = await observe(observeParts, cell, reader);
        const seen = bug.see?.(observation) ?? observation;
        const planned = plan(seen);
        const decision = bug.decide?.(planned, seen) ?? planned;
        const { name, namespace = "", resourceVersion = "" } = cell.metadata;
        const metadata = { name, namespace, resourceVersion };
        await kube.applyStatus(COORDINATION_CELL, { ...cell, metadata, status: decision.status });
        if (decision.action === undefined) return { lookAgainMs: decision.lookAgainMs };
        const { leaderTarget } = answers;
        const builders = bug.build?.(actParts.builders) ?? actParts.builders;
        await act(
          { ...actParts, builders },
          { cell, objects, leaderTarget, hosts: hostsOf(observation) },
          decision.action,
        );
        return { lookAgainMs: 200 };
      },
    };
  };
}

interface Ports {
  readonly kube: SimKube;
  readonly caches: Caches;
  readonly volumes: VolumeMemory;
  readonly observeParts: ObserveParts;
  readonly actParts: ActParts;
}

function portsOf(cluster: Cluster, gate: Gate): Ports {
  const kube = new SimKube(cluster, gate);
  const admin = new SimAdmin(cluster, gate);
  const caches = cachesOf(cluster, gate);
  const wallMs = (): number => cluster.nowMs;
  return {
    kube,
    caches,
    volumes: new VolumeMemory(kube),
    observeParts: {
      caches,
      admin,
      wallMs,
      mayRoll: true,
      certificates: () => Promise.resolve(CERTIFICATES),
      wantedSpecHash: (cell) => hashOf(cell.spec),
      outdatedObjects: (cell) => outdatedShared(SETTINGS, cell, (kind, ref) => cluster.api.get(kind, ref)),
      obstacles: () => [],
    },
    actParts: {
      ...{ kube, admin, builders: BUILDERS, wallMs },
      advanceCertificates: () => Promise.resolve(),
      releaseCertificates: () => Promise.resolve(),
    },
  };
}

const CERTIFICATES: CertificatesView = { kind: "ready", message: "", notAfterMs: undefined, due: undefined };

const hashes = new WeakMap<CoordinationCellSpec, string>();

function hashOf(spec: CoordinationCellSpec): string {
  const known = hashes.get(spec) ?? podSpecHash(spec);
  hashes.set(spec, known);
  return known;
}

const SETTINGS: BuilderSettings = { defaultImage: "v1", networkPoliciesFor: undefined };
const BUILDERS = createBuilders(SETTINGS);

function cachesOf(cluster: Cluster, gate: Gate): Caches {
  const cacheOf = <T extends KubeObject>(kind: ResourceKind<T>): ObjectCache<T> => ({
    get: (ref) => cluster.api.get(kind, ref, gate.lagMs()),
    list: (namespace) => cluster.api.list(kind, namespace === undefined ? {} : { namespace }, gate.lagMs()),
    byLabel: (key, value) => cluster.api.list(kind, { labelSelector: `${key}=${value}` }, gate.lagMs()),
    synced: true,
  });
  const storageClasses: ObjectCache<StorageClass> = {
    get: () => undefined,
    list: () => [],
    byLabel: () => [],
    synced: true,
  };
  return {
    cells: cacheOf(COORDINATION_CELL),
    members: cacheOf(CELL_MEMBER),
    requests: cacheOf(CELL_OPERATION),
    tenants: cacheOf(CELL_NAMESPACE),
    pods: cacheOf(POD),
    claims: cacheOf(PERSISTENT_VOLUME_CLAIM),
    budgets: cacheOf(POD_DISRUPTION_BUDGET),
    nodes: cacheOf(NODE),
    storageClasses,
    kubernetesNamespaces: cacheOf<KubernetesNamespace>(KUBERNETES_NAMESPACE),
  };
}
