import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  acknowledgement,
  Bench,
  bytes,
  entries,
  heartbeat,
  heartbeatAnswer,
  member,
  ofKind,
  voters,
} from "./testing/bench-member.ts";

describe("raft: reads and leases", () => {
  const leader = (): Bench => {
    const bench = new Bench();
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    return bench;
  };

  it("R46: a read waits until an entry of the leader's term is committed", () => {
    const bench = new Bench({ log: entries(2, 1), commit: 2 });
    bench.lead(2);
    bench.node.readIndex(1);
    bench.tick(1);
    bench.step(heartbeatAnswer(2, 2, 1));
    assert.deepEqual(bench.reads, []);
    bench.step(acknowledgement(2, 2, 3));
    bench.step(heartbeatAnswer(2, 2, 2));
    assert.deepEqual(bench.reads, [{ request: 1, index: 3 }]);
  });

  it("R47: an answer to an earlier round confirms no later read", () => {
    const bench = leader();
    bench.tick(1);
    bench.node.readIndex(1);
    bench.settle();
    bench.step(heartbeatAnswer(2, 2, 1));
    bench.step(heartbeatAnswer(3, 2, 1));
    assert.deepEqual(bench.reads, []);
    bench.step(heartbeatAnswer(2, 2, 2));
    assert.deepEqual(bench.reads, [{ request: 1, index: 2 }]);
  });

  it("R47: answers from learners, strangers and the future confirm nothing", () => {
    const configuration = { ...voters(1, 2, 3), learners: [member(4)] };
    const bench = new Bench({ configuration });
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    bench.node.readIndex(1);
    bench.settle();
    for (const from of [4, 9]) bench.step(heartbeatAnswer(from, 2, 1));
    bench.step(heartbeatAnswer(2, 2, 99));
    assert.deepEqual(bench.reads, []);
    bench.step(heartbeatAnswer(3, 2, 1));
    assert.deepEqual(bench.reads.length, 1);
  });

  it("R48: reads of a turn share a round; a read that comes later joins the next, at its commit index", () => {
    const bench = leader();
    bench.node.readIndex(1);
    bench.node.readIndex(2);
    assert.equal(ofKind(bench.settle(), "heartbeat").length, 2);
    bench.node.propose(bytes("x"));
    bench.settle();
    bench.step(acknowledgement(2, 2, 3));
    bench.node.readIndex(3);
    bench.settle();
    bench.step(heartbeatAnswer(2, 2, 2));
    assert.deepEqual(bench.reads, [
      { request: 1, index: 2 },
      { request: 2, index: 2 },
      { request: 3, index: 3 },
    ]);
  });

  it("R47: only a sole voter answers at once", () => {
    const bench = new Bench({ configuration: { ...voters(1), learners: [member(2)] } });
    bench.lead();
    bench.node.readIndex(1);
    bench.settle();
    assert.deepEqual(bench.reads, [{ request: 1, index: 2 }]);
    assert.equal(bench.node.quorumContactTick, bench.node.ticks);
  });

  it("gives up the reads of a leader that steps down, and of a follower whose leader changes", () => {
    const bench = leader();
    bench.node.readIndex(1);
    bench.settle();
    bench.step(heartbeat(3, 3, 1));
    assert.deepEqual(bench.dropped, [1]);
    bench.node.readIndex(2);
    bench.settle();
    bench.step(heartbeat(2, 4, 1));
    assert.deepEqual(bench.dropped, [1, 2]);
  });

  it("takes no answer to a read from before a restart", () => {
    let draw = 0;
    const ask = (): number => {
      const bench = new Bench({ options: { random: () => (draw = (draw + 0.37) % 1) } });
      bench.step(heartbeat(2, 2, 1));
      bench.node.readIndex(7);
      return ofKind(bench.settle(), "read-index")[0]!.request;
    };
    assert.notEqual(ask(), ask());
  });

  it("counts contact from the sending of a round that a quorum answered, not from the answer", () => {
    const bench = leader();
    assert.equal(bench.node.quorumContactTick, -1);
    bench.tick(1);
    const sentAt = bench.node.ticks;
    bench.tick(2);
    assert.equal(bench.node.quorumContactTick, -1, "nobody has answered");
    bench.step(heartbeatAnswer(2, 2, 1));
    assert.equal(bench.node.quorumContactTick, sentAt);
    bench.step(heartbeatAnswer(3, 2, 3));
    assert.equal(bench.node.quorumContactTick, sentAt + 2);
    bench.step(heartbeat(3, 3, 1));
    assert.equal(bench.node.quorumContactTick, -1, "its term is over");
  });
});
