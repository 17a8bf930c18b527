/** I1, I3 and I6: who leads, what a leader must hold, and what it may call committed. */
import { jointVote } from "../../../cell/src/raft/quorum.ts";
import type { Configuration, LogIndex, MemberId, RaftNode } from "../../../cell/src/raft/types.ts";
import type { Reporter } from "../contract.ts";
import type { Ledger } from "./ledger.ts";
import { nameOf } from "./life.ts";
import type { Life } from "./life.ts";
import type { DiskLog } from "./log-model.ts";

export class LeadershipLaws {
  readonly #reporter: Reporter;
  readonly #ledger: Ledger;
  readonly #diskOf: (memberId: number) => DiskLog | undefined;
  readonly #leaders = new Map<number, Life>();
  /** The leader of the highest term so far. */
  #newest: Life | undefined;

  /** @param diskOf the log of the disk that holds this member now; undefined: it was wiped */
  constructor(reporter: Reporter, ledger: Ledger, diskOf: (memberId: number) => DiskLog | undefined) {
    this.#reporter = reporter;
    this.#ledger = ledger;
    this.#diskOf = diskOf;
  }

  /** After every input that a member has digested. */
  look(life: Life): void {
    const { raft } = life;
    if (raft === undefined) return;
    const leads = raft.role === "leader";
    const elected = leads && life.ledTerm !== raft.term;
    if (elected) this.#elected(life, raft);
    if (raft.commit > life.seenCommit) this.#advanced(life, raft, leads && !elected);
    if (leads) life.configuration = life.state.membership.configuration;
  }

  #elected(life: Life, raft: RaftNode): void {
    const { term } = raft;
    life.ledTerm = term;
    life.configuration = undefined;
    if (term > life.disk.ledTerm) life.disk.ledTerm = term;
    const other = this.#leaders.get(term);
    if (other !== undefined) {
      this.#reporter.violation(
        "I1",
        `two leaderships in term ${String(term)}: ${nameOf(other)} and ${nameOf(life)}`,
      );
    }
    const { durableHardState } = life.disk;
    if (durableHardState.term < term) {
      this.#reporter.violation(
        "I5-elected",
        `${nameOf(life)} leads term ${String(term)} while its disk holds term ${String(durableHardState.term)}: after a crash it could lead it again`,
      );
    }
    this.#leaders.set(term, life);
    if (this.#newest === undefined || term > this.#newest.ledTerm) this.#newest = life;
    this.#reporter.count("elections");
    // Votes may arrive late: who is elected after a later term has its leader need not hold what that one has committed.
    if (this.#newest !== life) return;
    const from = Math.max(raft.firstIndex - 1, 1);
    for (let index = from; index <= this.#ledger.highestCommit; index += 1) this.#holds(life, raft, index);
  }

  #advanced(life: Life, raft: RaftNode, decides: boolean): void {
    const from = Math.max(life.seenCommit + 1, raft.firstIndex - 1);
    life.seenCommit = raft.commit;
    for (let index = from; index <= raft.commit; index += 1) {
      const term = raft.termAt(index as LogIndex);
      if (term === undefined) continue;
      this.#ledger.committed(life.host, index, term);
    }
    if (decides) this.#decided(life, raft);
    const newest = this.#newest;
    if (newest === undefined || newest === life || newest.raft === undefined || !newest.alive) return;
    if (newest.raft.role !== "leader" || newest.raft.term <= raft.term) return;
    // A commit that only now is known was decided before this leader was elected.
    this.#holds(newest, newest.raft, raft.commit);
  }

  #holds(leader: Life, raft: RaftNode, index: number): void {
    const committed = this.#ledger.committedTerm(index);
    if (committed === undefined || index < raft.firstIndex - 1) return;
    const term = raft.termAt(index as LogIndex);
    if (term === committed) return;
    this.#reporter.violation(
      "I3",
      `the leader of term ${String(raft.term)}, ${nameOf(leader)}, holds ${term === undefined ? "nothing" : `an entry of term ${String(term)}`} at ${String(index)}, where one of term ${String(committed)} is committed`,
    );
  }

  /** I6: the disks of every majority that counts hold what a leader has just called committed. */
  #decided(life: Life, raft: RaftNode): void {
    const { commit, term } = raft;
    const termThere = raft.termAt(commit);
    if (termThere !== term) {
      this.#reporter.violation(
        "I6-own-term",
        `${nameOf(life)}, leader of term ${String(term)}, moves its commit index to ${String(commit)}, an entry of term ${String(termThere)}`,
      );
    }
    const now = life.state.membership.configuration;
    const before = life.configuration ?? now;
    // A change that was applied between two looks may have come before or after the commit index moved.
    if (this.#isDurable(now, commit, term) || (before !== now && this.#isDurable(before, commit, term)))
      return;
    this.#reporter.violation(
      "I6",
      `${nameOf(life)} calls ${String(commit)} of term ${String(term)} committed; of voters ${show(now)} the disks hold ${this.#holders(now, commit)}`,
    );
  }

  #isDurable(configuration: Configuration, index: number, term: number): boolean {
    return jointVote(configuration, (id) => this.#diskOf(id)?.durable.covers(index, term) ?? false) === "won";
  }

  #holders(configuration: Configuration, index: number): string {
    const voters = [...new Set<MemberId>([...configuration.voters, ...configuration.outgoing])];
    return voters
      .map((id) => {
        const durable = this.#diskOf(id)?.durable;
        if (durable === undefined) return `${String(id)}: no disk`;
        return `${String(id)}: ..${String(durable.last)} (term ${String(durable.termAt(index))} there)`;
      })
      .join(", ");
  }
}

function show({ voters, outgoing }: Configuration): string {
  return outgoing.length === 0 ? `[${voters.join(" ")}]` : `[${voters.join(" ")}]&[${outgoing.join(" ")}]`;
}
