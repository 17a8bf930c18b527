// Cells are deleted in each of their phases, and nothing ever hangs.
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { Cell, installOperator } from "../lockstep.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { namesIn, namesOf, secondsSince, untilTold } from "./steps.ts";

const GONE_SECONDS_MAX = 120;
const UNTOUCHED_MS = 20_000;
const selectorOf = (cell: string): string => `lockstep.dev/cell=${cell}`;

async function remove(context: ScenarioContext, name: string): Promise<void> {
  const started = performance.now();
  await context.kubectl(["delete", "coordinationcell", name, `--timeout=${String(GONE_SECONDS_MAX)}s`], {
    timeoutMs: (GONE_SECONDS_MAX + 10) * 1000,
  });
  context.say(`${name} is gone after ${secondsSince(started)}`);
  const selector = selectorOf(name);
  assert.deepEqual(await namesIn(context, "cellmembers", { selector }), []);
  await context.until(
    `no pod of ${name} is left`,
    async () => (await namesIn(context, "pods", { selector })).length === 0,
  );
}

/** Its volumes stay, and a cell of the same name does not start over them. */
async function whileCreating(context: ScenarioContext): Promise<void> {
  const cell = new Cell(context, "creating");
  await cell.apply({});
  await cell.until("its first voter is known", ({ status }) => status?.cellId !== undefined);
  await remove(context, cell.name);
  const claims = await namesIn(context, "pvc", { selector: selectorOf(cell.name) });
  assert.ok(claims.length > 0, "reclaimPolicy Retain keeps the volumes");
  await cell.apply({ voters: 1 });
  const { message } = await untilTold(context, cell, /^RetainedData/);
  for (const claim of claims) assert.ok(message.includes(claim), `${claim} is named`);
  assert.deepEqual(await namesIn(context, "cellmembers", { selector: selectorOf(cell.name) }), []);
  await context.kubectl(["delete", "pvc", ...claims, "--timeout=60s"]);
  await cell.untilReady();
  await remove(context, cell.name);
}

async function whileReplacing(context: ScenarioContext): Promise<void> {
  const { cell } = await Cell.create(context, {
    name: "replacing",
    spec: { storage: { size: "600Mi", reclaimPolicy: "Delete" } },
  });
  const [first = ""] = namesOf(await cell.get());
  await context.apply({
    apiVersion: "lockstep.dev/v1alpha1",
    kind: "CellOperation",
    metadata: { name: "replace-first" },
    spec: { cell: cell.name, action: "Replace", member: first },
  });
  await cell.until(
    "the newcomer is there",
    ({ status }) => status?.operation?.kind === "Replace" && (status.members?.length ?? 0) === 4,
  );
  await remove(context, cell.name);
  await context.until(
    "reclaimPolicy Delete leaves no volume",
    async () => (await namesIn(context, "pvc", { selector: selectorOf(cell.name) })).length === 0,
  );
}

const tenantOf = (cell: string): object => ({
  apiVersion: "lockstep.dev/v1alpha1",
  kind: "Namespace",
  metadata: { name: `tenant-of-${cell}` },
  spec: { cellRef: { name: cell }, deletionPolicy: "Delete" },
});

async function withTenants(context: ScenarioContext): Promise<void> {
  const { cell } = await Cell.create(context, { name: "let-out", voters: 1 });
  await context.apply(tenantOf(cell.name));
  await context.kubectl([
    "wait",
    "cellnamespace/tenant-of-let-out",
    "--for=condition=Ready",
    "--timeout=60s",
  ]);
  await context.kubectl(["delete", "coordinationcell", cell.name, "--wait=false"]);
  const { message } = await untilTold(context, cell, /^TenantsExist/);
  assert.match(message, new RegExp(`${context.namespace}/tenant-of-let-out`));
  const pods = await cell.pods();
  assert.equal(pods.length, 1, "it serves its tenant until then");
  await context.kubectl(["delete", "cellnamespace", "tenant-of-let-out", "--timeout=60s"]);
  await remove(context, cell.name).catch((error: unknown) => {
    // It may have been faster than we are.
    if (!String(error).includes("NotFound")) throw error;
  });
}

const NEEDED =
  "cellmembers,pods,persistentvolumeclaims,secrets,services,serviceaccounts,poddisruptionbudgets,networkpolicies";

/** What carries the cell's label, with uids: the same text means that nothing was taken, and nothing is going. */
async function belongings(context: ScenarioContext, cell: string): Promise<readonly string[]> {
  interface Labelled {
    readonly kind: string;
    readonly metadata: { readonly name: string; readonly uid: string; readonly deletionTimestamp?: string };
  }
  const { items } = await context.kubectlJson<{ readonly items: readonly Labelled[] }>([
    ...["get", NEEDED, `--selector=${selectorOf(cell)}`],
  ]);
  return items
    .map(({ kind, metadata: { name, uid, deletionTimestamp } }) => {
      const going = deletionTimestamp === undefined ? "" : ", being deleted";
      return `${kind} ${name} ${uid}${going}`;
    })
    .sort();
}

/** As Argo CD deletes: the garbage collector takes at once all that it finds by owner references. */
async function inTheForeground(context: ScenarioContext): Promise<void> {
  const { cell } = await Cell.create(context, {
    name: "pruned",
    voters: 1,
    spec: { storage: { size: "600Mi", reclaimPolicy: "Delete" } },
  });
  const tenant = `tenant-of-${cell.name}`;
  await context.apply(tenantOf(cell.name));
  await context.kubectl(["wait", `cellnamespace/${tenant}`, "--for=condition=Ready", "--timeout=60s"]);
  const before = await belongings(context, cell.name);
  for (const kind of ["CellMember", "Pod", "PersistentVolumeClaim", "Secret", "Service"]) {
    assert.ok(
      before.some((line) => line.startsWith(`${kind} `)),
      `the cell has a ${kind}`,
    );
  }
  await context.kubectl(["delete", "coordinationcell", cell.name, "--cascade=foreground", "--wait=false"]);
  await untilTold(context, cell, /^TenantsExist/);
  // The collector takes what it may within a second or two; this is many times that.
  await delay(UNTOUCHED_MS, undefined, { signal: context.signal });
  assert.deepEqual(await belongings(context, cell.name), before, "nothing was touched");
  await context.kubectl(["delete", "cellnamespace", tenant, "--timeout=60s"]);
  await remove(context, cell.name).catch((error: unknown) => {
    // It may have been faster than we are.
    if (!String(error).includes("NotFound")) throw error;
  });
  await context.until(
    "all that the cell had is gone",
    async () => (await belongings(context, cell.name)).length === 0,
  );
  context.say(`${cell.name}: deleted in the foreground, untouched until its tenant was gone`);
}

/** All of it at once, with a tenant that wants its keys deleted and a cell that is being made. */
async function withItsNamespace(context: ScenarioContext): Promise<void> {
  const { cluster, signal } = context;
  const name = `${context.namespace}-whole`;
  await cluster.kubectl(["create", "namespace", name], { signal });
  context.finally(() =>
    cluster
      .kubectl(["delete", "namespace", name, "--ignore-not-found", "--timeout=60s"])
      .then(() => undefined),
  );
  const inside: ScenarioContext = {
    ...context,
    namespace: name,
    kubectl: (args, options) => cluster.kubectl([`--namespace=${name}`, ...args], { signal, ...options }),
    kubectlJson: (args, options) =>
      cluster.kubectlJson([`--namespace=${name}`, ...args], { signal, ...options }),
    apply: async (...objects) => {
      const input = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
      await cluster.kubectl([`--namespace=${name}`, "apply", "-f", "-"], { signal, input });
    },
  };
  const { cell } = await Cell.create(inside, { name: "served", voters: 1 });
  await inside.apply(tenantOf(cell.name));
  await inside.kubectl(["wait", "cellnamespace/tenant-of-served", "--for=condition=Ready", "--timeout=60s"]);
  const young = new Cell(inside, "young");
  await young.apply({});
  await young.until("it is being made", ({ status }) => status?.operation?.kind === "Create");
  const started = performance.now();
  await cluster.kubectl(["delete", "namespace", name, `--timeout=${String(GONE_SECONDS_MAX)}s`], {
    timeoutMs: (GONE_SECONDS_MAX + 10) * 1000,
    signal,
  });
  context.say(`a Kubernetes namespace with two cells and a tenant is gone after ${secondsSince(started)}`);
}

/** What stands outside of a cell's namespace goes with it. */
async function nothingIsLeftElsewhere(context: ScenarioContext): Promise<void> {
  await context.until("no key of a deleted cell is left in the operator's namespace", async () => {
    const cells = await context.cluster.kubectlJson<{
      readonly items: readonly { readonly metadata: { readonly uid: string } }[];
    }>(["get", "coordinationcells", "--all-namespaces"]);
    const alive = cells.items.map(({ metadata }) => metadata.uid);
    const secrets = await namesIn(context, "secrets", { namespace: "lockstep-system" });
    return secrets
      .filter((name) => /^cell-.*-(ca|operator)$/.test(name))
      .every((name) => alive.some((uid) => name.includes(uid)));
  });
}

export const deletion: Scenario = {
  name: "deletion",
  about:
    "cells deleted while created, while replacing, with tenants, in the foreground, and with their whole Kubernetes namespace",
  ci: false,
  minutes: 15,
  run: async (context) => {
    await installOperator(context);
    await whileCreating(context);
    await whileReplacing(context);
    await withTenants(context);
    await inTheForeground(context);
    await withItsNamespace(context);
    await nothingIsLeftElsewhere(context);
  },
};
