/**
 * Restarts members one at a time, each on its own volume: sick ones first, then followers, the leader last. Each waits
 * for the one before to be ready and caught up for a while, so what does not start stops the roll after the first. Where
 * it is follows from the pods: an edit of the spec in the middle, and a fix above all, just goes on from there.
 */
import type { OperationStatus } from "../api/types.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { findMember } from "./facts.ts";
import { atStep, beginOperation, begun, endOperation, isOverdue } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { listNames, nextLeader, restartRisk } from "./safety.ts";
import { grantReplace } from "./start.ts";
import { BUSY_LOOK_MS, SICK_LOOK_MS } from "./time.ts";

/** Members that the spec wants restarted. */
export function outdatedMembers(facts: Facts): readonly MemberFacts[] {
  return facts.members.filter(
    // A volume that is to go goes with its pod: such a member is replaced instead.
    ({ outdated, kind, view }) =>
      outdated && kind !== undefined && view.pod?.terminating === false && view.claim?.terminating !== true,
  );
}

export function startRoll(facts: Facts): Outcome | undefined {
  if (facts.spec.updatePolicy.mode === "Manual") return undefined;
  const outdated = outdatedMembers(facts);
  if (outdated.length === 0) return undefined;
  const sick = outdated.filter(({ healthy }) => !healthy);
  if (sick.length === 0) {
    const ill = facts.voters.filter(({ healthy }) => !healthy);
    if (ill.length > 0) {
      const message = `The members are out of date; waits, because ${listNames(ill)} not healthy.`;
      return { waiting: { reason: "Roll", message }, lookAgainMs: SICK_LOOK_MS };
    }
  } else if (sick.every((member) => restartRisk(facts, member) !== undefined)) {
    return undefined;
  }
  if (!facts.o.mayRoll) {
    const message = "The members are out of date; waits for other cells of the fleet to finish rolling.";
    return { waiting: { reason: "WaitingToRoll", message }, lookAgainMs: SICK_LOOK_MS };
  }
  return begun(
    beginOperation(facts, {
      kind: "Roll",
      cause: `${outdated.map(({ name }) => name).join(", ")} run with an older spec`,
      trigger: "Spec",
      step: "begin",
      message: "Members are restarted one at a time.",
    }),
  );
}

export function roll(facts: Facts): Outcome | undefined {
  const { operation } = facts;
  if (operation?.kind !== "Roll") return undefined;
  const urgent = grantReplace(facts);
  if (urgent !== undefined) return endOperation(facts, operation, `Superseded: ${urgent.cause}`);
  const wait = (message: string): Outcome => ({
    operation: atStep(facts, operation, "wait", message),
    waiting: { reason: "Roll", message },
    ...stuck(facts, operation),
    lookAgainMs: BUSY_LOOK_MS,
  });
  const wanted = wantedRestarts(facts, operation);
  if (wanted === "deleted") {
    return endOperation(
      facts,
      operation,
      `Cancelled: the CellOperation ${operation.requestedBy ?? ""} was deleted`,
    );
  }
  if (operation.requestedBy !== undefined && isOverdue(facts, operation)) {
    return endOperation(facts, operation, `Aborted: ${operation.message}`);
  }
  const sick = wanted.find((member) => !member.healthy && restartRisk(facts, member) === undefined);
  if (sick !== undefined) return restart(facts, operation, sick);
  const unwell = facts.voters.filter(({ healthy }) => !healthy);
  if (unwell.length > 0) return wait(`Waits until ${listNames(unwell)} ready and caught up.`);
  const fresh = facts.voters.find((member) => !isReadyLongEnough(facts, member));
  if (fresh !== undefined) {
    const seconds = String(facts.spec.updatePolicy.minReadySeconds);
    return wait(`Waits until ${fresh.name} has been ready for ${seconds} s.`);
  }
  const follower = wanted.find(({ isLeader }) => !isLeader);
  if (follower !== undefined) return restart(facts, operation, follower);
  const [leader] = wanted;
  if (leader === undefined) return endOperation(facts, operation, "Succeeded");
  const heir = nextLeader(facts, [leader.name]);
  if (heir?.id === undefined) return restart(facts, operation, leader);
  const message = `Leadership goes from ${leader.name} to ${heir.name}.`;
  return {
    action: { kind: "transfer-leadership", to: heir.id, why: `${leader.name} is restarted` },
    operation: atStep(facts, operation, "transfer", message),
    waiting: { reason: "Roll", message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function wantedRestarts(facts: Facts, operation: OperationStatus): readonly MemberFacts[] | "deleted" {
  if (operation.requestedBy === undefined) return outdatedMembers(facts);
  const member = findMember(facts, operation.outgoing?.[0] ?? "");
  const pod = member?.view.pod;
  // A fix goes through to sick members whatever else was asked for.
  const sick = outdatedMembers(facts).filter(({ healthy }) => !healthy);
  const isDue = member !== undefined && pod !== undefined && pod.uid === operation.podUid;
  if (!isDue || pod.terminating) return sick;
  const isAsked = facts.o.requests.some(({ metadata }) => metadata.name === operation.requestedBy);
  return isAsked ? [...sick, member] : "deleted";
}

function restart(facts: Facts, operation: OperationStatus, member: MemberFacts): Outcome {
  const message = `${member.name} is restarted.`;
  const uid = member.view.pod?.uid ?? "";
  return {
    action: { kind: "delete-pod", member: member.name, uid, why: operation.cause },
    operation: {
      ...atStep(facts, operation, `restart ${member.name}`, message),
      outgoing: [member.name],
    },
    waiting: { reason: "Roll", message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function isReadyLongEnough(facts: Facts, member: MemberFacts): boolean {
  const since = member.view.pod?.readySinceMs;
  return since !== undefined && facts.nowMs - since >= facts.spec.updatePolicy.minReadySeconds * 1_000;
}

/** What the members that were restarted say they lack: a fix of the spec goes through to them. */
function stuck(facts: Facts, operation: OperationStatus): Pick<Outcome, "stalled"> {
  const bad = facts.voters.find(({ healthy, view }) => !healthy && view.pod?.trouble !== undefined);
  const trouble = bad?.view.pod?.trouble;
  if (bad !== undefined && trouble !== undefined) {
    const message = `${bad.name} does not start with the new spec, and the roll stopped there: ${trouble.message} Correct the spec; it goes to this member first.`;
    return { stalled: { reason: trouble.reason, message } };
  }
  if (!isOverdue(facts, operation)) return {};
  return {
    stalled: { reason: "RollStuck", message: `${operation.message} Look at that member's pod and log.` },
  };
}
