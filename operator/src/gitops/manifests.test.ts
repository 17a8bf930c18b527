// What stands in the way of nobody: the manifests that users apply, which are what the chart renders.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { createBuilders } from "../control/builders.ts";
import type { KubeObject } from "../kube/types.ts";
import { coordinationCell, memberObject } from "../resources/testing/objects.ts";

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly spec?: { readonly conversion?: { readonly strategy?: string } };
}

const FILE = join(import.meta.dirname, "../../../deploy/lockstep.yaml");
const MANIFESTS = parseAllDocuments(readFileSync(FILE, "utf8")).flatMap(
  (document) => (document.toJS() as Manifest | null) ?? [],
);

describe("deploy/lockstep.yaml", () => {
  it("has no webhook that could be down when an object is made, changed, read or deleted", () => {
    assert.ok(MANIFESTS.length > 10);
    const hooks = MANIFESTS.filter(({ kind }) => /Webhook|APIService|AdmissionPolicy/.test(kind));
    assert.deepEqual(hooks, []);
    const definitions = MANIFESTS.filter(({ kind }) => kind === "CustomResourceDefinition");
    assert.equal(definitions.length, 4);
    for (const { metadata, spec } of definitions) {
      assert.equal(spec?.conversion?.strategy ?? "None", "None", metadata.name);
    }
  });

  it("has the operator in a namespace of its own, which no cell's deletion takes along", () => {
    const [own] = MANIFESTS.filter(({ kind }) => kind === "Namespace");
    assert.equal(own?.metadata.name, "lockstep-system");
    const deployments = MANIFESTS.filter(({ kind }) => kind === "Deployment");
    assert.deepEqual(
      deployments.map(({ metadata }) => metadata.namespace),
      ["lockstep-system"],
    );
  });
});

describe("what the operator makes for a cell", () => {
  it("carries no label by which Argo CD tells an application's objects: what nobody owns would be pruned", () => {
    const builders = createBuilders({
      defaultImage: "lockstep-cell:test",
      networkPoliciesFor: { namespace: "lockstep-system", labels: {} },
    });
    const cell = coordinationCell();
    const wanted = { name: "orders-a", zone: undefined, bootstrap: false, replaces: undefined } as const;
    const made: readonly KubeObject[] = [
      ...builders.shared(cell, { disruptionMinAvailable: 2, admitted: true }).map(({ object }) => object),
      builders.member(cell, { kind: "create-member", ...wanted }),
      builders.claim(cell, memberObject()),
      builders.pod(cell, memberObject(), { mode: { kind: "existing" }, role: "voter", avoid: [] }),
    ];
    assert.ok(made.length >= 8);
    for (const { kind, metadata } of made) {
      const tracking = Object.keys({ ...metadata.labels, ...metadata.annotations }).filter((key) =>
        /^app\.kubernetes\.io\/instance$|argocd/.test(key),
      );
      assert.deepEqual(tracking, [], kind);
    }
  });
});
