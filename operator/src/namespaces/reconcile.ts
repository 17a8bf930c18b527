import { mergeConditions } from "../api/conditions.ts";
import { CELL_NAMESPACE } from "../api/kinds.ts";
import { NAMESPACE_FINALIZER } from "../api/names.ts";
import { same } from "../api/same.ts";
import { API_VERSION } from "../api/types.ts";
import type { CellNamespace, CoordinationCell } from "../api/types.ts";
import type { CellAdmin, MemberTarget, NamespaceInCell } from "../cell/types.ts";
import { CellAdminError } from "../cell/types.ts";
import { KubeError } from "../kube/types.ts";
import type { KubeClient, KubeObject, ObjectRef } from "../kube/types.ts";
import type { PlannedEvent } from "../plan/types.ts";
import { isAllowed, planNamespace } from "./plan.ts";
import type { NamespaceAction, NamespaceDecision, NamespaceObservation } from "./plan.ts";

export interface NamespacePassParts {
  readonly kube: KubeClient;
  readonly cell: (ref: ObjectRef) => CoordinationCell | undefined;
  /** The Kubernetes namespace; undefined: not seen. */
  readonly kubernetesNamespace: (name: string) => KubeObject | undefined;
  /** Where the cell's leader listens, and how to speak to it; undefined: nobody there knows a leader, `why` says more. */
  readonly reach: (
    cell: CoordinationCell,
  ) => Promise<{ readonly admin: CellAdmin; readonly target: MemberTarget } | { readonly why: string }>;
  readonly wallMs: () => number;
  readonly tell: (object: CellNamespace, event: PlannedEvent) => void;
  /** What the cell said when it refused to create a key space, by uid: kept until it is created. */
  readonly refusals: Map<string, string>;
}

const AGAIN_MS = 200;
const REFUSED_LOOK_MS = 30_000;

/** One pass over one of our Namespaces. @returns when to look again; undefined: only when something changes. */
export async function reconcileNamespace(
  parts: NamespacePassParts,
  ref: ObjectRef,
): Promise<number | undefined> {
  const object = await parts.kube.get(CELL_NAMESPACE, ref);
  if (object === undefined) return undefined;
  const cellRef = {
    name: object.spec.cellRef.name,
    namespace: object.spec.cellRef.namespace ?? ref.namespace ?? "",
  };
  const cell = parts.cell(cellRef);
  const held = cell === undefined ? { why: "" } : await heldBy(parts, cell);
  const observation: NamespaceObservation = {
    object,
    cell,
    allowed: cell !== undefined && mayUse(parts, cell, object),
    cellGoes: [cellRef.namespace, ref.namespace ?? ""].some((name) => goes(parts, name)),
    held: "namespaces" in held ? held.namespaces : undefined,
    silence: "why" in held ? held.why : "",
    refusal: parts.refusals.get(object.metadata.uid ?? ""),
  };
  const decision = planNamespace(observation);
  try {
    await writeStatus(parts, object, decision);
    for (const event of decision.events) parts.tell(object, event);
    if (decision.action === undefined) return decision.lookAgainMs;
    await act(parts, object, cell, decision.action);
    return AGAIN_MS;
  } catch (error) {
    if (error instanceof KubeError && error.reason === "conflict") return AGAIN_MS;
    if (!(error instanceof CellAdminError) || error.outcome === "unknown") throw error;
    parts.refusals.set(object.metadata.uid ?? "", error.message);
    return REFUSED_LOOK_MS;
  }
}

async function heldBy(
  parts: NamespacePassParts,
  cell: CoordinationCell,
): Promise<{ readonly namespaces: readonly NamespaceInCell[] } | { readonly why: string }> {
  // Before all its voters have joined, a cell lets nobody in.
  if (cell.status?.admitted !== true) return { why: "It is not complete yet." };
  const reached = await parts.reach(cell);
  if ("why" in reached) return reached;
  try {
    return { namespaces: await reached.admin.listNamespaces(reached.target) };
  } catch (error) {
    if (!(error instanceof CellAdminError)) throw error;
    return { why: error.message };
  }
}

function mayUse(parts: NamespacePassParts, cell: CoordinationCell, object: CellNamespace): boolean {
  const namespace = object.metadata.namespace ?? "";
  return isAllowed(cell, namespace, parts.kubernetesNamespace(namespace)?.metadata.labels ?? {});
}

function goes(parts: NamespacePassParts, name: string): boolean {
  return parts.kubernetesNamespace(name)?.metadata.deletionTimestamp !== undefined;
}

async function act(
  parts: NamespacePassParts,
  object: CellNamespace,
  cell: CoordinationCell | undefined,
  action: NamespaceAction,
): Promise<void> {
  const { metadata } = object;
  const finalizers = metadata.finalizers ?? [];
  const patchFinalizers = (wanted: readonly string[]): Promise<CellNamespace> =>
    parts.kube.mergePatch(
      CELL_NAMESPACE,
      { namespace: metadata.namespace ?? "", name: metadata.name },
      { metadata: { finalizers: wanted } },
      metadata.resourceVersion === undefined ? {} : { resourceVersion: metadata.resourceVersion },
    );
  switch (action.kind) {
    case "add-finalizer":
      await patchFinalizers([...finalizers, NAMESPACE_FINALIZER]);
      return;
    case "release":
      parts.refusals.delete(metadata.uid ?? "");
      await patchFinalizers(finalizers.filter((name) => name !== NAMESPACE_FINALIZER));
      return;
    case "create":
    case "delete":
      return changeCell(parts, cell, action, metadata.uid ?? "");
  }
}

async function changeCell(
  parts: NamespacePassParts,
  cell: CoordinationCell | undefined,
  action: Extract<NamespaceAction, { kind: "create" | "delete" }>,
  objectUid: string,
): Promise<void> {
  const reached = cell === undefined ? { why: "There is no such cell." } : await parts.reach(cell);
  if ("why" in reached) throw new CellAdminError("unreachable", reached.why, "unknown");
  if (action.kind === "delete") {
    return reached.admin.deleteNamespace(reached.target, action.name, action.uid);
  }
  await reached.admin.createNamespace(reached.target, action.name, action.uid);
  parts.refusals.delete(objectUid);
}

/** Refused when the object moved on since it was read: the decision was about an older one. */
async function writeStatus(
  parts: NamespacePassParts,
  object: CellNamespace,
  decision: NamespaceDecision,
): Promise<void> {
  const { name, namespace, generation, resourceVersion } = object.metadata;
  const conditions = mergeConditions(
    object.status?.conditions,
    decision.conditions.map((condition) => ({
      ...condition,
      ...(generation === undefined ? {} : { observedGeneration: generation }),
    })),
    new Date(parts.wallMs()).toISOString(),
  );
  const status = { ...decision.status, conditions };
  if (same(object.status ?? {}, status)) return;
  const applied = {
    apiVersion: API_VERSION,
    kind: CELL_NAMESPACE.kind,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    },
    status,
  };
  await parts.kube.applyStatus(CELL_NAMESPACE, applied as unknown as CellNamespace);
}
