import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { MemberId } from "../raft/types.ts";
import { Cluster } from "./testing/cluster.ts";

const FIRST = 1 as MemberId;
const TICK_MS = 10;

/** Member 1 led and is gone; the others have just noticed, and will both ask for votes at their next tick. */
function survivors(): Cluster {
  const cluster = new Cluster();
  cluster.elect(1);
  cluster.pass(2);
  cluster.lost = (message) => message.from === 1 || message.to === 1;
  for (const id of [2, 3]) cluster.member(id).replica.peerLost(FIRST);
  return cluster;
}

describe("the leader's death, noticed by both others", () => {
  it("they ask in the same instant: one of them leads before any election timeout", () => {
    const cluster = survivors();
    const { term } = cluster.member(2).raft;
    cluster.pass(2);
    assert.deepEqual([cluster.member(2).raft.role, cluster.member(2).raft.term], ["leader", term + 1]);
    assert.equal(cluster.member(3).raft.leader, 2);
  });

  it("one is being elected and waits for its own disk: who voted for it does not ask, and so does not depose it", () => {
    const cluster = survivors();
    const [candidate, voter] = [cluster.member(2), cluster.member(3)];
    const { term } = candidate.raft;
    candidate.wal.prompt = false;
    cluster.nowMs += TICK_MS;
    candidate.replica.tick();
    cluster.settle();
    assert.deepEqual(
      [candidate.raft.role, voter.raft.term],
      ["candidate", term + 1],
      "it has the other's vote",
    );
    voter.replica.tick();
    cluster.settle();
    candidate.wal.prompt = true;
    candidate.wal.sync();
    cluster.settle();
    assert.deepEqual([candidate.raft.role, candidate.raft.term], ["leader", term + 1]);
    cluster.pass(3);
    assert.deepEqual([candidate.raft.role, candidate.raft.term], ["leader", term + 1]);
    assert.equal(voter.raft.leader, 2);
  });

  it("who promised to one that dies asks by itself once its time is over", () => {
    const cluster = survivors();
    cluster.nowMs += TICK_MS;
    cluster.member(3).replica.tick();
    cluster.settle();
    assert.equal(cluster.member(3).raft.role, "leader");
    const { term } = cluster.member(2).raft;
    cluster.lost = (message) => message.from === 3 || message.to === 3;
    cluster.member(2).replica.peerLost(3 as MemberId);
    cluster.pass(30);
    assert.ok(cluster.member(2).raft.term > term || cluster.member(1).raft.term > term);
    assert.ok([1, 2].some((id) => cluster.member(id).raft.role === "leader"));
  });
});
