/** What must hold over all members at every moment of a simulated history. */
import assert from "node:assert/strict";
import { jointVote } from "../quorum.ts";
import type { Configuration, Entry, LogIndex, MemberId, Term } from "../types.ts";
import type { TestMember } from "./member.ts";

export class Invariants {
  readonly #members: ReadonlyMap<MemberId, TestMember>;
  readonly #leaders = new Map<Term, MemberId>();
  /** By `term/index`: the entry, and the term of the one before it. */
  readonly #written = new Map<string, { readonly entry: Entry; readonly prevTerm: Term }>();
  readonly #applied = new Map<LogIndex, Entry>();
  readonly #configurations = new Map<LogIndex, Configuration>();
  /** Of each leader, up to where its commits were checked. */
  readonly #checkedCommits = new Map<string, LogIndex>();
  /** The highest commit index that any member ever knew. */
  highestCommit = 0 as LogIndex;

  constructor(members: ReadonlyMap<MemberId, TestMember>) {
    this.#members = members;
  }

  /** After every step of `member`. */
  check(member: TestMember): void {
    const { node } = member;
    if (node.role === "leader") this.#checkLeader(member);
    if (node.commit > this.highestCommit) this.highestCommit = node.commit;
    assert(node.commit <= node.lastIndex && node.stableIndex <= node.lastIndex, "marks lie within the log");
  }

  /** I4: nobody ever applies another entry at an index. */
  applied(member: TestMember, entry: Entry): void {
    const known = this.#applied.get(entry.index);
    if (known === undefined) this.#applied.set(entry.index, entry);
    else assertSameEntry(entry, known, `member ${member.id} applies what others applied (I4)`);
    if (entry.kind === "configuration") this.#configurationApplied(member, entry.index);
  }

  /** I2: entries of one index and term are equal, and so are the logs up to them. */
  written(entries: readonly Entry[], prevTerm: Term): void {
    let before = prevTerm;
    for (const entry of entries) {
      const key = `${entry.term}/${entry.index}`;
      const known = this.#written.get(key);
      if (known === undefined) {
        this.#written.set(key, { entry, prevTerm: before });
      } else {
        assertSameEntry(entry, known.entry, "one entry per index and term (I2)");
        assert.equal(before, known.prevTerm, `what comes before ${key} is the same everywhere (I2)`);
      }
      before = entry.term;
    }
  }

  #checkLeader(leader: TestMember): void {
    const { term, commit } = leader.node;
    const known = this.#leaders.get(term);
    if (known === undefined) {
      this.#leaders.set(term, leader.id);
      this.#checkCompleteness(leader);
    }
    assert.equal(this.#leaders.get(term), leader.id, `one leader in term ${term} (I1)`);
    const key = `${leader.id}@${term}`;
    const from = this.#checkedCommits.get(key);
    if (from !== undefined && commit > from) this.#checkDurability(leader, commit);
    this.#checkedCommits.set(key, commit);
  }

  /** I3: who is elected holds every committed entry. */
  #checkCompleteness(leader: TestMember): void {
    const { node } = leader;
    for (const [index, entry] of this.#applied) {
      if (index < node.firstIndex) continue;
      assert.equal(
        node.termAt(index),
        entry.term,
        `leader ${leader.id} of term ${node.term} holds ${index} (I3)`,
      );
    }
    assert(node.lastIndex >= this.highestCommit, "a leader's log reaches every committed entry (I3)");
  }

  /** I6: what a leader calls committed is on the disks of a quorum of its configuration at that moment. */
  #checkDurability(leader: TestMember, commit: LogIndex): void {
    const term = leader.node.termAt(commit);
    const { configuration } = leader.node.status();
    const holds = (id: MemberId): boolean => {
      const disk = this.#members.get(id)?.disk;
      if (disk === undefined) return false;
      if (disk.logStart.index >= commit) return true;
      return disk.entries[commit - disk.logStart.index - 1]?.term === term;
    };
    assert.equal(
      jointVote(configuration, holds),
      "won",
      `${term}/${commit} is durable on a quorum when ${leader.id} commits it (I6)`,
    );
  }

  #configurationApplied(member: TestMember, index: LogIndex): void {
    const now = member.configurationAt(index);
    const known = this.#configurations.get(index);
    if (known !== undefined) {
      assert.deepEqual(now, known, `members agree on the configuration at ${index}`);
      return;
    }
    this.#configurations.set(index, now);
    const before = member.configurationAt((index - 1) as LogIndex);
    assert(quorumsIntersect(before, now), `quorums before and after ${index} intersect (I7)`);
  }
}

function assertSameEntry(actual: Entry, expected: Entry, message: string): void {
  assert.equal(actual.term, expected.term, message);
  assert.equal(actual.kind, expected.kind, message);
  assert.deepEqual(actual.data, expected.data, message);
}

/** By brute force: no two disjoint sets of members decide, one in each configuration. */
export function quorumsIntersect(one: Configuration, other: Configuration): boolean {
  const everybody = [...new Set([...one.voters, ...one.outgoing, ...other.voters, ...other.outgoing])];
  for (let set = 0; set < 2 ** everybody.length; set++) {
    const isIn = (id: MemberId): boolean => ((set >> everybody.indexOf(id)) & 1) === 1;
    if (jointVote(one, isIn) === "won" && jointVote(other, (id) => !isIn(id)) === "won") return false;
  }
  return true;
}
