import type { Facts, MemberFacts } from "./facts.ts";
import type { NodeView } from "./types.ts";

export type Place = { readonly zone: string | undefined } | { readonly blocked: string };

export interface PlaceOptions {
  /** The member that the new one takes over from. */
  readonly replaced: MemberFacts | undefined;
  /** Whether the new one may be on its node. */
  readonly mayShareHost: boolean;
}

/**
 * Zone for a new member: the least used that has a usable node, the replaced one's among equals. The host is the
 * scheduler's choice, from the nodes without another member.
 */
export function choosePlace(facts: Facts, options: PlaceOptions): Place {
  const { topology } = facts.spec;
  const others = facts.members.filter(
    (member) =>
      member.name !== options.replaced?.name &&
      (member.kind !== undefined || facts.operation?.incoming?.includes(member.name) === true) &&
      member.object !== undefined,
  );
  const hosts = new Set(others.map(({ host }) => host));
  const isFree = (node: NodeView): boolean =>
    node.ready &&
    node.schedulable &&
    (topology.hostSpread === "Preferred" || !hosts.has(node.name)) &&
    (options.mayShareHost || node.name !== options.replaced?.host);
  const isAllowed = (node: NodeView): boolean =>
    topology.zones === undefined || (node.zone !== undefined && topology.zones.includes(node.zone));
  const usable = facts.o.nodes.filter((node) => isAllowed(node) && isFree(node));
  if (usable.length === 0) return { blocked: describeBlock(facts, hosts.size) };
  const use = (zone: string | undefined): number => others.filter((member) => member.zone === zone).length;
  const zones = [...new Set(usable.map(({ zone }) => zone))].sort(
    (a, b) =>
      use(a) - use(b) ||
      Number(b === options.replaced?.zone) - Number(a === options.replaced?.zone) ||
      (a ?? "").localeCompare(b ?? ""),
  );
  return { zone: zones[0] };
}

function describeBlock(facts: Facts, hosts: number): string {
  const { zones, hostSpread } = facts.spec.topology;
  const where = zones === undefined ? "" : ` in ${zones.join(", ")}`;
  const ready = facts.o.nodes.filter((node) => node.ready && node.schedulable).length;
  const spread =
    hostSpread === "Required"
      ? ` ${String(hosts)} nodes have a member already, and topology.hostSpread is Required.`
      : "";
  return `No usable node${where} for another member: ${String(ready)} of ${String(facts.o.nodes.length)} nodes are ready and schedulable.${spread} Add or uncordon a node.`;
}
