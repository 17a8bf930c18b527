/**
 * Create, Grow, Shrink and Replace are one machine: members come as learners, catch up, and one joint change makes
 * them voters and takes the outgoing ones away. Where it is follows from the configuration, not from the step.
 *
 *   members -> catch-up -> settle -> transfer -> change | verify -> release
 *
 * Left of the bar it may be cancelled; right of it only forward.
 */
import type { OperationStatus } from "../api/types.ts";
import { findMember } from "./facts.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { atStep, endOperation, isOverdue } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { choosePlace } from "./placement.ts";
import { isVerified, mayVote, nextLeader, riskOf } from "./safety.ts";
import { awaitsRestart } from "./start.ts";
import { BUSY_LOOK_MS, fromStamp, PROGRESS_DEADLINE_MS, SETTLE_MS, toStamp } from "./time.ts";

const RECONFIGURING = new Set(["Create", "Grow", "Shrink", "Replace"]);
const SETTLED_STEPS = new Set(["settle", "transfer", "change"]);

export function reconfigure(facts: Facts): Outcome | undefined {
  const { operation, configuration } = facts;
  if (operation === undefined || configuration === undefined || !RECONFIGURING.has(operation.kind)) {
    return undefined;
  }
  if (isMade(facts, operation)) return afterChange(facts, operation);
  const reason = cancelReason(facts, operation);
  if (reason !== undefined) return endOperation(facts, operation, `Cancelled: ${reason}`);
  if (isOverdue(facts, operation)) {
    const minutes = String(PROGRESS_DEADLINE_MS / 60_000);
    return endOperation(
      facts,
      operation,
      `Aborted: no progress for ${minutes} minutes at step ${operation.step} (${operation.message})`,
    );
  }
  return (
    bringMembers(facts, operation) ??
    catchUp(facts, operation) ??
    settle(facts, operation) ??
    change(facts, operation)
  );
}

function isMade(facts: Facts, operation: OperationStatus): boolean {
  const { incoming = [], outgoing = [] } = operation;
  return (
    incoming.every((name) => findMember(facts, name)?.kind === "voter") &&
    outgoing.every((name) => findMember(facts, name)?.kind === undefined)
  );
}

function afterChange(facts: Facts, operation: OperationStatus): Outcome {
  const wait = (step: string, message: string): Outcome => ({
    operation: atStep(facts, operation, step, message),
    waiting: { reason: operation.kind, message },
    lookAgainMs: BUSY_LOOK_MS,
  });
  if (!isVerified(facts)) {
    return wait("verify", "Waits until a majority of the voters say that they have the new configuration.");
  }
  const { outgoing = [] } = operation;
  const left = outgoing.filter((name) => findMember(facts, name)?.object !== undefined);
  if (left.length > 0) return wait("release", `Waits until ${left.join(", ")} is gone.`);
  return endOperation(facts, operation, "Succeeded");
}

function cancelReason(facts: Facts, operation: OperationStatus): string | undefined {
  const { incoming = [], outgoing = [], trigger, kind, requestedBy } = operation;
  for (const name of incoming) {
    const member = findMember(facts, name);
    if (member?.deleting === true) return `${name} was deleted`;
    if (member?.id !== undefined && member.kind === undefined) return `${name} was removed from the cell`;
    if (member?.view.node === "gone") return `the node of ${name} is gone`;
  }
  const [only] = outgoing;
  if (kind === "Replace" && only !== undefined) {
    const member = findMember(facts, only);
    if (member?.kind === undefined) return `${only} is no member of the cell any more`;
    if (trigger === "Lost" && member.healthy) return `${only} is well again`;
    if (trigger === "Lost" && member.view.node !== "gone" && awaitsRestart(facts, member)) {
      return `${only} is restarted with the new spec first`;
    }
  }
  const after = facts.voters.length + incoming.length - outgoing.length;
  if (kind !== "Replace" && after !== facts.spec.voters) {
    return `the spec asks for ${String(facts.spec.voters)} voters now`;
  }
  const isRequested = trigger === "Requested" || trigger === "Drained";
  if (isRequested && !facts.o.requests.some(({ metadata }) => metadata.name === requestedBy)) {
    return `the CellOperation ${requestedBy ?? ""} was deleted`;
  }
  return undefined;
}

function bringMembers(facts: Facts, operation: OperationStatus): Outcome | undefined {
  const { incoming = [], outgoing = [] } = operation;
  const missing = incoming.find((name) => findMember(facts, name)?.object === undefined);
  if (missing !== undefined) return makeMember(facts, operation, missing);
  for (const name of incoming) {
    const member = findMember(facts, name);
    if (member === undefined || member.kind !== undefined) continue;
    const trouble = member.view.pod?.trouble ?? member.view.claim?.trouble ?? facts.o.obstacles[0];
    const message = `Waits for ${name} to join as a learner.`;
    return {
      operation: atStep(facts, operation, "members", message),
      waiting: { reason: operation.kind, message },
      ...(trouble === undefined ? {} : { stalled: trouble }),
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  if (incoming.length === 0 && outgoing.length === 0) return endOperation(facts, operation, "Succeeded");
  return undefined;
}

function makeMember(facts: Facts, operation: OperationStatus, name: string): Outcome {
  const { outgoing = [], trigger, kind } = operation;
  const replaced = kind === "Replace" ? findMember(facts, outgoing[0] ?? "") : undefined;
  const mayShareHost = trigger !== "Drained";
  const place = choosePlace(facts, { replaced, mayShareHost });
  if ("blocked" in place) {
    return {
      operation: { ...operation, message: place.blocked },
      stalled: { reason: "Unschedulable", message: place.blocked },
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  const message = `${name} is made${place.zone === undefined ? "" : ` in zone ${place.zone}`}.`;
  return {
    action: {
      kind: "create-member",
      name,
      zone: place.zone,
      bootstrap: false,
      replaces: mayShareHost ? replaced?.name : undefined,
    },
    operation: atStep(facts, operation, "members", message),
    waiting: { reason: kind, message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function incomingFacts(facts: Facts, operation: OperationStatus): readonly MemberFacts[] {
  return (operation.incoming ?? []).flatMap((name) => findMember(facts, name) ?? []);
}

function catchUp(facts: Facts, operation: OperationStatus): Outcome | undefined {
  const members = incomingFacts(facts, operation);
  const behind = members.filter((member) => !mayVote(member));
  if (behind.length === 0) return undefined;
  const how = behind
    .map(
      ({ name, lag }) =>
        `${name} (${lag === undefined ? "not heard of yet" : `${String(lag)} entries behind`})`,
    )
    .join(", ");
  const message = `Waits until ${how} has caught up.`;
  const entered = atStep(facts, operation, "catch-up", message);
  return {
    operation: withProgress(facts, entered, members),
    waiting: { reason: operation.kind, message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

/** A copy that takes long is no reason to abort while it moves. Written seldom: when half of the time is used up. */
function withProgress(
  facts: Facts,
  operation: OperationStatus,
  members: readonly MemberFacts[],
): OperationStatus {
  const slowest = Math.min(...members.map(({ match }) => match ?? 0));
  if (operation.progress === undefined) return { ...operation, progress: slowest };
  const left = (fromStamp(operation.deadline) ?? 0) - facts.nowMs;
  if (slowest <= operation.progress || left > PROGRESS_DEADLINE_MS / 2) return operation;
  return { ...operation, progress: slowest, deadline: toStamp(facts.nowMs + PROGRESS_DEADLINE_MS) };
}

function settle(facts: Facts, operation: OperationStatus): Outcome | undefined {
  if ((operation.incoming ?? []).length === 0) return undefined;
  const message = "The incoming members have caught up; waits to see that they stay so.";
  const isIn = SETTLED_STEPS.has(operation.step);
  const since = isIn ? (fromStamp(operation.stepSince) ?? facts.nowMs) : facts.nowMs;
  const leftMs = since + SETTLE_MS - facts.nowMs;
  if (operation.step !== "settle" && isIn) return undefined;
  if (isIn && leftMs <= 0) return undefined;
  return {
    operation: atStep(facts, operation, "settle", message),
    waiting: { reason: operation.kind, message },
    lookAgainMs: Math.min(leftMs, BUSY_LOOK_MS),
  };
}

function change(facts: Facts, operation: OperationStatus): Outcome {
  const { incoming = [], outgoing = [], kind } = operation;
  const risk = riskOf(facts, { incoming, outgoing });
  if (risk !== undefined) {
    const message = `Waits with the change of membership: ${risk}.`;
    return {
      operation: { ...operation, message },
      waiting: { reason: kind, message },
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  const { leader, configuration } = facts;
  const heir = nextLeader(facts, outgoing);
  if (leader !== undefined && outgoing.includes(leader.name) && heir?.id !== undefined) {
    const why = `${leader.name} leads and leaves the cell`;
    const message = `Leadership goes from ${leader.name} to ${heir.name}.`;
    return {
      action: { kind: "transfer-leadership", to: heir.id, why },
      operation: atStep(facts, operation, "transfer", message),
      waiting: { reason: kind, message },
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  const ids = (names: readonly string[]): readonly number[] =>
    names.flatMap((name) => findMember(facts, name)?.id ?? []);
  const message = describeChange(incoming, outgoing);
  const isAutomatic = operation.trigger === "Lost" || operation.trigger === "SlowDisk";
  return {
    action: {
      kind: "change-membership",
      change: {
        plannedOn: configuration?.configurationIndex ?? 0,
        promote: ids(incoming),
        demote: [],
        remove: ids(outgoing),
      },
      why: operation.cause,
    },
    operation: atStep(facts, operation, "change", message),
    ...(isAutomatic ? { patch: { lastAutomaticReplacement: toStamp(facts.nowMs) } } : {}),
    waiting: { reason: kind, message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function describeChange(incoming: readonly string[], outgoing: readonly string[]): string {
  const parts = [
    ...(incoming.length > 0 ? [`${incoming.join(", ")} become voters`] : []),
    ...(outgoing.length > 0 ? [`${outgoing.join(", ")} leave`] : []),
  ];
  return `In one change ${parts.join(", and ")}.`;
}
