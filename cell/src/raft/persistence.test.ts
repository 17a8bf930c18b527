import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvariantError } from "../invariant.ts";
import { createRaft } from "./index.ts";
import {
  acknowledgement,
  append,
  Bench,
  bytes,
  entries,
  heartbeat,
  index,
  member,
  ofKind,
  preVoteGrant,
  term,
  voteGrant,
  voteRequest,
  voters,
} from "./testing/bench-member.ts";

const broken = (pattern: RegExp) => (error: unknown) =>
  error instanceof InvariantError && pattern.test(error.message);

describe("raft: persistence", () => {
  it("R1: a vote leaves only when term and vote are durable, a refusal too", () => {
    const bench = new Bench();
    bench.holdDisk = true;
    assert.deepEqual(bench.step(voteRequest(2, 5, [1, 1])), []);
    assert.deepEqual(bench.appends[0]?.hardState, { term: 5, vote: 2, commit: 1 });
    assert.equal(bench.appends[0].mustSync, true);
    assert.deepEqual(bench.step(voteRequest(3, 5, [1, 1])), []);
    bench.finishWrites();
    const answers = ofKind(bench.sent, "vote-response");
    assert.deepEqual(
      answers.map(({ to, granted }) => [to, granted]),
      [
        [2, true],
        [3, false],
      ],
    );
  });

  it("R1: after a crash before the fsync the vote is free again, after it it is not", () => {
    const forgetful = new Bench();
    forgetful.holdDisk = true;
    forgetful.step(voteRequest(2, 5, [1, 1]));
    assert.equal(forgetful.sent.length, 0, "nobody has seen the vote that is lost");
    const restarted = new Bench({ term: 5, vote: 2 });
    const [answer] = ofKind(restarted.step(voteRequest(3, 5, [1, 1])), "vote-response");
    assert.equal(answer?.granted, false);
    const [again] = ofKind(restarted.step(voteRequest(2, 5, [1, 1])), "vote-response");
    assert.equal(again?.granted, true, "the same candidate may ask twice");
  });

  it("R2: a commit index alone needs no fsync, and is not written more than once a tick", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 1) });
    bench.step(append(2, 1, [1, 4], { commit: 2 }));
    bench.holdDisk = true;
    bench.step(append(2, 1, [1, 4], { commit: 3 }));
    assert.equal(bench.appends.length, 0);
    bench.tick(1);
    assert.deepEqual(
      bench.appends.map(({ mustSync, hardState }) => [mustSync, hardState?.commit]),
      [[false, 3]],
    );
  });

  it("R2, R55: a persisted commit index behind the applied one is brought up to it", () => {
    const bench = new Bench({ log: entries(2, 1, 1), commit: 1, applied: 3 });
    assert.equal(bench.node.commit, 3);
    bench.settle();
    assert.deepEqual(bench.delivered, [], "what was applied is not handed out again");
  });

  it("R3: a candidate counts its own vote only when it is durable", () => {
    const bench = new Bench({ configuration: voters(1) });
    bench.holdDisk = true;
    bench.tick(10);
    assert.equal(bench.node.role, "candidate");
    bench.tick(5);
    assert.equal(bench.node.role, "candidate");
    bench.finishWrites();
    assert.equal(bench.node.role, "leader");
  });

  it("R3: a vote for oneself that completes in a later term elects nobody", () => {
    const bench = new Bench();
    bench.node.campaign();
    bench.settle();
    bench.holdDisk = true;
    bench.step(preVoteGrant(2, 2));
    assert.equal(bench.node.role, "candidate");
    bench.step(voteGrant(2, 2));
    assert.equal(bench.node.role, "candidate", "one of three, its own is under way");
    bench.step(heartbeat(3, 3, 1));
    bench.finishWrites();
    assert.equal(bench.node.role, "follower");
    assert.equal(bench.node.term, 3);
  });

  it("R3: a leader counts its own entries only when they are durable", () => {
    const bench = new Bench();
    bench.lead(2, 3);
    bench.holdDisk = true;
    bench.node.propose(bytes("x"));
    bench.settle();
    bench.step(acknowledgement(2, 2, 2));
    assert.equal(bench.node.commit, 2);
    bench.step(acknowledgement(2, 2, 3));
    assert.equal(bench.node.commit, 2, "one follower of three, and nothing here");
    bench.finishWrites();
    assert.equal(bench.node.commit, 3);
  });

  it("R4, W13: a quorum of others commits first, and the entry is applied when it is durable here", () => {
    const bench = new Bench();
    bench.lead(2, 3);
    for (const peer of [2, 3]) bench.step(acknowledgement(peer, 2, 2));
    bench.holdDisk = true;
    bench.node.propose(bytes("x"));
    const sent = ofKind(bench.settle(), "append");
    assert.equal(sent.filter(({ entries: [first] }) => first?.index === 3).length, 2);
    bench.step(acknowledgement(2, 2, 3));
    bench.step(acknowledgement(3, 2, 3));
    assert.equal(bench.node.commit, 3);
    assert.deepEqual(
      bench.delivered.map((entry) => entry.index),
      [2],
    );
    bench.finishWrites();
    bench.settle();
    assert.deepEqual(
      bench.delivered.map((entry) => entry.index),
      [2, 3],
    );
  });

  it("R6: the completion of an overwritten append makes nothing above the cut durable", () => {
    const bench = new Bench();
    bench.settle();
    bench.holdDisk = true;
    bench.step(append(2, 2, [1, 1], { entries: entries(2, 2, 2, 2) }));
    bench.step(append(3, 3, [2, 2], { entries: entries(3, 3) }));
    assert.equal(bench.node.stableIndex, 1);
    bench.finishWrites(1);
    assert.equal(bench.node.stableIndex, 2, "2/2 is shared by both, 2/3 is gone");
    bench.finishWrites(1);
    assert.equal(bench.node.stableIndex, 3);
  });

  it("R5: appends are reported in hand-out order, or the member stops", () => {
    const bench = new Bench();
    bench.holdDisk = true;
    bench.step(append(2, 2, [1, 1], { entries: entries(2, 2) }));
    bench.step(append(2, 2, [2, 2], { entries: entries(3, 2) }));
    assert.throws(() => bench.node.appended(bench.appends[1]!.token), broken(/hand-out order/));
  });

  it("R8: committed entries outstanding are bounded in bytes, and one always goes", () => {
    const big = { ...entries(2, 1)[0]!, data: new Uint8Array(500) };
    const log = [big, ...entries(3, 1, 1, 1)];
    const bench = new Bench({ log, commit: 5, options: { applyBytesMax: 100 } });
    bench.holdApply = true;
    bench.settle();
    assert.deepEqual(
      bench.delivered.map((entry) => entry.index),
      [2],
    );
    bench.node.applied(index(2));
    bench.settle();
    assert.deepEqual(
      bench.delivered.map((entry) => entry.index),
      [2, 3, 4, 5],
    );
  });

  it("W9, W12, R9: contradicting states are refused at the start", () => {
    assert.throws(() => new Bench({ log: entries(2, 1), applied: 3 }), broken(/applied <= last index/));
    assert.throws(() => new Bench({ log: entries(2, 1), commit: 3 }), broken(/commit index lies within/));
    assert.throws(() => new Bench({ log: entries(2, 5), term: 4 }), broken(/term is not behind/));
    const start = { logStart: { index: index(0), term: term(0) }, entries: [], applied: index(0) };
    const options = { id: member(1), random: () => 0 };
    assert.throws(() => createRaft(options, { ...start, configuration: voters(1) }), broken(/R45/));
  });
});
