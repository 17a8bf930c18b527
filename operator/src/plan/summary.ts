/** Members as the status shows them; what is not seen now stays as it was last seen. */
import { identityOf } from "../api/labels.ts";
import { clientHost, PORTS } from "../api/names.ts";
import type { CoordinationCellStatus, MemberSummary } from "../api/types.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { toStamp } from "./time.ts";

export function summarize(facts: Facts): readonly MemberSummary[] {
  return facts.members.map((member) => summarizeMember(facts, member));
}

/** Where applications find the cell, from when they may. */
export function whereabouts(facts: Facts): Pick<CoordinationCellStatus, "endpoints"> {
  if (facts.previous.admitted !== true) return {};
  const { name, namespace } = identityOf(facts.cell);
  const host = clientHost(name, namespace);
  return { endpoints: { client: `${host}:${String(PORTS.client)}`, http: `${host}:${String(PORTS.http)}` } };
}

/** What a member runs that runs the oldest; nothing when none answers. */
export function lowestVersion(facts: Facts): Pick<CoordinationCellStatus, "version"> {
  const versions = facts.members.flatMap(({ kind, status }) =>
    kind === undefined ? [] : (status?.version ?? []),
  );
  const [lowest] = versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return lowest === undefined ? {} : { version: lowest };
}

function summarizeMember(facts: Facts, member: MemberFacts): MemberSummary {
  const before = facts.previous.members?.find(({ name }) => name === member.name);
  const trouble = messageOf(facts, member);
  return {
    name: member.name,
    ...optional("id", member.id),
    role: roleOf(facts, member, before),
    ...(member.isLeader ? { leader: true } : {}),
    ...optional("zone", member.zone),
    ...optional("node", member.host),
    ready: member.healthy,
    ...optional("lag", roundLag(member.lag)),
    ...optional("version", member.status?.version ?? before?.version),
    ...(member.lostSinceMs === undefined ? {} : { lostSince: toStamp(member.lostSinceMs) }),
    ...(member.slowSinceMs === undefined ? {} : { slowSince: toStamp(member.slowSinceMs) }),
    ...optional("message", trouble),
  };
}

function optional<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Partial<Record<K, V>>);
}

/** A few entries of lag are the cell's normal breath: they are no reason to write the status again and again. */
function roundLag(lag: number | undefined): number | undefined {
  if (lag === undefined || lag < 100) return lag === undefined ? undefined : 0;
  return Math.ceil(lag / 1_000) * 1_000;
}

function roleOf(facts: Facts, member: MemberFacts, before: MemberSummary | undefined): MemberSummary["role"] {
  const last = before?.role ?? member.object?.status?.role;
  if (facts.configuration === undefined) return last ?? "Joining";
  switch (member.kind) {
    case "voter":
      return "Voter";
    case "learner":
      return "Learner";
    case "leaving":
      return "Leaving";
    case undefined:
      // Whether it ever voted decides what becomes of its volume.
      return last === undefined || last === "Joining" || last === "Learner" ? (last ?? "Joining") : "Gone";
  }
}

function messageOf(facts: Facts, member: MemberFacts): string | undefined {
  const { view } = member;
  const trouble = view.pod?.trouble ?? view.claim?.trouble;
  if (trouble !== undefined) return trouble.message;
  if (view.status !== undefined && member.status === undefined) {
    return "What answers here is another cell, or another disk, than this member's.";
  }
  if (view.node === "gone") return "Its node is gone.";
  if (member.lostSinceMs !== undefined) return "The leader does not hear of it.";
  if (member.id !== undefined && view.claim === undefined) return "Its PersistentVolumeClaim is gone.";
  if (facts.configuration !== undefined && member.kind !== undefined && member.status === undefined) {
    return "It does not answer.";
  }
  return member.status?.ready === false ? member.status.notReady : undefined;
}
