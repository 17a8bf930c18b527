/** Members' pods and claims: what a member needs to run on its own volume. Never a new volume for an old identity. */
import { LABEL } from "../api/labels.ts";
import { isQuantity, quantityValue } from "../api/quantity.ts";
import { findMember } from "./facts.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import type { Outcome } from "./outcome.ts";
import { BUSY_LOOK_MS } from "./time.ts";
import type { PodMode, PodRole } from "./types.ts";

/** Volumes first: a member that is down because its disk is full comes back only after it. */
export function growClaims(facts: Facts): Outcome | undefined {
  const { size } = facts.spec.storage;
  if (!isQuantity(size)) return undefined;
  const bytes = quantityValue(size);
  const fixed: string[] = [];
  for (const { name, view } of facts.members) {
    const { claim } = view;
    if (claim === undefined || claim.terminating || claim.requestedBytes >= bytes) continue;
    // Kubernetes refuses another size for a claim that has no volume yet.
    if (claim.phase !== "Bound") continue;
    if (claim.growable === false) {
      fixed.push(name);
      continue;
    }
    return {
      action: { kind: "grow-claim", member: name, size },
      waiting: { reason: "GrowingVolume", message: `The volume of ${name} is grown to ${size}.` },
    };
  }
  if (fixed.length === 0) return undefined;
  const message = `The volumes of ${fixed.join(", ")} cannot grow to ${size}: their StorageClass does not allow it. Set its allowVolumeExpansion to true, or replace these members by CellOperations: newcomers have volumes of the new size.`;
  return { stalled: { reason: "VolumeCannotGrow", message } };
}

/** Claims and pods that are missing, and pods that ended. Safe without a quorum: it only ever brings members back. */
export function keepPods(facts: Facts): Outcome | undefined {
  if (facts.o.namespaceTerminating) return undefined;
  const members = facts.members.filter((member) => isKept(facts, member));
  members.sort((a, b) => Number(a.id === undefined) - Number(b.id === undefined));
  for (const member of members) {
    const outcome = keepPod(facts, member);
    if (outcome !== undefined) return outcome;
  }
  return undefined;
}

function isKept(facts: Facts, member: MemberFacts): boolean {
  if (member.object === undefined) return false;
  if (member.kind !== undefined) return true;
  const isIncoming = facts.operation?.incoming?.includes(member.name) === true;
  if (isIncoming && member.id === undefined) return !member.deleting;
  if (facts.configuration !== undefined) return false;
  const summary = facts.previous.members?.find(({ name }) => name === member.name);
  const role = summary?.role ?? member.object.status?.role;
  return role !== "Gone" && (!member.deleting || member.id !== undefined);
}

function keepPod(facts: Facts, member: MemberFacts): Outcome | undefined {
  const { name, view, id } = member;
  const { pod, claim } = view;
  if (claim === undefined) {
    if (id !== undefined || member.deleting) return undefined;
    return { action: { kind: "create-claim", member: name }, lookAgainMs: BUSY_LOOK_MS };
  }
  if (pod === undefined) {
    if (claim.phase === "Lost" || claim.terminating || mustWaitForHost(facts, member)) return undefined;
    const mode = modeOf(facts, member);
    return {
      action: { kind: "create-pod", member: name, mode, role: roleOf(member) },
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  if (pod.terminating) return undefined;
  const end = (why: string): Outcome => ({
    action: { kind: "delete-pod", member: name, uid: pod.uid, why },
    lookAgainMs: BUSY_LOOK_MS,
  });
  if (pod.phase === "Succeeded" || pod.phase === "Failed") return end(`it ended (${pod.phase})`);
  if (!member.outdated || pod.ready)
    return founderIsKnown(facts, member) ? end("its cell is founded") : undefined;
  if (founderIsKnown(facts, member)) return end("its cell is founded");
  // A fix must get through to a pod that cannot run, whatever the state of the cell.
  const isIdle = member.kind === undefined ? member.status === undefined : member.kind === "learner";
  const isStuck = isIdle && (member.kind === "learner" || id === undefined || pod.trouble !== undefined);
  return isStuck ? end("it cannot run as it was made, and the spec has changed") : undefined;
}

/** The founder is restarted before anybody depends on it: from then on it never founds a cell again. */
function founderIsKnown(facts: Facts, member: MemberFacts): boolean {
  const { pod } = member.view;
  const founds = pod?.start === "bootstrap" || pod?.start === "recover";
  return (
    founds &&
    facts.previous.cellId !== undefined &&
    facts.configuration?.cellId === facts.previous.cellId &&
    facts.voters.length === 1
  );
}

/** New members are bound to hosts one after the other: each keeps clear of the hosts of those before it. */
function mustWaitForHost(facts: Facts, member: MemberFacts): boolean {
  if (member.id !== undefined || facts.spec.topology.hostSpread === "Preferred") return false;
  return facts.members.some(
    (other) => other.id === undefined && other.view.pod !== undefined && other.host === undefined,
  );
}

export function modeOf(facts: Facts, member: MemberFacts): PodMode {
  const { object, id } = member;
  if (id !== undefined) return { kind: "existing" };
  const others = facts.members.filter((other) => other.name !== member.name && other.object !== undefined);
  if (object?.spec.bootstrap === true) {
    const mayFound =
      others.length === 0 && facts.previous.cellId === undefined && object.status?.cellId === undefined;
    return { kind: mayFound ? "bootstrap" : "existing" };
  }
  const voters = facts.voters.length > 0 ? facts.voters : others;
  return { kind: "join", targets: voters.map(({ name }) => name) };
}

export function roleOf(member: MemberFacts): PodRole {
  if (member.kind === "voter" || member.kind === "leaving") return "voter";
  if (member.kind === "learner") return "learner";
  return member.id === undefined || member.object?.spec.bootstrap === true ? "learner" : "voter";
}

/** Pods' role labels follow the configuration. Former members first: they would be counted as protection. */
export function labelPods(facts: Facts): Outcome | undefined {
  if (facts.configuration === undefined || facts.configuration.joint) return undefined;
  const wrong = facts.members.flatMap((member) => {
    const { pod } = member.view;
    if (pod === undefined || pod.terminating) return [];
    const role: PodRole =
      member.kind === undefined ? (member.id === undefined ? "learner" : "former") : roleOf(member);
    return pod.labels[LABEL.role] === role ? [] : [{ name: member.name, uid: pod.uid, role }];
  });
  wrong.sort((a, b) => a.role.localeCompare(b.role));
  const first = wrong[0];
  if (first === undefined || findMember(facts, first.name) === undefined) return undefined;
  return {
    action: { kind: "label-pod", member: first.name, uid: first.uid, role: first.role },
    lookAgainMs: BUSY_LOOK_MS,
  };
}
