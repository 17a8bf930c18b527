/** Members that the cell does not have any more, and learners that no operation wants. */
import type { Facts, MemberFacts } from "./facts.ts";
import type { Outcome } from "./outcome.ts";
import { isVerified } from "./safety.ts";
import { BUSY_LOOK_MS } from "./time.ts";

export function dropLeftovers(facts: Facts): Outcome | undefined {
  const { configuration, operation } = facts;
  if (configuration === undefined) return undefined;
  const wanted = new Set(operation?.incoming ?? []);
  const gone = facts.members.find(
    ({ kind, object, name }) => kind === undefined && object !== undefined && !wanted.has(name),
  );
  if (gone !== undefined) {
    if (!isVerified(facts)) {
      return {
        waiting: {
          reason: "Verifying",
          message: `${gone.name} left the configuration; waits until a majority of the voters say that they have it.`,
        },
        lookAgainMs: BUSY_LOOK_MS,
      };
    }
    return dismiss(gone, mayDeleteClaim(facts, gone));
  }
  const learners = facts.members.filter(({ kind, name }) => kind === "learner" && !wanted.has(name));
  if (learners.length === 0) return undefined;
  const names = learners.map(({ name }) => name).join(", ");
  return {
    action: {
      kind: "change-membership",
      change: {
        plannedOn: configuration.configurationIndex,
        promote: [],
        demote: [],
        remove: learners.flatMap(({ id }) => (id === undefined ? [] : [id])),
      },
      why: `no operation wants the learner ${names}`,
    },
    waiting: {
      reason: "DroppingLearner",
      message: `The learner ${names} is dropped: no operation wants it.`,
    },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

/** A first member that was deleted before anybody heard of its cell: nobody depends on it. */
export function dropUnfounded(facts: Facts): Outcome | undefined {
  if (
    facts.configuration !== undefined ||
    facts.previous.cellId !== undefined ||
    facts.operation?.kind === "Recover"
  )
    return undefined;
  const doomed = facts.members.find(
    (member) => member.deleting && member.id === undefined && member.status === undefined,
  );
  if (doomed === undefined || facts.operation?.incoming?.includes(doomed.name) === true) return undefined;
  return dismiss(doomed, true);
}

/** Deletes the CellMember, stops its pod where a kubelet is there to do it, and lets the object go. */
export function dismiss(member: MemberFacts, deleteClaim: boolean): Outcome {
  const { name, view, object } = member;
  const { pod, node } = view;
  const uid = object?.metadata.uid ?? "";
  const waiting = { reason: "Releasing", message: `${name} is no member any more; its pod is stopped.` };
  const again = { waiting, lookAgainMs: BUSY_LOOK_MS };
  if (!member.deleting) return { action: { kind: "delete-member", member: name, uid }, ...again };
  if (pod !== undefined && !pod.terminating) {
    const why = "it is no member of the cell any more";
    return { action: { kind: "delete-pod", member: name, uid: pod.uid, why }, ...again };
  }
  // On a dead node nobody ends the pod; the finalizer does not wait for that.
  const isStopping = pod?.node !== undefined && node !== undefined && node !== "gone" && node.ready;
  if (isStopping) return again;
  return { action: { kind: "release-member", member: name, uid, deleteClaim }, ...again };
}

/** A learner's volume is a copy; a former voter's follows the reclaim policy, except that a recovery keeps the evidence. */
function mayDeleteClaim(facts: Facts, member: MemberFacts): boolean {
  if (facts.operation?.kind === "Recover") return false;
  const summary = facts.previous.members?.find(({ name }) => name === member.name);
  const role = summary?.role ?? member.object?.status?.role;
  const hasVoted = role !== "Learner" && role !== "Joining";
  return !hasVoted || facts.spec.storage.reclaimPolicy === "Delete";
}
