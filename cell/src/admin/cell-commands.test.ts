import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, MemberId } from "../raft/types.ts";
import { Cluster } from "../replica/testing/cluster.ts";
import { AdminError } from "./admin-error.ts";
import { CellCommands } from "./cell-commands.ts";
import { decided } from "./testing/decided.ts";

const on = (index: number): LogIndex => index as LogIndex;

class World {
  readonly cluster = new Cluster();
  readonly leader: CellCommands;
  readonly follower: CellCommands;

  constructor() {
    const leader = this.cluster.elect(1);
    this.cluster.pass(2);
    this.leader = new CellCommands(leader.replica);
    this.follower = new CellCommands(this.cluster.member(2).replica);
  }

  decided<T>(wanted: Promise<T>): Promise<T | string> {
    return decided(this.cluster, wanted);
  }
}

describe("namespaces by the admin API", () => {
  it("are created and deleted on all members, and a repeat does no harm", async () => {
    const world = new World();
    const { leader, follower } = world;
    const made = await world.decided(leader.createNamespace("team", "u1"));
    assert.ok(typeof made === "object");
    assert.deepEqual([made.name, made.uid, made.epoch], ["team", "u1", 1]);
    assert.deepEqual(await world.decided(leader.createNamespace("team", "u1")), made);
    const listed = await world.decided(follower.namespaces());
    assert.ok(typeof listed === "object");
    assert.deepEqual(
      listed.map(({ name, uid }) => [name, uid]),
      [
        ["default", ""],
        ["team", "u1"],
      ],
    );
    assert.equal(await world.decided(leader.deleteNamespace("team", "u1")), true);
    assert.equal(await world.decided(leader.deleteNamespace("team", "u1")), false);
  });

  it("are refused with a code each", async () => {
    const world = new World();
    const { leader, follower } = world;
    await world.decided(leader.createNamespace("team", "u1"));
    assert.equal(await world.decided(leader.createNamespace("team", "u2")), "namespace-exists");
    assert.equal(await world.decided(leader.deleteNamespace("team", "u2")), "namespace-exists");
    assert.equal(await world.decided(leader.createNamespace("Team", "u1")), "invalid-argument");
    assert.equal(await world.decided(leader.deleteNamespace("default", "")), "invalid-argument");
    await assert.rejects(follower.createNamespace("late", "u1"), (error: unknown) => {
      return error instanceof AdminError && error.code === "not-leader" && error.leaderAdmin !== undefined;
    });
  });
});

describe("the format version", () => {
  it("that is in force already is the answer, whatever it was planned on", async () => {
    const world = new World();
    assert.equal(await world.decided(world.leader.raiseFormatVersion(1, on(0))), 1);
  });

  it("is not lowered, nor raised beyond what the leader or a member that said so applies, nor on an old plan", async () => {
    const world = new World();
    const { leader, cluster } = world;
    const plannedOn = cluster.member(1).state.membership.configurationIndex;
    assert.equal(await world.decided(leader.raiseFormatVersion(0, plannedOn)), "format-version");
    assert.equal(await world.decided(leader.raiseFormatVersion(2, plannedOn)), "format-version");
    assert.equal(await world.decided(leader.raiseFormatVersion(2, on(plannedOn + 1))), "stale-plan");
    const { replica } = cluster.member(1);
    const newer = new CellCommands(withFormat(replica, 2));
    replica.hearing.told(2 as MemberId, 1);
    assert.equal(await world.decided(newer.raiseFormatVersion(2, plannedOn)), "format-version");
    assert.equal(await world.decided(world.follower.raiseFormatVersion(2, plannedOn)), "not-leader");
  });
});

/** The replica of a program that applies newer formats. */
function withFormat<T extends { readonly parts: object }>(replica: T, formatVersionMax: number): T {
  return new Proxy(replica, {
    get(target, name) {
      if (name === "parts") return { ...target.parts, formatVersionMax };
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
