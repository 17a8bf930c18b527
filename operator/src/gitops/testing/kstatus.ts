import type { KubeObject } from "../../kube/types.ts";

/** What Flux and `kustomize`'s kstatus make of an object. */
export type KStatus = "Current" | "Failed" | "InProgress" | "Terminating";

interface WithStatus extends KubeObject {
  readonly status?: {
    readonly observedGeneration?: number;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

/** The documented rules for a kind that kstatus does not know, in their order. */
export function kstatusOf({ metadata, status }: WithStatus): KStatus {
  if (metadata.deletionTimestamp !== undefined) return "Terminating";
  if (status?.observedGeneration !== undefined && status.observedGeneration !== metadata.generation) {
    return "InProgress";
  }
  const conditions = status?.conditions ?? [];
  for (const condition of conditions) {
    if (condition.status !== "True") continue;
    if (condition.type === "Reconciling") return "InProgress";
    if (condition.type === "Stalled") return "Failed";
  }
  const ready = conditions.find(({ type }) => type === "Ready");
  // An object that says nothing of itself counts as done.
  return ready === undefined || ready.status === "True" ? "Current" : "InProgress";
}
