import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeObject, ResourceKind } from "../kube/types.ts";
import { contains, createBuilders, outdatedShared } from "./builders.ts";

const cell = {
  apiVersion: "lockstep.dev/v1alpha1",
  kind: "CoordinationCell",
  metadata: { name: "main", namespace: "infra", uid: "c-1" },
  spec: { voters: 3 },
} as unknown as CoordinationCell;

const settings = {
  defaultImage: "cell:1",
  networkPoliciesFor: { namespace: "lockstep-system", labels: { app: "operator" } },
};

/** The objects as the apiserver would give them back: with what it and others add. */
function stored(admitted: boolean): Map<string, KubeObject> {
  const built = createBuilders(settings).shared(cell, { disruptionMinAvailable: 2, admitted });
  return new Map(
    built.map(({ kind, object }) => [
      `${kind.kind}/${object.metadata.name}`,
      {
        ...object,
        metadata: { ...object.metadata, uid: "u", annotations: { "cloud.example/lb": "x" } },
        status: {},
      },
    ]),
  );
}

function outdated(objects: ReadonlyMap<string, KubeObject>, of: CoordinationCell = cell): readonly string[] {
  return outdatedShared(settings, of, (kind: ResourceKind, { name }) => objects.get(`${kind.kind}/${name}`));
}

describe("shared objects of a cell", () => {
  it("are up to date with whatever others added to them", () => {
    assert.deepEqual(outdated(stored(false)), []);
  });

  it("are missed when they are not there", () => {
    const objects = stored(false);
    objects.delete("Service/main-peers");
    assert.deepEqual(outdated(objects), ["Service/main-peers"]);
    assert.equal(outdated(new Map()).length, 5);
  });

  it("are put right when somebody changed what the operator decides", () => {
    const objects = stored(false);
    const budget = objects.get("PodDisruptionBudget/main") as KubeObject & { spec: object };
    objects.set("PodDisruptionBudget/main", {
      ...budget,
      spec: { ...budget.spec, unhealthyPodEvictionPolicy: "AlwaysAllow" },
    } as KubeObject);
    assert.deepEqual(outdated(objects), ["PodDisruptionBudget/main"]);
  });

  it("are put right when the cell owns them, as those of earlier versions: the garbage collector would take them", () => {
    const objects = stored(false);
    const service = objects.get("Service/main-peers");
    assert.ok(service !== undefined);
    const owner = { apiVersion: cell.apiVersion, kind: cell.kind, name: "main", uid: "c-1" };
    const metadata = { ...service.metadata, ownerReferences: [owner] };
    objects.set("Service/main-peers", { ...service, metadata });
    assert.deepEqual(outdated(objects), ["Service/main-peers"]);
  });

  it("leave the disruption budget's number to the planner", () => {
    const objects = stored(false);
    const budget = objects.get("PodDisruptionBudget/main") as KubeObject & { spec: object };
    objects.set("PodDisruptionBudget/main", {
      ...budget,
      spec: { ...budget.spec, minAvailable: 3 },
    } as KubeObject);
    assert.deepEqual(outdated(objects), []);
  });

  it("let clients in only once the cell's status says so", () => {
    const admitted = { ...cell, status: { admitted: true } };
    assert.deepEqual(outdated(stored(false), admitted), ["Service/main-client"]);
    assert.deepEqual(outdated(stored(true), admitted), []);
  });
});

describe("containing", () => {
  it("asks for what is wanted and no more", () => {
    assert.equal(contains({ a: 1, b: { c: [1, 2], d: 3 } }, { b: { c: [1, 2] } }), true);
    assert.equal(contains({ b: { c: [1, 2, 3] } }, { b: { c: [1, 2] } }), false);
    assert.equal(contains({ a: null }, { a: {} }), false);
    assert.equal(contains({}, { a: undefined }), true);
    assert.equal(contains(undefined, {}), false);
  });
});
