import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pod } from "../api/core.ts";
import { CELL_MEMBER, COORDINATION_CELL } from "../api/kinds.ts";
import { CELL_FINALIZER } from "../api/names.ts";
import type { CellMember, Condition, CoordinationCell } from "../api/types.ts";
import { CellAdminError } from "../cell/types.ts";
import type { CellAdmin } from "../cell/types.ts";
import { KubeError } from "../kube/types.ts";
import type { KubeClient, KubeObject, ObjectCache } from "../kube/types.ts";
import { memberClaim } from "../resources/claim.ts";
import { cellMember } from "../resources/member.ts";
import { memberPod } from "../resources/pod.ts";
import { disruptionBudget } from "../resources/shared.ts";
import { coordinationCell } from "../resources/testing/objects.ts";
import { createBuilders } from "./builders.ts";
import type { CellObjects, CellReader } from "./reader.ts";
import { reconcileCell } from "./reconcile-cell.ts";
import type { CellPassParts } from "./reconcile-cell.ts";
import { RollBudget } from "./roll-budget.ts";

const REF = { namespace: "apps", name: "orders" } as const;
const NOW_MS = Date.parse("2030-01-01T12:00:00Z");

const CELL: CoordinationCell = {
  ...coordinationCell({ voters: 1 }),
  metadata: { ...coordinationCell().metadata, resourceVersion: "7", finalizers: [CELL_FINALIZER] },
  status: {
    cellId: "id-1",
    admitted: true,
    voters: 1,
    members: [{ name: "orders-a", id: 1, role: "Voter", ready: true }],
  },
};

const MEMBER: CellMember = withUid(
  cellMember(CELL, { name: "orders-a", zone: undefined, bootstrap: false, replaces: undefined }),
);
const POD: Pod = withUid(
  memberPod({
    cell: CELL,
    member: MEMBER,
    mode: { kind: "existing" },
    role: "voter",
    defaultImage: "lockstep-cell:test",
    otherNodes: [],
  }),
);
const WHOLE: CellObjects = {
  members: [MEMBER],
  pods: [POD],
  claims: [withUid(memberClaim(CELL, MEMBER))],
  requests: [],
  budget: withUid(disruptionBudget(CELL, 1)),
};
const WITHOUT_POD: CellObjects = { ...WHOLE, pods: [] };

function withUid<T extends KubeObject>(object: T): T {
  return { ...object, metadata: { ...object.metadata, uid: `uid-${object.kind}`, resourceVersion: "3" } };
}

interface World {
  readonly cached: CellObjects;
  readonly live: CellObjects;
  /** What the apiserver has by now. Default: the same as the cache. */
  readonly liveCell?: CoordinationCell | undefined;
  /** What the apiserver says to a new status. */
  readonly refuses?: KubeError;
  /** What it says to a new pod. */
  readonly refusesPod?: KubeError;
  /** What earlier passes remember. */
  readonly refusals?: CellPassParts["refusals"];
  /** Told of the conditions that are written. */
  readonly hears?: (conditions: readonly Condition[]) => void;
}

/** @returns what one pass wrote, in order. */
async function pass(world: World): Promise<readonly string[]> {
  const writes: string[] = [];
  const note = (verb: string, kind: { readonly kind: string }, name: string): Promise<never> => {
    writes.push(`${verb} ${kind.kind} ${name}`);
    return Promise.resolve({} as never);
  };
  const kube: KubeClient = {
    get: (kind) =>
      Promise.resolve(
        (kind.plural === COORDINATION_CELL.plural
          ? "liveCell" in world
            ? world.liveCell
            : CELL
          : undefined) as never,
      ),
    list: () => Promise.resolve([]),
    create: (kind, { metadata }) =>
      world.refusesPod === undefined ? note("create", kind, metadata.name) : Promise.reject(world.refusesPod),
    apply: (kind, { metadata }) => note("apply", kind, metadata.name),
    mergePatch: (kind, { name }) => note("patch", kind, name),
    delete: async (kind, { name }) => note("delete", kind, name),
    applyStatus: (kind, object) => {
      const { metadata, status } = object as unknown as CoordinationCell;
      const isCell = kind.plural === COORDINATION_CELL.plural;
      if (isCell) world.hears?.(status?.conditions ?? []);
      if (isCell && world.refuses !== undefined) return Promise.reject(world.refuses);
      if (isCell) assert.equal(metadata.resourceVersion, "7", "decided on what was read, and on no other");
      return kind.plural === CELL_MEMBER.plural
        ? Promise.resolve({} as never)
        : note("status", kind, metadata.name);
    },
  };
  await reconcileCell(partsOf(world, kube), REF);
  return writes;
}

const NOBODY: CellAdmin = (() => {
  const silent = (): Promise<never> =>
    Promise.reject(new CellAdminError("unreachable", "nobody answers", "not-applied"));
  return {
    status: silent,
    configuration: silent,
    changeMembership: silent,
    transferLeadership: silent,
    raiseFormatVersion: silent,
    listNamespaces: silent,
    createNamespace: silent,
    deleteNamespace: silent,
  };
})();

function partsOf(world: World, kube: KubeClient): CellPassParts {
  const reader = (objects: CellObjects): CellReader => ({
    objects: () => Promise.resolve(objects),
    node: () => Promise.resolve(undefined),
    volume: () => Promise.resolve(undefined),
  });
  const empty = <T extends KubeObject>(): ObjectCache<T> => ({
    get: () => undefined,
    list: () => [],
    byLabel: () => [],
    synced: true,
  });
  const caches = {
    cells: empty<CoordinationCell>(),
    members: empty<CellMember>(),
    requests: empty<never>(),
    tenants: empty<never>(),
    pods: empty<Pod>(),
    claims: empty<never>(),
    budgets: empty<never>(),
    nodes: empty<never>(),
    storageClasses: empty<never>(),
    kubernetesNamespaces: empty<never>(),
  };
  const builders = createBuilders({ defaultImage: "lockstep-cell:test", networkPoliciesFor: undefined });
  return {
    kube,
    cached: reader(world.cached),
    live: reader(world.live),
    cells: { get: () => CELL },
    rolls: new RollBudget(1),
    refusals: world.refusals ?? new Map<string, never>(),
    configurations: new Map(),
    observeParts: () =>
      Promise.resolve({
        caches,
        admin: NOBODY,
        wallMs: () => NOW_MS,
        mayRoll: true,
        certificates: () =>
          Promise.resolve({ kind: "ready" as const, message: "", notAfterMs: undefined, due: undefined }),
        wantedSpecHash: () => POD.metadata.annotations?.["lockstep.dev/spec-hash"] ?? "",
        outdatedObjects: () => [],
        obstacles: () => [],
      }),
    actParts: () =>
      Promise.resolve({
        kube,
        admin: NOBODY,
        builders,
        releaseCertificates: () => Promise.resolve(),
        advanceCertificates: () => Promise.resolve(),
        wallMs: () => NOW_MS,
      }),
    tell: () => undefined,
    log: () => undefined,
    hasLeftovers: () => false,
    forget: () => undefined,
  };
}

describe("a pass over a cell", () => {
  it("writes the status, then does what the apiserver itself shows to be missing", async () => {
    assert.deepEqual(await pass({ cached: WITHOUT_POD, live: WITHOUT_POD }), [
      "status CoordinationCell orders",
      "create Pod orders-a",
    ]);
  });

  it("makes nothing that only a late cache lacks", async () => {
    assert.deepEqual(await pass({ cached: WITHOUT_POD, live: WHOLE }), ["status CoordinationCell orders"]);
  });

  it("ends nothing that only a late cache still shows", async () => {
    const ended = withUid<Pod>({ ...POD, status: { phase: "Failed" } });
    assert.deepEqual(await pass({ cached: { ...WHOLE, pods: [ended] }, live: WHOLE }), [
      "status CoordinationCell orders",
    ]);
    const both = { ...WHOLE, pods: [ended] };
    assert.deepEqual(await pass({ cached: both, live: both }), [
      "status CoordinationCell orders",
      "delete Pod orders-a",
    ]);
  });

  it("does nothing when somebody else decided meanwhile: the status is refused, and the action with it", async () => {
    const refuses = new KubeError("conflict", "the object has been modified", { status: 409 });
    assert.deepEqual(await pass({ cached: WITHOUT_POD, live: WITHOUT_POD, refuses }), []);
  });

  it("does nothing for a cell of the same name that is another one by now, or none", async () => {
    const younger = { ...CELL, metadata: { ...CELL.metadata, uid: "another" } };
    for (const liveCell of [younger, undefined]) {
      assert.deepEqual(await pass({ cached: WITHOUT_POD, live: WITHOUT_POD, liveCell }), []);
    }
  });
});

describe("what the apiserver refuses", () => {
  const refusesPod = new KubeError("forbidden", 'exceeded quota: "small", requested: pods=1', {
    status: 403,
  });

  it("stands in the conditions from the next pass on, in its own words, until it is done", async () => {
    const refusals: CellPassParts["refusals"] = new Map();
    const stalled: string[] = [];
    const hears = (conditions: readonly Condition[]): void => {
      stalled.push(
        conditions.find(({ type, status }) => type === "Stalled" && status === "True")?.message ?? "",
      );
    };
    const world = { cached: WITHOUT_POD, live: WITHOUT_POD, refusals, hears };
    await assert.rejects(pass({ ...world, refusesPod }), { reason: "forbidden" });
    await assert.rejects(pass({ ...world, refusesPod }), { reason: "forbidden" });
    await pass(world);
    await pass(world);
    assert.deepEqual(stalled, [
      "",
      'The step "create-pod orders-a" was refused: exceeded quota: "small", requested: pods=1',
      'The step "create-pod orders-a" was refused: exceeded quota: "small", requested: pods=1',
      "",
    ]);
  });

  it("is not what may pass by itself", async () => {
    const refusals: CellPassParts["refusals"] = new Map();
    const away = new KubeError("unavailable", "connection reset");
    await assert.rejects(pass({ cached: WITHOUT_POD, live: WITHOUT_POD, refusals, refusesPod: away }));
    assert.equal(refusals.size, 0);
  });
});
