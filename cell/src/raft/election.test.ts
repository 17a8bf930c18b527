import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvariantError } from "../invariant.ts";
import { EMPTY_CONFIGURATION } from "./index.ts";
import {
  append,
  Bench,
  entries,
  heartbeat,
  index,
  member,
  ofKind,
  preVoteGrant,
  voteGrant,
  term,
  voteRequest,
  voters,
} from "./testing/bench-member.ts";
import { parseChange } from "./testing/story.ts";

const broken = (pattern: RegExp) => (error: unknown) =>
  error instanceof InvariantError && pattern.test(error.message);

describe("raft: elections", () => {
  it("raft §5.4.1: a vote goes only to a log at least as up to date, by term first", () => {
    const log = entries(2, 1, 2, 2);
    for (const [last, granted] of [
      [[2, 4], true],
      [[2, 5], true],
      [[3, 2], true],
      [[2, 3], false],
      [[1, 9], false],
    ] as const) {
      const [answer] = ofKind(new Bench({ log }).step(voteRequest(2, 3, last)), "vote-response");
      assert.equal(answer?.granted, granted, last.join("/"));
    }
  });

  it("R11: one vote a term, none once the leader of the term is known", () => {
    const bench = new Bench();
    bench.step(append(2, 2, [1, 1]));
    bench.node.forgetLeader();
    const [free] = ofKind(bench.step(voteRequest(3, 2, [1, 1])), "vote-response");
    assert.equal(free?.granted, true, "it never voted in this term");
    bench.step(heartbeat(2, 2, 1));
    const other = new Bench();
    other.step(append(2, 2, [1, 1]));
    const [answer] = ofKind(other.step(voteRequest(3, 2, [1, 1])), "vote-response");
    assert.equal(answer?.granted, false);
  });

  it("R12: a pre-vote changes neither term nor vote, and a late grant of an earlier one is not counted", () => {
    const bench = new Bench();
    const [answer] = ofKind(bench.step(voteRequest(2, 9, [1, 1], { kind: "pre-vote" })), "pre-vote-response");
    assert.deepEqual([answer?.granted, answer?.term, bench.node.term], [true, 9, 1]);
    assert.equal(bench.node.status().vote, 0);
    bench.node.campaign();
    bench.settle();
    bench.step(preVoteGrant(2, 9));
    assert.equal(bench.node.role, "pre-candidate", "a grant for another term");
    bench.step(preVoteGrant(2, 2));
    assert.equal(bench.node.role, "candidate");
  });

  it("R12: a pre-vote of an earlier term is refused, not dropped; a vote is dropped", () => {
    const bench = new Bench({ term: 5 });
    const [answer] = ofKind(bench.step(voteRequest(2, 3, [1, 1], { kind: "pre-vote" })), "pre-vote-response");
    assert.deepEqual([answer?.granted, answer?.term], [false, 5]);
    assert.deepEqual(bench.step(voteRequest(2, 3, [1, 1])), []);
  });

  it("R13: who hears its leader ignores campaigns, except one the leader ordered", () => {
    const bench = new Bench();
    bench.step(heartbeat(2, 2, 1));
    assert.deepEqual(bench.step(voteRequest(3, 9, [9, 9], { kind: "pre-vote" })), []);
    assert.deepEqual(bench.step(voteRequest(3, 9, [9, 9])), []);
    assert.equal(bench.node.term, 2);
    const [answer] = ofKind(bench.step(voteRequest(3, 3, [9, 9], { transfer: true })), "vote-response");
    assert.equal(answer?.granted, true);
  });

  it("R14: a leader of an earlier term is answered at the present one", () => {
    const bench = new Bench({ term: 5 });
    for (const message of [append(2, 3, [1, 1]), heartbeat(2, 3, 1)]) {
      const [answer] = ofKind(bench.step(message), "append-response");
      assert.deepEqual([answer?.to, answer?.term], [2, 5]);
    }
  });

  it("R16, R17: learners and strangers vote but do not campaign", () => {
    const learner = { ...voters(2, 3), learners: [member(1)] };
    for (const configuration of [learner, voters(2, 3), EMPTY_CONFIGURATION]) {
      const bench = new Bench({ configuration });
      bench.tick(30);
      bench.node.campaign();
      bench.settle();
      assert.equal(bench.node.role, "follower");
      const [answer] = ofKind(bench.step(voteRequest(2, 5, [1, 1])), "vote-response");
      assert.equal(answer?.granted, true);
    }
  });

  it("R18: no campaign over a committed change that is not applied, by timer, call or order", () => {
    const bench = new Bench({ log: entries(2, ["r3"]), commit: 2 });
    bench.holdApply = true;
    bench.tick(30);
    bench.node.campaign();
    bench.step({ kind: "timeout-now", from: member(2), to: member(1), term: term(1) });
    assert.equal(bench.node.role, "follower");
    assert.equal(bench.node.term, 1);
    bench.node.applyConfiguration(index(2), parseChange(["r3"]));
    bench.node.applied(index(2));
    bench.node.campaign();
    bench.settle();
    assert.equal(bench.node.role, "pre-candidate");
  });

  it("R18: a change that is vetoed blocks no longer; an uncommitted one never did", () => {
    const vetoed = new Bench({ log: entries(2, ["r3"]), commit: 2 });
    vetoed.holdApply = true;
    vetoed.settle();
    vetoed.node.refuseConfiguration(index(2));
    vetoed.node.campaign();
    assert.equal(vetoed.node.role, "pre-candidate");
    assert.deepEqual(vetoed.node.status().configuration, voters(1, 2, 3));
    const uncommitted = new Bench({ log: entries(2, ["r3"]) });
    uncommitted.node.campaign();
    assert.equal(uncommitted.node.role, "pre-candidate");
  });

  it("R18: a candidate that learns of a committed change by a refusal stops counting votes", () => {
    const bench = new Bench({ log: entries(2, ["r3"]) });
    bench.holdApply = true;
    bench.node.campaign();
    bench.settle();
    const committed = { index: index(2), term: term(1) };
    const refusal = { kind: "pre-vote-response", from: member(3), to: member(1), granted: false } as const;
    bench.step({ ...refusal, term: term(1), committed: { ...committed, term: term(7) } });
    assert.equal(bench.node.commit, 1, "another entry at that index proves nothing");
    bench.step({ ...refusal, term: term(0), committed });
    assert.equal(bench.node.commit, 2);
    assert.equal(bench.node.role, "follower");
  });

  it("R20: a majority of refusals ends a campaign in its term", () => {
    const bench = new Bench();
    bench.node.campaign();
    bench.settle();
    bench.step(preVoteGrant(2, 2));
    bench.step({ ...voteGrant(2, 2), granted: false });
    assert.equal(bench.node.role, "candidate");
    bench.step({ ...voteGrant(3, 2), granted: false });
    assert.deepEqual([bench.node.role, bench.node.term], ["follower", 2]);
  });

  it("I1: two leaders in one term stop the member that sees it", () => {
    const bench = new Bench();
    bench.step(heartbeat(2, 2, 1));
    assert.throws(() => bench.step(heartbeat(3, 2, 1)), broken(/one term has one leader/));
  });

  it("R50: forgetting the leader keeps the term and lets a pre-vote through", () => {
    const bench = new Bench();
    bench.step(heartbeat(2, 2, 1));
    bench.node.forgetLeader();
    assert.deepEqual([bench.node.leader, bench.node.term], [0, 2]);
    const [answer] = ofKind(bench.step(voteRequest(3, 3, [1, 1], { kind: "pre-vote" })), "pre-vote-response");
    assert.equal(answer?.granted, true);
  });
});
