/** Three real replicas with a god over them, and a reporter that remembers. */
import { Cluster } from "../../../../cell/src/replica/testing/cluster.ts";
import type { TestMember } from "../../../../cell/src/replica/testing/cluster.ts";
import type { LogIndex, MemberId, Message, RaftInitialState, Term } from "../../../../cell/src/raft/types.ts";
import type { CoverageKey, Reporter } from "../../contract.ts";
import { God } from "../god.ts";
import type { WatchedFolder, WatchedMember } from "../god.ts";

export class Violation extends Error {
  readonly law: string;

  constructor(law: string, text: string) {
    super(`${law}: ${text}`);
    this.law = law;
  }
}

/** Throws, as the world's reporter does, and remembers: a member takes what is thrown in its midst for its own failure. */
export class RememberingReporter implements Reporter {
  readonly laws: string[] = [];
  readonly texts: string[] = [];
  readonly counts: Map<CoverageKey, number> = new Map<CoverageKey, number>();

  violation(law: string, text: string): never {
    this.laws.push(law);
    this.texts.push(text);
    throw new Violation(law, text);
  }

  count(what: CoverageKey, by = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + by);
  }

  trace(): void {
    // Nobody reads it.
  }
}

/** Where every member of a {@link Cluster} begins. */
export function freshStart(member: TestMember): RaftInitialState {
  return {
    hardState: { term: 1 as Term, vote: 0 as MemberId, commit: 1 as LogIndex },
    logStart: { index: 1 as LogIndex, term: 1 as Term },
    entries: [],
    applied: 1 as LogIndex,
    configuration: member.state.membership.configuration,
  };
}

export interface Watched {
  readonly cluster: Cluster;
  readonly god: God;
  readonly reporter: RememberingReporter;
  readonly members: readonly WatchedMember[];
  readonly hosts: readonly string[];
}

/** @param tamper breaks something before the god looks */
export function watchCluster(tamper: (cluster: Cluster) => void = () => undefined): Watched {
  const cluster = new Cluster();
  tamper(cluster);
  const reporter = new RememberingReporter();
  const god = new God({
    reporter,
    scheduler: {
      get nowUs(): number {
        return cluster.nowMs * 1000;
      },
    },
  });
  const push = cluster.wire.push.bind(cluster.wire);
  cluster.wire.push = (...messages: Message[]): number => {
    for (const message of messages) god.sending(hostOf(message.from), [message]);
    return push(...messages);
  };
  for (const member of cluster.members) god.opened(hostOf(member.id), folderOf(member, freshStart(member)));
  const members = cluster.members.map((member): WatchedMember => {
    const { replica } = member;
    return { host: hostOf(member.id), core: { replica, hub: replica.parts.hub } };
  });
  for (const member of members) god.started(member);
  return { cluster, god, reporter, members, hosts: members.map(({ host }) => host) };
}

export function folderOf(member: TestMember, initial: RaftInitialState): WatchedFolder {
  const { id, state, wal } = member;
  return { identity: { memberId: id, incarnation: `i${String(id)}` }, state, wal, initial };
}

export function hostOf(id: number): string {
  return `m${String(id)}`;
}
