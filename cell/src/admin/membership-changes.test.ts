import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, MemberId } from "../raft/types.ts";
import { Cluster } from "../replica/testing/cluster.ts";
import { MembershipChanges } from "./membership-changes.ts";
import { decided } from "./testing/decided.ts";

const id = (n: number): MemberId => n as MemberId;
const CHANGE = { plannedOn: 1 as LogIndex, promote: [], demote: [], remove: [], force: false };

class World {
  readonly cluster = new Cluster();
  readonly changes: MembershipChanges;

  constructor() {
    const leader = this.cluster.elect(1);
    this.cluster.pass(2);
    this.changes = new MembershipChanges(leader.replica);
  }

  decided<T>(wanted: Promise<T>): Promise<T | string> {
    return decided(this.cluster, wanted);
  }

  /** The moment at which the leader has just begun to count signs of life anew. */
  startOver(): void {
    const leader = this.cluster.member(1);
    for (let tick = 0; tick < 100; tick += 1) {
      this.cluster.nowMs += 10;
      leader.replica.tick();
      if (leader.raft.status().progress.every(({ id: peer, recentActive }) => peer === 1 || !recentActive))
        return;
      this.cluster.settle();
    }
    assert.fail("the leader counts anew every election timeout");
  }
}

describe("membership changes", () => {
  it("a change on a healthy cell takes effect, and another planned on the same configuration does not", async () => {
    const { changes, cluster, decided } = bound(new World());
    const removed = await decided(changes.change({ ...CHANGE, remove: [id(3)] }));
    assert.ok(typeof removed === "object");
    assert.deepEqual(removed.configuration.voters, [1, 2]);
    assert.deepEqual(cluster.member(2).state.membership.removedIds, [3]);
    assert.equal(await decided(changes.change({ ...CHANGE, remove: [id(2)] })), "stale-plan");
  });

  it("what would cost the majority is refused, and forced only when asked to", async () => {
    const { changes, cluster, decided } = bound(new World());
    cluster.lost = (message) => message.from === 2 || message.to === 2;
    cluster.pass(15);
    assert.equal(await decided(changes.change({ ...CHANGE, remove: [id(3)] })), "unhealthy-cell");
    const forced = await decided(changes.change({ ...CHANGE, remove: [id(3)], force: true }));
    assert.ok(typeof forced === "object");
  });

  it("a voter that has not got the configuration in force does not count: it may know none of those that stay", async () => {
    const { changes, cluster, decided } = bound(new World());
    // Its heartbeats and answers come through, entries do not.
    cluster.lost = (message) => message.to === 4 || (message.to === 2 && message.kind === "append");
    const absent = { client: "", http: "", peer: "", admin: "", ops: "" };
    const request = { name: "late", incarnation: "4", addresses: absent, plannedOn: 0 as LogIndex };
    await decided(changes.addLearner(request));
    const plannedOn = cluster.member(1).state.membership.configurationIndex;
    assert.equal(await decided(changes.change({ ...CHANGE, plannedOn, remove: [id(3)] })), "unhealthy-cell");
    cluster.lost = (message) => message.to === 4;
    cluster.pass(30);
    assert.ok(typeof (await decided(changes.change({ ...CHANGE, plannedOn, remove: [id(3)] }))) === "object");
  });

  it("B13, B15: a learner that never started is not promoted, and stands in nobody's way", async () => {
    const { changes, cluster, decided } = bound(new World());
    cluster.lost = (message) => message.to === 4;
    const absent = { client: "", http: "", peer: "", admin: "", ops: "" };
    const request = { name: "late", incarnation: "4", addresses: absent, plannedOn: 0 as LogIndex };
    const added = await decided(changes.addLearner(request));
    assert.ok(typeof added === "object" && added.id === 4);
    const plannedOn = cluster.member(1).state.membership.configurationIndex;
    assert.equal(
      await decided(changes.change({ ...CHANGE, plannedOn, promote: [id(4)] })),
      "learner-not-ready",
    );
    const { configuration } = cluster.member(1).state.membership;
    assert.deepEqual([configuration.voters, configuration.learners], [[1, 2, 3], [4]]);
    const removed = await decided(changes.change({ ...CHANGE, plannedOn, remove: [id(3)] }));
    assert.ok(typeof removed === "object");
  });

  it("members are not called dead in the moment in which signs of life are counted anew", async () => {
    const world = new World();
    const reading = world.changes.current();
    world.cluster.settle();
    await reading;
    world.startOver();
    assert.equal(await world.decided(world.changes.transferLeadership(id(0))), 2);

    const other = new World();
    other.startOver();
    const changed = await other.decided(other.changes.change({ ...CHANGE, remove: [id(3)] }));
    assert.ok(typeof changed === "object");
  });

  it("a transfer says who leads then, or that its time is up", async () => {
    const { changes, cluster, decided } = bound(new World());
    assert.equal(await decided(changes.transferLeadership(id(3))), 3);
    assert.equal(await decided(changes.transferLeadership(id(2))), "not-leader");
    const later = new MembershipChanges(cluster.member(3).replica);
    cluster.lost = (message) => message.kind === "timeout-now";
    assert.equal(await decided(later.transferLeadership(id(1), 300)), "timeout");
  });
});

function bound(world: World): Pick<World, "changes" | "cluster" | "decided"> {
  return { changes: world.changes, cluster: world.cluster, decided: (wanted) => world.decided(wanted) };
}
