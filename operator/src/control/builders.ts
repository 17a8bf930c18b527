import { NETWORK_POLICY, POD_DISRUPTION_BUDGET, SERVICE, SERVICE_ACCOUNT } from "../api/kinds.ts";
import { identityOf } from "../api/labels.ts";
import { same } from "../api/same.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeObject, ObjectRef, ResourceKind } from "../kube/types.ts";
import { memberClaim } from "../resources/claim.ts";
import { cellMember } from "../resources/member.ts";
import { memberPod } from "../resources/pod.ts";
import {
  clientService,
  disruptionBudget,
  networkPolicy,
  peersService,
  serviceAccount,
} from "../resources/shared.ts";
import type { OperatorPods } from "../resources/shared.ts";
import type { Builders, Built } from "./act.ts";
import { isOwned } from "./belonging.ts";

export interface BuilderSettings {
  /** Image for cells whose spec names none. */
  readonly defaultImage: string;
  /** Undefined: NetworkPolicies are not made. */
  readonly networkPoliciesFor: OperatorPods | undefined;
}

export function createBuilders(settings: BuilderSettings): Builders {
  return {
    shared: (cell, wanted) => sharedObjects(settings, cell, wanted),
    member: (cell, { name, zone, bootstrap, replaces }) =>
      cellMember(cell, { name, zone, bootstrap, replaces }),
    claim: (cell, member) => memberClaim(cell, member, cell.spec.storage.size),
    pod: (cell, member, { mode, role, avoid }) =>
      memberPod({ cell, member, mode, role, defaultImage: settings.defaultImage, otherNodes: avoid }),
  };
}

function sharedObjects(
  settings: BuilderSettings,
  cell: CoordinationCell,
  wanted: { readonly disruptionMinAvailable: number; readonly admitted: boolean },
): readonly Built[] {
  const built: Built[] = [
    pair(SERVICE_ACCOUNT, serviceAccount(cell)),
    pair(SERVICE, peersService(cell)),
    pair(SERVICE, clientService(cell, wanted.admitted)),
    pair(POD_DISRUPTION_BUDGET, disruptionBudget(cell, wanted.disruptionMinAvailable)),
  ];
  if (settings.networkPoliciesFor !== undefined) {
    built.push(pair(NETWORK_POLICY, networkPolicy(cell, settings.networkPoliciesFor)));
  }
  return built;
}

/** Erases the kind's type parameter, which is the object's. */
function pair<T extends KubeObject>(kind: ResourceKind<T>, object: T): Built {
  return { kind, object };
}

/** Finds a shared object as it stands; undefined: there is none. */
export type FindShared = (kind: ResourceKind, ref: ObjectRef) => KubeObject | undefined;

/**
 * Shared objects that are missing, that the cell owns, or in which something that the operator decides reads otherwise.
 * What others added (a cloud's annotations, a default that the apiserver filled in) is theirs. The PodDisruptionBudget's
 * number is the planner's own concern.
 */
export function outdatedShared(
  settings: BuilderSettings,
  cell: CoordinationCell,
  find: FindShared,
): readonly string[] {
  const wanted = sharedObjects(settings, cell, {
    disruptionMinAvailable: 0,
    admitted: cell.status?.admitted === true,
  });
  const { uid } = identityOf(cell);
  return wanted.flatMap(({ kind, object }) => {
    const { name, namespace } = object.metadata;
    const found = find(kind, namespace === undefined ? { name } : { namespace, name });
    const without = kind.kind === POD_DISRUPTION_BUDGET.kind ? withoutMinAvailable(object) : object;
    const isAsWanted = found !== undefined && contains(found, without) && !isOwned(found, uid);
    return isAsWanted ? [] : [`${kind.kind}/${name}`];
  });
}

function withoutMinAvailable(object: KubeObject): unknown {
  const { spec, ...rest } = object as KubeObject & { readonly spec: Readonly<Record<string, unknown>> };
  const others = Object.entries(spec).filter(([field]) => field !== "minAvailable");
  return { ...rest, spec: Object.fromEntries(others) };
}

/** One label more selects other pods. */
const EXACT: ReadonlySet<string> = new Set(["selector", "matchLabels"]);

/** Whether `found` holds everything that `wanted` says; a list must hold the same entries in the same order. */
export function contains(found: unknown, wanted: unknown): boolean {
  if (found === wanted) return true;
  if (Array.isArray(wanted)) {
    return (
      Array.isArray(found) &&
      found.length === wanted.length &&
      wanted.every((each, index) => contains(found[index], each))
    );
  }
  if (typeof wanted !== "object" || wanted === null || typeof found !== "object" || found === null) {
    return false;
  }
  const there = found as Readonly<Record<string, unknown>>;
  return Object.entries(wanted).every(
    ([key, value]) =>
      value === undefined || (EXACT.has(key) ? same(there[key], value) : contains(there[key], value)),
  );
}
