import type { NodeAffinity, NodeSelectorRequirement } from "../api/core.ts";
import type { TopologySpec } from "../api/types.ts";

export interface PlacementInput {
  readonly topology: TopologySpec;
  /** Chosen once for the member; undefined: the cluster has no zones. */
  readonly zone: string | undefined;
  /** Nodes of the cell's other members, without that of the member which is to be replaced. */
  readonly otherNodes: readonly string[];
}

/**
 * Where one member's Pod may run: in its zone, and not beside another member. Computed for each Pod: pod anti-affinity
 * is symmetric, so it would forbid a newcomer the node of the very member that it replaces.
 *
 * @returns undefined when every node will do
 */
export function nodeAffinity({ topology, zone, otherNodes }: PlacementInput): NodeAffinity | undefined {
  const inZone: readonly NodeSelectorRequirement[] =
    zone === undefined ? [] : [{ key: topology.zoneKey, operator: "In", values: [zone] }];
  // By the node's name: the label with the host's name may differ from it. A field takes one value each.
  const apart: readonly NodeSelectorRequirement[] = [...new Set(otherNodes)]
    .sort()
    .map((node) => ({ key: "metadata.name", operator: "NotIn", values: [node] }));
  const isRequired = topology.hostSpread === "Required";
  const term = {
    ...(inZone.length > 0 ? { matchExpressions: inZone } : {}),
    ...(isRequired && apart.length > 0 ? { matchFields: apart } : {}),
  };
  const affinity: NodeAffinity = {
    ...(Object.keys(term).length > 0
      ? { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [term] } }
      : {}),
    ...(!isRequired && apart.length > 0
      ? {
          preferredDuringSchedulingIgnoredDuringExecution: [
            { weight: 100, preference: { matchFields: apart } },
          ],
        }
      : {}),
  };
  return Object.keys(affinity).length > 0 ? affinity : undefined;
}
