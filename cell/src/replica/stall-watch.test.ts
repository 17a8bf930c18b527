import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Cluster, ELECTION_TICKS } from "./testing/cluster.ts";
import type { TestMember } from "./testing/cluster.ts";

const STALL_TICKS = 3 * ELECTION_TICKS;

function leaders(cluster: Cluster): readonly TestMember[] {
  return cluster.members.filter(({ raft }) => raft.role === "leader");
}

describe("a leader whose disk stalls", () => {
  it("hands over after some election timeouts, and the cell goes on; what it had taken in is answered in the end", () => {
    const cluster = new Cluster();
    const old = cluster.elect(1);
    old.wal.prompt = false;
    const answers = old.put("k");
    cluster.settle();
    cluster.pass(STALL_TICKS - 2);
    assert.equal(old.raft.role, "leader", "not at the first slow write");
    cluster.pass(ELECTION_TICKS);
    const [next] = leaders(cluster);
    assert.ok(next !== undefined && next !== old);
    const later = next.put("l");
    cluster.pass(2);
    assert.deepEqual(later, ["ok"]);
    old.wal.prompt = true;
    old.wal.sync();
    cluster.pass(4);
    assert.deepEqual(answers, ["ok"]);
    assert.deepEqual(old.state.machine.digest, next.state.machine.digest);
  });

  it("keeps leading when nobody else answers", () => {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    leader.wal.prompt = false;
    leader.put("k");
    cluster.settle();
    cluster.lost = ({ from, to }) => from !== 1 && to === 1;
    cluster.pass(ELECTION_TICKS - 2);
    assert.equal(leader.raft.role, "leader");
    assert.deepEqual(leaders(cluster), [leader]);
  });

  it("that is only slow keeps leading: each write that ends begins the count anew", () => {
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    leader.wal.prompt = false;
    for (let round = 0; round < 6; round += 1) {
      leader.put(`k${String(round)}`);
      cluster.settle();
      cluster.pass(2 * ELECTION_TICKS);
      leader.wal.sync();
      cluster.settle();
    }
    assert.deepEqual(leaders(cluster), [leader]);
  });
});
