import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { encodePlan } from "../machine/membership.ts";
import type { LogIndex, MemberId, Term } from "../raft/types.ts";
import { Cluster, ELECTION_TICKS } from "./testing/cluster.ts";
import type { TestMember } from "./testing/cluster.ts";

/** Proposes to remove member 3. @returns where the decision will be. */
function removeThird(leader: TestMember): string[] {
  const decisions: string[] = [];
  const proposed = leader.raft.proposeConfiguration({
    transition: "auto",
    steps: [{ kind: "remove", id: 3 as MemberId }],
    context: encodePlan({ plannedOn: 1 as LogIndex }),
  });
  assert.ok(proposed.ok);
  leader.replica.onConfigurationDecided(proposed.index, (term, outcome) => {
    const whose = term === undefined ? "nobody knows" : term === proposed.term ? "ours" : "another's";
    decisions.push(
      outcome === undefined ? whose : `${whose} ${outcome.accepted ? "accepted" : outcome.reason}`,
    );
  });
  leader.replica.pump();
  return decisions;
}

describe("replica", () => {
  it("a command is answered once it is committed and applied, and every member applies it", () => {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    const answers = leader.put("k");
    cluster.settle();
    assert.deepEqual(answers, ["ok"]);
    cluster.pass(2);
    for (const member of cluster.members) assert.equal(member.state.machine.revision, 2);
  });

  it("R1, W13: without its followers' disks nothing is answered, without its own nothing is applied", () => {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    for (const member of cluster.members) member.wal.prompt = false;
    const answers = leader.put("k");
    cluster.settle();
    assert.deepEqual(answers, []);
    cluster.member(2).wal.sync();
    cluster.member(3).wal.sync();
    cluster.settle();
    assert.deepEqual(answers, [], "committed by the others, not durable here");
    leader.wal.sync();
    cluster.settle();
    assert.deepEqual(answers, ["ok"]);
  });

  it("R53: a command that another leader's entry replaced was not applied", () => {
    const cluster = new Cluster();
    const old = cluster.elect(1);
    cluster.lost = (message) => message.from === 1 || message.to === 1;
    const answers = old.put("k");
    cluster.settle();
    cluster.elect(2).put("other");
    cluster.settle();
    assert.deepEqual(answers, []);
    cluster.lost = () => false;
    cluster.pass(5);
    assert.deepEqual(answers, ["leader-changed not-applied"]);
  });

  it("a deposed leader's sessions end before it applies what its successor committed", () => {
    const cluster = new Cluster();
    const old = cluster.elect(1);
    cluster.pass(2);
    // The entry is on all disks; the old leader does not hear that it is.
    cluster.lost = (message) => message.to === 1;
    old.put("k");
    cluster.settle();
    let leading: boolean | undefined;
    old.replica.listen({ applied: () => (leading ??= old.leadership.leadsSessions) });
    const { raft } = cluster.elect(2);
    const last = old.raft.lastIndex;
    // The first that the old leader hears of its successor says that the entry is committed.
    const [prevIndex, prevTerm] = [last, old.raft.termAt(last) ?? (0 as Term)];
    old.replica.receive([
      {
        ...{ kind: "append", from: 2 as MemberId, to: 1 as MemberId, term: raft.term, commit: last },
        ...{ prevIndex, prevTerm, entries: [] },
      },
    ]);
    cluster.settle();
    assert.equal(old.state.machine.revision, 2);
    assert.equal(leading, false);
  });

  it("a membership change is decided by the entry that is applied at its index, whatever it is", () => {
    const cluster = new Cluster();
    const old = cluster.elect(1);
    cluster.pass(2);
    const accepted = removeThird(old);
    cluster.settle();
    assert.deepEqual(accepted, ["ours accepted"]);

    const other = new Cluster();
    const deposed = other.elect(1);
    other.pass(2);
    other.lost = (message) => message.from === 1 || message.to === 1;
    const replaced = removeThird(deposed);
    other.elect(2);
    other.lost = () => false;
    other.pass(3);
    assert.deepEqual(replaced, ["another's"], "an empty entry took its place");
  });

  it("closing tells whoever waits for a membership change that its fate is open", () => {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    cluster.pass(2);
    cluster.lost = () => true;
    const decisions = removeThird(leader);
    leader.replica.close();
    assert.deepEqual(decisions, ["nobody knows"]);
  });

  it("W8: a voter short of space stops growth while it is there to say so, not after its death", () => {
    const cluster = new Cluster();
    const { replica } = cluster.elect(1);
    const { space, state } = replica.parts;
    const anyLow = (): boolean => space.anyLow(state.membership.configuration.voters);
    const notice = { digestIndex: -1, digestHash: 0, spaceLow: true, formatVersionMax: 1 };
    replica.notice(2 as MemberId, notice);
    assert.equal(anyLow(), true);
    replica.peerLost(3 as MemberId);
    assert.equal(anyLow(), true);
    replica.peerLost(2 as MemberId);
    assert.equal(anyLow(), false);
    replica.notice(2 as MemberId, notice);
    assert.equal(anyLow(), true);
  });

  it("R48: a read whose leader is lost is asked again, and shows everything acknowledged before it", () => {
    const cluster = new Cluster();
    const old = cluster.elect(1);
    cluster.pass(2);
    const follower = cluster.member(3);
    cluster.lost = (message) => message.to === 3 || message.from === 3;
    const answers = old.put("k");
    cluster.settle();
    assert.deepEqual(answers, ["ok"]);
    cluster.lost = (message) => message.from === 1 || message.to === 1;
    let seen: number | undefined;
    follower.replica.read({
      serve: () => (seen = follower.state.machine.revision),
      fail: () => assert.fail("it has time"),
      deadlineMs: Infinity,
    });
    cluster.settle();
    assert.equal(seen, undefined);
    cluster.elect(2);
    cluster.pass(ELECTION_TICKS * 3);
    assert.equal(seen, 2);
  });
});

describe("a member far behind", () => {
  /** Member 3 misses what members 1 and 2 commit and drop from their logs. */
  async function installed(during: (behind: TestMember, cluster: Cluster) => void): Promise<Cluster> {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    cluster.pass(2);
    const behind = cluster.member(3);
    cluster.lost = (message) => message.to === 3 || message.from === 3;
    for (let at = 0; at < 5; at += 1) {
      leader.put(`k${String(at)}`, "v");
      cluster.settle();
    }
    leader.raft.compact(leader.state.appliedIndex);
    during(behind, cluster);
    cluster.lost = () => false;
    for (let round = 0; round < 100 && behind.state.machine.revision < 6; round += 1) {
      cluster.pass(1);
      await new Promise((resolve) => setImmediate(resolve));
    }
    cluster.pass(2);
    return cluster;
  }

  it("W14: gets the state, marks it in its log, and goes on with what follows", async () => {
    const cluster = await installed(() => undefined);
    const [leader, behind] = [cluster.member(1), cluster.member(3)];
    assert.equal(behind.state.machine.revision, 6);
    assert.deepEqual(behind.state.machine.digest, leader.state.machine.digest);
    const marker = behind.wal.writes.findLastIndex((write) => write.snapshot !== undefined);
    assert.notEqual(marker, -1);
    leader.put("after");
    cluster.pass(2);
    assert.equal(behind.state.machine.revision, 7);
    assert.deepEqual([...leader.fatal, ...behind.fatal], []);
  });

  it("reads that waited for a point which the state covers are served from it", async () => {
    let seen: number | undefined;
    const cluster = await installed((behind) => {
      behind.replica.read({
        serve: () => (seen = behind.state.machine.revision),
        fail: () => assert.fail("it has time"),
        deadlineMs: Infinity,
      });
    });
    for (let second = 0; second < 3; second += 1) {
      cluster.nowMs += 1000;
      cluster.pass(2);
    }
    assert.equal(seen, 6);
  });
});
