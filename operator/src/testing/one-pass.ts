/** One pass of the operator over the cell of the simulated world: the production loop on simulated ports. */
import { isDeepStrictEqual } from "node:util";
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
  SERVICE,
  SERVICE_ACCOUNT,
} from "../api/kinds.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { Builders, Built } from "../control/act.ts";
import type { Caches } from "../control/reader.ts";
import { cachedReader, liveReader, VolumeMemory } from "../control/reader.ts";
import { reconcileCell } from "../control/reconcile-cell.ts";
import type { CellPassParts, PassResult } from "../control/reconcile-cell.ts";
import { RollBudget } from "../control/roll-budget.ts";
import type { KubeObject, ObjectCache, ObjectRef, ResourceKind } from "../kube/types.ts";
import { memberClaim } from "../resources/claim.ts";
import { cellMember } from "../resources/member.ts";
import { memberPod } from "../resources/pod.ts";
import { clientService, disruptionBudget, peersService, serviceAccount } from "../resources/shared.ts";
import { podSpecHash } from "../resources/spec-hash.ts";
import type { Cluster } from "./cluster.ts";
import { SimAdmin, SimKube } from "./ports.ts";
import type { Gate } from "./ports.ts";

/** One operator's process: what it remembers goes with it. */
export interface OperatorProcess {
  readonly pass: (ref: ObjectRef) => Promise<PassResult>;
}

export function startOperator(cluster: Cluster, gate: Gate): OperatorProcess {
  const kube = new SimKube(cluster, gate);
  const admin = new SimAdmin(cluster, gate);
  const caches = cachesOf(cluster, gate);
  const volumes = new VolumeMemory(kube);
  const wallMs = (): number => cluster.nowMs;
  const parts: CellPassParts = {
    kube,
    cached: cachedReader(caches, volumes),
    live: liveReader(kube, caches, volumes),
    cells: caches.cells,
    rolls: new RollBudget(1),
    observeParts: () =>
      Promise.resolve({
        caches,
        admin,
        wallMs,
        mayRoll: true,
        certificates: () =>
          Promise.resolve({ kind: "ready", message: "", notAfterMs: undefined, due: undefined } as const),
        wantedSpecHash: (cell) => podSpecHash(cell.spec),
        outdatedObjects: (cell) => outdatedObjects(cluster, cell),
        obstacles: () => [],
      }),
    actParts: () =>
      Promise.resolve({
        kube,
        admin,
        builders: BUILDERS,
        advanceCertificates: () => Promise.resolve(),
        wallMs,
      }),
    tell: () => undefined,
    log: () => undefined,
    forget: () => undefined,
  };
  return { pass: (ref) => reconcileCell(parts, ref) };
}

const BUILDERS: Builders = {
  shared: (cell, { disruptionMinAvailable, admitted }) => [
    ...services(cell, admitted),
    { kind: POD_DISRUPTION_BUDGET, object: disruptionBudget(cell, disruptionMinAvailable) },
  ],
  member: (cell, action) => cellMember(cell, action),
  claim: (cell, member) => memberClaim(cell, member),
  pod: (cell, member, { mode, role, avoid }) =>
    memberPod({ cell, member, mode, role, otherNodes: avoid, defaultImage: "v1" }),
};

function services(cell: CoordinationCell, admitted: boolean): readonly Built[] {
  return [
    { kind: SERVICE_ACCOUNT, object: serviceAccount(cell) },
    { kind: SERVICE, object: peersService(cell) },
    { kind: SERVICE, object: clientService(cell, admitted) },
  ];
}

function outdatedObjects(cluster: Cluster, cell: CoordinationCell): readonly string[] {
  return services(cell, cell.status?.admitted === true)
    .filter(({ kind, object }) => {
      const found = cluster.api.get(kind, object.metadata) as (KubeObject & { spec?: unknown }) | undefined;
      const wanted = object as KubeObject & { spec?: unknown };
      return found === undefined || !isDeepStrictEqual(found.spec, wanted.spec);
    })
    .map(({ object }) => `${object.kind}/${object.metadata.name}`);
}

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
