// What Helm makes of the chart. Needs helm: LOCKSTEP_HELM names it; `npm run e2e` brings one and runs this.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parseAllDocuments } from "yaml";
import { helmTemplate } from "./helm.ts";
import { plainManifests } from "./manifests.ts";

const root = join(import.meta.dirname, "../..");
const chart = join(root, "charts/lockstep");
const helm = process.env["LOCKSTEP_HELM"] ?? "";
const skip = helm === "" ? "LOCKSTEP_HELM names no helm" : false;

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  readonly resourceNames?: readonly string[];
}

interface PodSpec {
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly containers: readonly {
    readonly image: string;
    readonly args: readonly string[];
    readonly securityContext: unknown;
  }[];
}

interface Rendered {
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly rules?: readonly Rule[];
  readonly spec?: unknown;
}

const text = (...set: readonly string[]): string =>
  helmTemplate(helm, chart, { release: "lockstep", namespace: "lockstep-system", set });

function render(...set: readonly string[]): readonly Rendered[] {
  return parseAllDocuments(text(...set)).flatMap((document) => {
    assert.deepEqual(document.errors, []);
    const object = document.toJS() as Rendered | null;
    return object === null ? [] : [object];
  });
}

const only = (objects: readonly Rendered[], kind: string): readonly Rendered[] =>
  objects.filter((object) => object.kind === kind);

/** `group/resource` to its verbs, of rules without names. */
function matrix(rules: readonly Rule[]): Record<string, string> {
  const all: Record<string, string> = {};
  for (const rule of rules) {
    for (const group of rule.apiGroups) {
      for (const resource of rule.resources) {
        const name = rule.resourceNames === undefined ? "" : `=${rule.resourceNames.join()}`;
        all[`${group}/${resource}${name}`] = rule.verbs.join(" ");
      }
    }
  }
  return all;
}

const OWNED = "get list watch create patch delete";
/** Every verb that the operator uses in the namespaces that it watches. */
const WATCHED = {
  "lockstep.dev/coordinationcells": "get list watch patch",
  "lockstep.dev/cellnamespaces": "get list watch patch",
  "lockstep.dev/celloperations": "get list watch patch",
  "lockstep.dev/cellmembers": OWNED,
  "lockstep.dev/coordinationcells/status": "get patch",
  "lockstep.dev/cellmembers/status": "get patch",
  "lockstep.dev/cellnamespaces/status": "get patch",
  "lockstep.dev/celloperations/status": "get patch",
  "/pods": OWNED,
  "/persistentvolumeclaims": OWNED,
  "/services": OWNED,
  "/serviceaccounts": OWNED,
  "/secrets": "get create patch delete",
  "policy/poddisruptionbudgets": OWNED,
  "networking.k8s.io/networkpolicies": OWNED,
  "events.k8s.io/events": "create patch",
};
const READ = "get list watch";

describe("the chart", { skip }, () => {
  it("renders the same twice", () => {
    assert.equal(text("metrics.prometheusRule.enabled=true"), text("metrics.prometheusRule.enabled=true"));
  });

  it("refuses values that it does not know, wherever they stand", () => {
    for (const typo of [
      "replica=3",
      "metrics.serviceMonitor.enable=true",
      "image.tags=1",
      "crds.instal=false",
    ]) {
      assert.throws(() => text(typo), /additional properties|not allowed/i, typo);
    }
    for (const wrong of ["replicas=0", "logLevel=loud", "leaseDuration=15", "imagePullPolicy=Sometimes"]) {
      assert.throws(() => text(wrong), /values don't meet the specifications|schema/i, wrong);
    }
  });

  it("deploy/lockstep.yaml is what it renders", () => {
    assert.equal(readFileSync(join(root, "deploy/lockstep.yaml"), "utf8"), plainManifests(helm, chart));
  });

  it("passes helm lint", () => {
    const result = spawnSync(helm, ["lint", "--strict", chart], { encoding: "utf8" });
    assert.equal(result.status, 0, result.stdout);
  });
});

describe("rights", { skip }, () => {
  it("cluster-wide: exactly what is used", () => {
    const objects = render();
    const roles = new Map(only(objects, "ClusterRole").map((role) => [role.metadata.name, role.rules ?? []]));
    assert.deepEqual(matrix(roles.get("lockstep-system-lockstep-cells") ?? []), WATCHED);
    assert.deepEqual(matrix(roles.get("lockstep-system-lockstep-cluster-reader") ?? []), {
      "/nodes": READ,
      "/namespaces": READ,
      "/persistentvolumes": "get",
      "storage.k8s.io/storageclasses": READ,
    });
    const [own] = only(objects, "Role").filter(({ metadata }) => metadata.name === "lockstep");
    assert.equal(own?.metadata.namespace, "lockstep-system");
    assert.deepEqual(matrix(own.rules ?? []), {
      "coordination.k8s.io/leases": "create",
      "coordination.k8s.io/leases=lockstep-operator": "get patch",
      "/secrets": "get create patch delete",
      "events.k8s.io/events": "create patch",
    });
  });

  it("namespaced: a Role in each, and no ClusterRole of the operator writes anything", () => {
    const objects = render("watchNamespaces={a,b}");
    const roles = only(objects, "Role").filter(({ metadata }) => metadata.name === "lockstep-cells");
    assert.deepEqual(roles.map(({ metadata }) => metadata.namespace).sort(), ["a", "b"]);
    for (const role of roles) assert.deepEqual(matrix(role.rules ?? []), WATCHED);
    const bound = only(objects, "ClusterRoleBinding").map(({ metadata }) => metadata.name);
    assert.deepEqual(bound, ["lockstep-system-lockstep-cluster-reader"]);
  });

  it("cert-manager's Certificates only when asked for", () => {
    const rules = only(render("certManager.enabled=true"), "ClusterRole").flatMap((role) => role.rules ?? []);
    assert.equal(matrix(rules)["cert-manager.io/certificates"], OWNED);
  });

  it("no wildcard anywhere, and nobody lists Secrets", () => {
    for (const object of render()) {
      for (const rule of object.rules ?? []) {
        assert.ok(![...rule.apiGroups, ...rule.resources, ...rule.verbs].includes("*"), object.metadata.name);
        if (rule.resources.includes("secrets"))
          assert.ok(!rule.verbs.some((verb) => /list|watch/.test(verb)));
      }
    }
  });

  it("helm test may read one Secret and delete one cell, by their names", () => {
    const [role] = only(render(), "Role").filter(({ metadata }) => metadata.name === "lockstep-test");
    assert.deepEqual(matrix(role?.rules ?? []), {
      "lockstep.dev/coordinationcells": "create",
      "lockstep.dev/coordinationcells=lockstep-test": "get delete",
      "/secrets=lockstep-test-client": "get",
    });
  });
});

describe("objects", { skip }, () => {
  const podSpec = (object: Rendered): PodSpec =>
    object.kind === "Pod"
      ? (object.spec as PodSpec)
      : (object.spec as { readonly template: { readonly spec: PodSpec } }).template.spec;
  const deployment = (...set: readonly string[]): PodSpec["containers"][number] => {
    const [object] = only(render(...set), "Deployment");
    const container = object === undefined ? undefined : podSpec(object).containers[0];
    assert.ok(container !== undefined);
    return container;
  };

  it("every Pod runs in the restricted profile with a read-only root", () => {
    const pods = render().filter(({ kind }) => kind === "Deployment" || kind === "Pod");
    assert.equal(pods.length, 2);
    for (const spec of pods.map(podSpec)) {
      assert.equal(spec.securityContext["runAsNonRoot"], true);
      assert.deepEqual(spec.securityContext["seccompProfile"], { type: "RuntimeDefault" });
      for (const container of spec.containers) {
        assert.deepEqual(container.securityContext, {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
      }
    }
  });

  it("values become the operator's flags", () => {
    const { args } = deployment(
      "watchNamespaces={a,b}",
      "leaseDuration=3s",
      "extraArgs={--x}",
      "networkPolicy.cells=false",
    );
    assert.deepEqual(args, [
      "--default-cell-image=lockstep-cell:0.1.0",
      "--watch-namespaces=a,b",
      "--lease-name=lockstep-operator",
      "--lease-duration=3s",
      "--renew-deadline=10s",
      "--retry-period=2s",
      "--max-concurrent-rolls=1",
      "--workers=10",
      "--ops=0.0.0.0:8081",
      "--log-level=info",
      "--x",
    ]);
    assert.ok(deployment().args.includes("--network-policies"));
    assert.ok(!deployment().args.some((arg) => arg.startsWith("--watch-namespaces")));
  });

  it("the operator knows every flag that it is given", () => {
    const program = join(root, "operator/src/main.ts");
    const { stdout } = spawnSync(process.execPath, [program, "--help"], { encoding: "utf8" });
    const { args } = deployment("watchNamespaces={a}");
    for (const arg of args) {
      const flag = /^--[a-z-]+/.exec(arg)?.[0] ?? arg;
      assert.match(stdout, new RegExp(`^ +${flag}\\b`, "m"), flag);
    }
  });

  it("images come from one registry, by tag or digest", () => {
    const digest = `sha256:${"a".repeat(64)}`;
    const registry = "image.registry=r.example:5000/x";
    assert.equal(deployment(registry).image, "r.example:5000/x/lockstep-operator:0.1.0");
    assert.ok(
      deployment(registry).args.includes("--default-cell-image=r.example:5000/x/lockstep-cell:0.1.0"),
    );
    assert.equal(deployment(`image.digest=${digest}`, "image.tag=z").image, `lockstep-operator@${digest}`);
  });

  it("definitions are kept, and left out when asked", () => {
    const definitions = only(render(), "CustomResourceDefinition");
    assert.equal(definitions.length, 4);
    for (const { metadata } of definitions) {
      assert.equal(metadata.annotations?.["helm.sh/resource-policy"], "keep");
    }
    assert.equal(only(render("crds.install=false"), "CustomResourceDefinition").length, 0);
  });

  it("one operator needs no disruption budget", () => {
    assert.equal(only(render(), "PodDisruptionBudget").length, 1);
    assert.equal(only(render("replicas=1"), "PodDisruptionBudget").length, 0);
  });

  it("monitoring objects only when asked; every alert says what is the matter and what to look at", () => {
    const kinds = ["ServiceMonitor", "PodMonitor", "PrometheusRule"];
    assert.ok(!render().some(({ kind }) => kinds.includes(kind)));
    const objects = render(
      ...["serviceMonitor", "podMonitor", "prometheusRule"].map((name) => `metrics.${name}.enabled=true`),
    );
    for (const kind of kinds) assert.equal(only(objects, kind).length, 1, kind);
    // The operator's figures name the cells' namespaces; Prometheus must not put its own over them.
    const [monitor] = only(objects, "ServiceMonitor");
    assert.equal(
      (monitor?.spec as { endpoints: { honorLabels: boolean }[] }).endpoints[0]?.honorLabels,
      true,
    );
    const spec = only(objects, "PrometheusRule")[0]?.spec as {
      groups: { rules: { alert: string; expr: string; annotations: Record<string, string> }[] }[];
    };
    const rules = spec.groups.flatMap((group) => group.rules);
    assert.ok(rules.length >= 6);
    for (const { alert, expr, annotations } of rules) {
      assert.ok(expr.length > 0 && !expr.includes("<no value>"), alert);
      assert.ok(annotations["summary"] !== undefined && annotations["description"] !== undefined, alert);
    }
  });

  it("the operator's network: apiserver, DNS, members' admin ports, and its own ops port", () => {
    const [policy] = only(render("networkPolicy.apiServerPorts={7443}"), "NetworkPolicy");
    const spec = policy?.spec as { egress: { ports: { port: number }[]; to?: unknown }[] };
    assert.deepEqual(
      spec.egress.map(({ ports }) => ports.map(({ port }) => port)),
      [[53, 53], [7443], [7403]],
    );
    assert.equal(only(render("networkPolicy.enabled=false"), "NetworkPolicy").length, 0);
  });
});
