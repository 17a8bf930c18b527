/** What to begin when nothing is under way. The order is the order of need. */
import type { OperationStatus, OperationTrigger } from "../api/types.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { memberNames } from "./names.ts";
import { backoffLeftMs, beginOperation, begun, isOverdue } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { choosePlace } from "./placement.ts";
import { riskOf } from "./safety.ts";
import { AUTOMATIC_REPLACEMENT_EVERY_MS, fromStamp, SICK_LOOK_MS } from "./time.ts";

export interface ReplaceWish {
  readonly member: MemberFacts;
  readonly trigger: OperationTrigger;
  readonly cause: string;
  readonly requestedBy?: string;
}

/** A replacement that may begin now, or why a wanted one may not. */
export type ReplaceAnswer =
  { readonly operation: OperationStatus } | { readonly blocked: string; readonly unschedulable: boolean };

export function beginReplace(facts: Facts, wish: ReplaceWish): ReplaceAnswer {
  const { member } = wish;
  const risk = riskOf(facts, { outgoing: [member.name], incoming: [] });
  // With one voter there is no majority without it before the new one has come.
  if (risk !== undefined && facts.voters.length > 1) return { blocked: risk, unschedulable: false };
  if (facts.voters.length === 1 && !member.healthy) {
    return { blocked: `${member.name} is the only voter and not healthy`, unschedulable: false };
  }
  const place = choosePlace(facts, { replaced: member, mayShareHost: wish.trigger !== "Drained" });
  if ("blocked" in place) return { blocked: place.blocked, unschedulable: true };
  const backoff = backoffLeftMs(facts, "Replace");
  if (backoff > 0) {
    const seconds = String(Math.ceil(backoff / 1_000));
    return { blocked: `the last try was aborted; the next begins in ${seconds} s`, unschedulable: false };
  }
  const begun = beginOperation(facts, {
    kind: "Replace",
    cause: wish.cause,
    trigger: wish.trigger,
    step: "begin",
    message: `A voter that takes over from ${member.name} is chosen.`,
    outgoing: [member.name],
    ...(wish.requestedBy === undefined ? {} : { requestedBy: wish.requestedBy }),
  });
  return { operation: { ...begun, incoming: newNames(facts, begun.id, 1) } };
}

function newNames(facts: Facts, id: string, count: number): readonly string[] {
  const taken = new Set(facts.members.map(({ name }) => name));
  return memberNames(facts.cell.metadata.name, id, count, taken);
}

/** Voters that need another in their place without a request: lost ones first, then those that somebody deleted. */
export function replaceWishes(facts: Facts): readonly ReplaceWish[] {
  const voters = facts.voters.filter(({ kind }) => kind === "voter");
  const lost = voters.filter((member) => isLostForGood(facts, member));
  const deleted = voters.filter((member) => isDeleted(member));
  return [
    ...(mayReplaceByItself(facts) ? lost : []).map((member): ReplaceWish => {
      const cause =
        member.view.node === "gone"
          ? `the node of ${member.name} is gone`
          : `${member.name} is lost since ${facts.previous.members?.find(({ name }) => name === member.name)?.lostSince ?? "some time"}`;
      return { member, trigger: "Lost", cause };
    }),
    ...deleted.map((member): ReplaceWish => {
      const what = member.deleting || member.object === undefined ? "CellMember" : "PersistentVolumeClaim";
      return { member, trigger: "Deleted", cause: `the ${what} ${member.name} was deleted` };
    }),
  ];
}

function isDeleted(member: MemberFacts): boolean {
  if (member.object === undefined) return member.gone;
  return member.deleting || member.view.claim?.terminating === true;
}

function isLostForGood(facts: Facts, member: MemberFacts): boolean {
  if (!member.gone || member.healthy) return false;
  if (member.view.node === "gone") return true;
  const isLong = member.lostSinceMs !== undefined && facts.nowMs - member.lostSinceMs >= facts.lossAfterMs;
  return isLong && !awaitsRestart(facts, member) && !isBrokenByRoll(facts, member);
}

/** A sick member that runs with an older spec is restarted with the new one before it is given up. */
export function awaitsRestart(facts: Facts, member: MemberFacts): boolean {
  return facts.spec.updatePolicy.mode === "Rolling" && member.outdated && !hasLostNode(member);
}

/** What a bad image broke, another member of the same image does not mend. */
function isBrokenByRoll(facts: Facts, member: MemberFacts): boolean {
  const { operation } = facts;
  if (operation?.kind !== "Roll" || operation.outgoing?.includes(member.name) !== true) return false;
  if (member.outdated || hasLostNode(member)) return false;
  const isProven = facts.voters.some((other) => other.healthy && !other.outdated);
  const isImage = member.view.pod?.trouble?.reason.includes("Image") === true;
  return !isProven && (isImage || !isOverdue(facts, operation));
}

function hasLostNode({ view }: MemberFacts): boolean {
  return view.node === "gone" || view.node?.ready === false || view.pod?.node === undefined;
}

function mayReplaceByItself(facts: Facts): boolean {
  if (facts.spec.replacementPolicy.mode === "Never") return false;
  const last = fromStamp(facts.previous.lastAutomaticReplacement);
  return last === undefined || facts.nowMs - last >= AUTOMATIC_REPLACEMENT_EVERY_MS;
}

/** The first wish that can be granted. */
export function grantReplace(facts: Facts): OperationStatus | undefined {
  for (const wish of replaceWishes(facts)) {
    const answer = beginReplace(facts, wish);
    if ("operation" in answer) return answer.operation;
  }
  return undefined;
}

export function startReplace(facts: Facts): Outcome | undefined {
  const operation = grantReplace(facts);
  if (operation !== undefined) return begun(operation);
  return undefined;
}

/** Wishes that nobody can grant now are told, and do not hold up the rest. */
export function explainReplace(facts: Facts): Outcome | undefined {
  for (const wish of replaceWishes(facts)) {
    const answer = beginReplace(facts, wish);
    if ("operation" in answer) continue;
    const message = `${wish.member.name} cannot be replaced yet: ${answer.blocked}`;
    return answer.unschedulable
      ? { stalled: { reason: "Unschedulable", message }, lookAgainMs: SICK_LOOK_MS }
      : { waiting: { reason: "Replace", message }, lookAgainMs: SICK_LOOK_MS };
  }
  return undefined;
}

/** A disk that is slow for as long as a loss must last. */
export function startSlowDisk(facts: Facts): Outcome | undefined {
  if (facts.spec.replacementPolicy.slowDisk !== "Replace" || !mayReplaceByItself(facts)) return undefined;
  const slow = facts.voters.filter(
    ({ slowSinceMs }) => slowSinceMs !== undefined && facts.nowMs - slowSinceMs >= facts.lossAfterMs,
  );
  // If all are slow, it is not the disk of one.
  const [member] = slow;
  if (member === undefined || slow.length * 2 > facts.voters.length) return undefined;
  const answer = beginReplace(facts, {
    member,
    trigger: "SlowDisk",
    cause: `the disk of ${member.name} is slow`,
  });
  return "operation" in answer ? begun(answer.operation) : undefined;
}

export function startResize(facts: Facts): Outcome | undefined {
  const { voters, spec, previous } = facts;
  if (voters.length === spec.voters) return undefined;
  const isGrowth = spec.voters > voters.length;
  const kind = isGrowth ? (previous.admitted === true ? "Grow" : "Create") : "Shrink";
  const outgoing = isGrowth ? [] : leastWorth(facts, voters.length - spec.voters);
  const risk = riskOf(facts, { outgoing, incoming: [] });
  const cause = `the spec asks for ${String(spec.voters)} voters, and there are ${String(voters.length)}`;
  const wait = (message: string): Outcome => ({
    waiting: { reason: kind, message: `${cause}: ${message}` },
    lookAgainMs: SICK_LOOK_MS,
  });
  if (risk !== undefined) return wait(`waits, because ${risk}`);
  const backoff = backoffLeftMs(facts, kind);
  if (backoff > 0) {
    return wait(`the last try was aborted; the next begins in ${String(Math.ceil(backoff / 1_000))} s`);
  }
  const place = isGrowth ? choosePlace(facts, { replaced: undefined, mayShareHost: false }) : undefined;
  if (place !== undefined && "blocked" in place) {
    return { stalled: { reason: "Unschedulable", message: place.blocked }, lookAgainMs: SICK_LOOK_MS };
  }
  const operation = beginOperation(facts, {
    kind,
    cause,
    trigger: "Spec",
    step: "begin",
    message: isGrowth ? "New members are chosen." : `${outgoing.join(", ")} are to leave.`,
    outgoing,
  });
  if (!isGrowth) return begun(operation);
  return begun({ ...operation, incoming: newNames(facts, operation.id, spec.voters - voters.length) });
}

/** Deleted ones, sick ones, then those whose zone has most voters; the leader last. */
function leastWorth(facts: Facts, count: number): readonly string[] {
  const rest = [...facts.voters];
  const chosen: string[] = [];
  while (chosen.length < count && rest.length > 0) {
    const crowd = (zone: string | undefined): number => rest.filter((other) => other.zone === zone).length;
    const rank = (member: MemberFacts): readonly number[] => [
      Number(isDeleted(member)),
      Number(!member.healthy),
      Number(!member.isLeader),
      crowd(member.zone),
    ];
    rest.sort((a, b) => compareRanks(rank(b), rank(a)) || a.name.localeCompare(b.name));
    const next = rest.shift();
    if (next !== undefined) chosen.push(next.name);
  }
  return chosen;
}

function compareRanks(a: readonly number[], b: readonly number[]): number {
  for (const [i, value] of a.entries()) {
    const difference = value - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
