// Our Namespaces: key spaces of tenants in a cell, from its own Kubernetes namespace and from others that it lets in.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import type { Condition } from "../lockstep.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { secondsSince } from "./steps.ts";
import { Shell } from "./shell.ts";

const SETTLED_MS = 60_000;

interface Tenant {
  readonly name: string;
  /** Kubernetes namespace. */
  readonly namespace: string;
  readonly deletionPolicy?: "Retain" | "Delete";
}

interface TenantObject {
  readonly metadata: { readonly uid: string };
  readonly status?: { readonly wireName?: string; readonly conditions?: readonly Condition[] };
}

async function applyTenant({ cluster, namespace, signal }: ScenarioContext, tenant: Tenant): Promise<void> {
  const object = {
    apiVersion: "lockstep.dev/v1alpha1",
    kind: "Namespace",
    metadata: { name: tenant.name, namespace: tenant.namespace },
    spec: {
      cellRef: { name: "main", namespace },
      ...(tenant.deletionPolicy === undefined ? {} : { deletionPolicy: tenant.deletionPolicy }),
    },
  };
  await cluster.kubectl(["apply", "-f", "-"], { signal, input: JSON.stringify(object) });
}

/** Waits until its condition Ready has this reason. @returns the object then */
async function untilReason(context: ScenarioContext, tenant: Tenant, reason: string): Promise<TenantObject> {
  const started = performance.now();
  const object = await context.until(
    `${tenant.namespace}/${tenant.name} says ${reason}`,
    async () => {
      const one = await context.cluster.kubectlJson<TenantObject>([
        ...["get", "cellnamespace", tenant.name, "--namespace", tenant.namespace],
      ]);
      return readyOf(one)?.reason === reason ? one : undefined;
    },
    { timeoutMs: SETTLED_MS, everyMs: 500 },
  );
  context.say(
    `${tenant.namespace}/${tenant.name}: ${reason} after ${secondsSince(started)}: ${readyOf(object)?.message ?? ""}`,
  );
  return object;
}

function readyOf(object: TenantObject): Condition | undefined {
  return object.status?.conditions?.find(({ type }) => type === "Ready");
}

async function removeTenant({ cluster, signal }: ScenarioContext, tenant: Tenant): Promise<void> {
  await cluster.kubectl(
    ["delete", "cellnamespace", tenant.name, "--namespace", tenant.namespace, "--timeout=60s"],
    { signal },
  );
}

/** The same key in two Namespaces and in the default one are three keys. */
async function areIsolated(context: ScenarioContext, shell: Shell): Promise<void> {
  const tenants = ["red", "blue"].map((name): Tenant => ({ name, namespace: context.namespace }));
  for (const tenant of tenants) await applyTenant(context, tenant);
  for (const tenant of tenants) {
    const { status } = await untilReason(context, tenant, "Served");
    assert.equal(status?.wireName, `${tenant.name}.${context.namespace}`);
  }
  await shell.run("put", "whose", "default");
  for (const { name, namespace } of tenants)
    await shell.run("put", "whose", name, `--namespace=${name}.${namespace}`);
  for (const { name, namespace } of tenants)
    assert.equal(await shell.run("get", "whose", "--raw", `--namespace=${name}.${namespace}`), name);
  assert.equal(await shell.run("get", "whose", "--raw"), "default");
  const { code, output } = await shell.attempt("get", "whose", "--namespace=nobody.nowhere");
  assert.notEqual(code, 0);
  context.say(`a Namespace that does not exist: ${output}`);
}

async function othersNeedLeave(context: ScenarioContext, cell: Cell): Promise<void> {
  const { cluster, signal } = context;
  const namespace = `${context.namespace}-other`;
  await cluster.kubectl(["create", "namespace", namespace], { signal });
  context.finally(() =>
    cluster
      .kubectl(["delete", "namespace", namespace, "--ignore-not-found", "--timeout=60s"])
      .then(() => undefined),
  );
  const guest: Tenant = { name: "guest", namespace };
  await applyTenant(context, guest);
  const refused = await untilReason(context, guest, "NotAllowed");
  assert.match(readyOf(refused)?.message ?? "", /spec\.allowedNamespaces/);
  const selector = { matchLabels: { "example.com/lockstep": "allowed" } };
  await cell.patch({ allowedNamespaces: { from: "Selector", selector } });
  await cluster.kubectl(["label", "namespace", namespace, "example.com/lockstep=allowed"], { signal });
  await untilReason(context, guest, "Served");
  await removeTenant(context, guest);
}

/** Deleted with their keys, and kept without their object until somebody takes them over. */
async function policiesAreKept(context: ScenarioContext, shell: Shell): Promise<void> {
  const { cluster, namespace, signal } = context;
  const gone: Tenant = { name: "red", namespace, deletionPolicy: "Delete" };
  await applyTenant(context, gone);
  await untilReason(context, gone, "Served");
  await removeTenant(context, gone);
  await applyTenant(context, gone);
  await untilReason(context, gone, "Served");
  const read = await shell.attempt("get", "whose", "--raw", `--namespace=red.${namespace}`);
  assert.notEqual(read.output, "red", "it began anew, empty");

  const kept: Tenant = { name: "blue", namespace };
  await removeTenant(context, kept);
  await applyTenant(context, kept);
  const taken = await untilReason(context, kept, "NameTaken");
  const { 1: uid = "" } = /uid ([0-9a-f-]+)/.exec(readyOf(taken)?.message ?? "") ?? [];
  assert.notEqual(uid, "", "the message names what is there");
  await cluster.kubectl(
    ["annotate", "cellnamespace", "blue", `lockstep.dev/adopt-uid=${uid}`, `--namespace=${namespace}`],
    { signal },
  );
  await untilReason(context, kept, "Served");
  assert.equal(await shell.run("get", "whose", "--raw", `--namespace=blue.${namespace}`), "blue");
}

export const namespaces: Scenario = {
  name: "namespaces",
  about:
    "our Namespaces: isolated, let in from elsewhere only by allowedNamespaces, deleted or kept as they say",
  ci: false,
  minutes: 10,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context, { voters: 1 });
    const shell = await Shell.start(context, cell.name);
    await areIsolated(context, shell);
    await othersNeedLeave(context, cell);
    await policiesAreKept(context, shell);
    for (const name of ["red", "blue"]) await removeTenant(context, { name, namespace: context.namespace });
  },
};
