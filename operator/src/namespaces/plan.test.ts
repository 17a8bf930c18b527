import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CellNamespace, CoordinationCell } from "../api/types.ts";
import { NAMESPACE_FINALIZER } from "../api/names.ts";
import { ADOPT_ANNOTATION, isAllowed, planNamespace, wireName } from "./plan.ts";
import type { NamespaceObservation } from "./plan.ts";

const cell = {
  apiVersion: "lockstep.dev/v1alpha1",
  kind: "CoordinationCell",
  metadata: { name: "main", namespace: "infra", uid: "c-1" },
  spec: { voters: 3 },
} as unknown as CoordinationCell;

function object(overrides: { metadata?: object; spec?: object } = {}): CellNamespace {
  return {
    apiVersion: "lockstep.dev/v1alpha1",
    kind: "Namespace",
    metadata: {
      name: "jobs",
      namespace: "team",
      uid: "n-1",
      generation: 2,
      finalizers: [NAMESPACE_FINALIZER],
      ...overrides.metadata,
    },
    spec: { cellRef: { name: "main", namespace: "infra" }, deletionPolicy: "Delete", ...overrides.spec },
  };
}

function seen(overrides: Partial<NamespaceObservation> = {}): NamespaceObservation {
  return {
    object: object(),
    cell,
    allowed: true,
    cellGoes: false,
    held: [],
    silence: "",
    refusal: undefined,
    ...overrides,
  };
}

const mine = { name: "jobs.team", uid: "n-1", epoch: 4, keys: 3, bytes: 100 };
const doomed = { deletionTimestamp: "2026-01-01T00:00:00Z" };

function readyOf(observation: NamespaceObservation): string {
  const { conditions } = planNamespace(observation);
  return conditions
    .filter((condition) => condition.status === "True")
    .map((condition) => `${condition.type}:${condition.reason}`)
    .join(" ");
}

describe("planning a Namespace", () => {
  it("takes charge before it makes anything, so that nothing is left behind", () => {
    const decision = planNamespace(seen({ object: object({ metadata: { finalizers: [] } }) }));
    assert.deepEqual(decision.action, { kind: "add-finalizer" });
  });

  it("creates it under NAME.KUBERNETES-NAMESPACE with the object's uid", () => {
    assert.deepEqual(planNamespace(seen()).action, { kind: "create", name: "jobs.team", uid: "n-1" });
    assert.equal(wireName(object()), "jobs.team");
  });

  it("is ready, with the epoch, when the cell holds it", () => {
    const decision = planNamespace(seen({ held: [mine] }));
    assert.equal(decision.action, undefined);
    assert.equal(decision.status.epoch, 4);
    assert.equal(decision.status.observedGeneration, 2);
    assert.equal(readyOf(seen({ held: [mine] })), "Ready:Served");
  });

  it("waits for a cell that is not there yet, which is no failure", () => {
    assert.equal(readyOf(seen({ cell: undefined })), "Reconciling:CellMissing");
  });

  it("waits for a cell that does not answer", () => {
    assert.equal(readyOf(seen({ held: undefined, silence: "m-1: no route" })), "Reconciling:CellUnavailable");
  });

  it("does nothing in a cell that does not let it in", () => {
    const decision = planNamespace(seen({ allowed: false }));
    assert.equal(decision.action, undefined);
    assert.equal(readyOf(seen({ allowed: false })), "Stalled:NotAllowed");
  });

  it("never takes what an earlier object left, unless it is told to", () => {
    const left = { ...mine, uid: "n-0" };
    const decision = planNamespace(seen({ held: [left] }));
    assert.equal(decision.action, undefined);
    assert.match(decision.conditions[0]?.message ?? "", /adopt-uid=n-0.*namespace delete jobs\.team/);
    const adopting = object({ metadata: { annotations: { [ADOPT_ANNOTATION]: "n-0" } } });
    assert.equal(readyOf(seen({ object: adopting, held: [left] })), "Ready:Served");
  });

  it("says what the cell answered when it refuses", () => {
    const decision = planNamespace(seen({ refusal: "too many namespaces" }));
    assert.match(decision.conditions[0]?.message ?? "", /too many namespaces/);
    assert.equal(readyOf(seen({ refusal: "too many namespaces" })), "Stalled:Refused");
  });
});

describe("planning the end of a Namespace", () => {
  it("deletes its keys, then lets it go", () => {
    const ending = object({ metadata: doomed });
    assert.deepEqual(planNamespace(seen({ object: ending, held: [mine] })).action, {
      kind: "delete",
      name: "jobs.team",
      uid: "n-1",
    });
    assert.deepEqual(planNamespace(seen({ object: ending, held: [] })).action, { kind: "release" });
  });

  it("leaves the key space of another object alone", () => {
    const decision = planNamespace(
      seen({ object: object({ metadata: doomed }), held: [{ ...mine, uid: "n-2" }] }),
    );
    assert.deepEqual(decision.action, { kind: "release" });
  });

  it("touches nothing with deletionPolicy Retain", () => {
    const ending = object({ metadata: doomed, spec: { deletionPolicy: "Retain" } });
    assert.deepEqual(planNamespace(seen({ object: ending, held: [mine] })).action, { kind: "release" });
  });

  it("waits for a silent cell, and says how to let the object go all the same", () => {
    const decision = planNamespace(seen({ object: object({ metadata: doomed }), held: undefined }));
    assert.equal(decision.action, undefined);
    assert.match(decision.conditions[0]?.message ?? "", /deletionPolicy to Retain/);
  });

  it("never waits for a cell that is gone or goes", () => {
    const ending = object({ metadata: doomed });
    const going = {
      ...cell,
      metadata: { ...cell.metadata, ...doomed },
    };
    for (const observation of [
      seen({ object: ending, cell: undefined, held: undefined }),
      seen({ object: ending, cell: going, held: undefined }),
      seen({ object: ending, cellGoes: true, held: undefined }),
    ]) {
      assert.deepEqual(planNamespace(observation).action, { kind: "release" });
    }
  });
});

describe("who may use a cell", () => {
  const withPolicy = (allowedNamespaces: CoordinationCell["spec"]["allowedNamespaces"]): CoordinationCell =>
    ({ ...cell, spec: { ...cell.spec, allowedNamespaces } }) as CoordinationCell;

  it("is its own Kubernetes namespace, and others only when the cell says so", () => {
    assert.equal(isAllowed(cell, "infra", {}), true);
    assert.equal(isAllowed(cell, "team", {}), false);
    assert.equal(isAllowed(withPolicy({ from: "Same" }), "team", {}), false);
    assert.equal(isAllowed(withPolicy({ from: "All" }), "team", {}), true);
  });

  it("follows labels, and an empty selector selects nobody", () => {
    const byLabel = withPolicy({ from: "Selector", selector: { matchLabels: { tier: "gold" } } });
    assert.equal(isAllowed(byLabel, "team", { tier: "gold", other: "x" }), true);
    assert.equal(isAllowed(byLabel, "team", { tier: "tin" }), false);
    assert.equal(
      isAllowed(withPolicy({ from: "Selector", selector: { matchLabels: {} } }), "team", {}),
      false,
    );
    assert.equal(isAllowed(withPolicy({ from: "Selector" }), "team", {}), false);
  });
});
