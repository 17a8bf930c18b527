/** What a change of membership or a restart may not cost: the majority. */
import { findMember, quorumOf } from "./facts.ts";
import type { Facts, MemberFacts } from "./facts.ts";

export interface WantedChange {
  readonly outgoing: readonly string[];
  readonly incoming: readonly string[];
}

/**
 * @returns why the change must wait; undefined: majorities before and after it are healthy, and if a healthy voter
 * leaves, everybody who stays is healthy.
 */
export function riskOf(facts: Facts, change: WantedChange): string | undefined {
  const before = facts.voters;
  const stay = before.filter(({ name }) => !change.outgoing.includes(name));
  const leave = before.filter(({ name }) => change.outgoing.includes(name));
  const sick = stay.filter(({ healthy }) => !healthy);
  const healthyBefore = before.filter(({ healthy }) => healthy).length;
  if (healthyBefore < quorumOf(before.length)) {
    return `only ${String(healthyBefore)} of ${String(before.length)} voters are healthy`;
  }
  const after = stay.length + change.incoming.length;
  const ready = change.incoming.filter((name) => mayVote(findMember(facts, name))).length;
  const healthyAfter = stay.length - sick.length + ready;
  if (healthyAfter < quorumOf(after)) {
    return `only ${String(healthyAfter)} of the ${String(after)} voters after it would be healthy`;
  }
  // Who is silent for a moment only still counts as one who votes.
  if (leave.some(({ gone }) => !gone) && sick.length > 0) {
    return `${listNames(sick)} not healthy, and no healthy voter is touched meanwhile`;
  }
  return undefined;
}

/** A learner that may become a voter. */
export function mayVote(member: MemberFacts | undefined): boolean {
  return (
    member?.kind !== undefined &&
    member.caughtUp &&
    member.status !== undefined &&
    member.lostSinceMs === undefined &&
    !member.deleting
  );
}

/** @returns why `member`'s pod may not be ended; undefined: everybody else is healthy, or it contributes nothing. */
export function restartRisk(facts: Facts, member: MemberFacts): string | undefined {
  if (member.kind !== "voter") return undefined;
  const others = facts.voters.filter(({ name }) => name !== member.name);
  const sick = others.filter(({ healthy }) => !healthy);
  if (sick.length === 0 || member.gone) return undefined;
  return `${listNames(sick)} not healthy, and no healthy voter is touched meanwhile`;
}

/** The configuration in force has reached the disks of a majority of its voters, by their own word. */
export function isVerified(facts: Facts): boolean {
  const { configuration } = facts;
  if (configuration === undefined || configuration.joint) return false;
  const know = facts.voters.filter(
    ({ status }) =>
      status !== undefined && !status.joint && status.configurationIndex >= configuration.configurationIndex,
  );
  return know.length >= quorumOf(facts.voters.length);
}

/** The voter that leads best instead of those in `except`: healthy, furthest on. */
export function nextLeader(facts: Facts, except: readonly string[]): MemberFacts | undefined {
  return facts.voters
    .filter((member) => member.healthy && member.kind === "voter" && !except.includes(member.name))
    .sort((a, b) => (b.match ?? 0) - (a.match ?? 0) || a.name.localeCompare(b.name))[0];
}

export function listNames(members: readonly { readonly name: string }[]): string {
  const names = members.map(({ name }) => name).join(", ");
  return members.length === 1 ? `${names} is` : `${names} are`;
}
