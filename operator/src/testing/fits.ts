import type { Node, PersistentVolume, Pod } from "../api/core.ts";

/** Whether a scheduler may put a Pod on a node: as far as Pods of members and their volumes ask for something. */
export function fits(node: Node, pod: Pod, volume: PersistentVolume | undefined): boolean {
  if (node.spec?.unschedulable === true || node.status?.conditions?.[0]?.status !== "True") return false;
  const labels = node.metadata.labels ?? {};
  const wanted = Object.entries(pod.spec.nodeSelector ?? {});
  if (!wanted.every(([key, value]) => labels[key] === value)) return false;
  const terms = [
    ...(pod.spec.affinity?.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ??
      []),
    ...(volume?.spec.nodeAffinity?.required?.nodeSelectorTerms ?? []),
  ];
  return terms.every((term) =>
    [...(term.matchExpressions ?? []), ...(term.matchFields ?? [])].every(({ key, operator, values }) => {
      const value = key === "metadata.name" ? node.metadata.name : labels[key];
      const isIn = value !== undefined && values.includes(value);
      return operator === "In" ? isIn : !isIn;
    }),
  );
}
