import { admin } from "@lockstep/proto";
import { CliError, EXIT } from "../exit-codes.ts";

/** A member by id or name. */
export function findMember(listed: admin.ListMembersResponse, wanted: string): admin.Member {
  const found = listed.members.find(({ id, name }) => String(id) === wanted || name === wanted);
  if (found !== undefined) return found;
  const removed = listed.removedIds.some((id) => String(id) === wanted);
  throw new CliError(
    EXIT.notFound,
    removed ? `member ${wanted} was removed` : `there is no member ${wanted}`,
    `The members are ${listed.members.map(({ id, name }) => `${name} (${String(id)})`).join(", ")}.`,
  );
}

function change(
  listed: admin.ListMembersResponse,
  parts: Partial<Pick<admin.ChangeMembershipRequest, "promote" | "demote" | "remove" | "force">>,
): admin.ChangeMembershipRequest {
  if (listed.joint) {
    throw new CliError(
      EXIT.failed,
      "a membership change is under way",
      "Wait until `lockstep member list` shows no joint configuration, then repeat.",
    );
  }
  return {
    plannedOn: listed.configurationIndex,
    promote: [],
    demote: [],
    remove: [],
    force: false,
    ...parts,
  };
}

/** Learners that become voters, all in one change. */
export function planPromotion(
  listed: admin.ListMembersResponse,
  members: readonly admin.Member[],
  force: boolean,
): admin.ChangeMembershipRequest {
  return change(listed, { promote: members.map(({ id }) => id), force });
}

export function planRemoval(
  listed: admin.ListMembersResponse,
  members: readonly admin.Member[],
  force: boolean,
): admin.ChangeMembershipRequest {
  const voters = listed.members.filter(({ kind }) => kind === admin.MemberKind.VOTER);
  const left = voters.filter(({ id }) => !members.some((member) => member.id === id));
  if (left.length === 0) {
    throw new CliError(EXIT.usage, "that would remove the last voter: a cell needs at least one");
  }
  return change(listed, { remove: members.map(({ id }) => id), force });
}

/** One joint change {+replacement, -old}: the cell never rests on an even number of voters. */
export function planReplacement(
  listed: admin.ListMembersResponse,
  old: admin.Member,
  replacement: admin.Member,
): admin.ChangeMembershipRequest {
  if (old.kind !== admin.MemberKind.VOTER) {
    throw new CliError(
      EXIT.usage,
      `${old.name} is not a voter`,
      "A learner is removed with `member remove`.",
    );
  }
  if (replacement.kind !== admin.MemberKind.LEARNER) {
    throw new CliError(
      EXIT.usage,
      `${replacement.name} is not a learner`,
      "Start the new member with `lockstep serve --join ...` first: it joins as a learner.",
    );
  }
  return change(listed, { promote: [replacement.id], remove: [old.id] });
}

/** How far each learner is, as the leader sees it. */
export interface CatchUp {
  readonly member: admin.Member;
  readonly behind: number;
  readonly caughtUp: boolean;
  readonly active: boolean;
}

/** Entries that a learner may lack and still be promoted at once: it gets them within a round trip. */
const BEHIND_MAX = 1_000;

export function catchUpOf(
  members: readonly admin.Member[],
  leader: Pick<admin.StatusResponse, "lastIndex" | "progress">,
): CatchUp[] {
  return members.map((member) => {
    const progress = leader.progress.find(({ memberId }) => memberId === member.id);
    const behind = leader.lastIndex - (progress?.match ?? 0);
    const active = progress?.recentlyActive ?? false;
    const caughtUp = active && progress?.state === "replicate" && behind <= BEHIND_MAX;
    return { member, behind, caughtUp, active };
  });
}
