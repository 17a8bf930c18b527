import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { failures } from "./failures.ts";
import { Readiness } from "./readiness.ts";
import type { PendingRead } from "./reads.ts";

const LEADERLESS_MS = 1_500;
const LOOK_MS = 50;

/** A member whose leader answers its reads when the test says so. */
class World {
  part: "none" | "learner" | "voter" = "voter";
  hasLeader = true;
  isDiverged = false;
  isInstalling = false;
  nowMs = 1_000;
  reads: PendingRead[] = [];
  asked = 0;
  readonly readiness: Readiness;

  constructor() {
    this.readiness = new Readiness({
      leaderlessMsMax: LEADERLESS_MS,
      view: {
        part: () => this.part,
        hasLeader: () => this.hasLeader,
        isDiverged: () => this.isDiverged,
        isInstalling: () => this.isInstalling,
        read: (read) => {
          this.asked += 1;
          this.reads.push(read);
        },
      },
    });
  }

  get reason(): string | undefined {
    return this.readiness.reason(this.nowMs);
  }

  /** What the leader had committed is applied here. */
  answer(): void {
    for (const read of this.reads.splice(0)) read.serve();
  }

  look(): void {
    this.readiness.look(this.nowMs);
  }

  /** @returns every answer on the way. */
  pass(ms: number, { answering }: { readonly answering: boolean }): Set<string | undefined> {
    const reasons = new Set<string | undefined>();
    for (const endMs = this.nowMs + ms; this.nowMs < endMs;) {
      this.nowMs += LOOK_MS;
      for (const read of this.reads.filter(({ deadlineMs }) => deadlineMs <= this.nowMs)) {
        read.fail(failures.deadline("not-applied"));
        this.reads = this.reads.filter((one) => one !== read);
      }
      this.look();
      if (answering) this.answer();
      reasons.add(this.reason);
    }
    return reasons;
  }

  static ready(): World {
    const world = new World();
    world.look();
    world.answer();
    assert.equal(world.reason, undefined);
    return world;
  }
}

describe("readiness", () => {
  it("a restarted voter that knows its leader is not ready before the leader's commit index is applied here", () => {
    const world = new World();
    assert.equal(world.reason, "not caught up with the leader");
    assert.deepEqual([...world.pass(1_000, { answering: false })], ["not caught up with the leader"]);
    world.answer();
    assert.equal(world.reason, undefined);
  });

  it("it is not ready while a state is installed, and afterwards not before the read that follows", () => {
    const world = World.ready();
    world.isInstalling = true;
    assert.equal(world.reason, "taking in the state of another member");
    world.look();
    world.isInstalling = false;
    assert.equal(world.reason, "not caught up with the leader");
    world.look();
    assert.equal(world.asked, 2, "it asks at once, however short ago it asked before");
    world.answer();
    assert.equal(world.reason, undefined);
  });

  it("under load it stays ready: a read that waits some seconds for what is applied changes nothing", () => {
    const world = World.ready();
    for (let round = 0; round < 5; round += 1) {
      assert.deepEqual([...world.pass(3_000, { answering: false })], [undefined]);
      world.answer();
    }
  });

  it("a voter that falls further and further behind its leader is not ready after six seconds", () => {
    const world = World.ready();
    assert.deepEqual([...world.pass(6_000, { answering: false })], [undefined]);
    world.nowMs += LOOK_MS;
    assert.equal(world.reason, "not caught up with the leader");
    assert.deepEqual([...world.pass(20_000, { answering: false })], ["not caught up with the leader"]);
    world.answer();
    assert.equal(world.reason, undefined, "it went on asking");
  });

  it("a process that was stopped for long is not ready when it goes on", () => {
    const world = World.ready();
    world.nowMs += 20_000;
    assert.equal(world.reason, "not caught up with the leader");
  });

  it("a change of leaders does not make it unready, a leader that stays away does", () => {
    const world = World.ready();
    world.hasLeader = false;
    assert.deepEqual([...world.pass(LEADERLESS_MS, { answering: false })], [undefined]);
    world.nowMs += LOOK_MS;
    assert.equal(world.reason, "no leader known");
    world.hasLeader = true;
    world.look();
    assert.equal(world.reason, undefined);
  });

  it("before it ever had a leader it has none", () => {
    const world = new World();
    world.hasLeader = false;
    assert.equal(world.reason, "no leader known");
  });

  it("a ready member asks every two seconds, one that is not a voter never", () => {
    const world = World.ready();
    world.pass(20_000, { answering: true });
    assert.equal(world.asked, 11);
    const learner = new World();
    learner.part = "learner";
    learner.pass(10_000, { answering: true });
    assert.deepEqual([learner.asked, learner.reason], [0, "a learner, not a voter yet"]);
    learner.part = "none";
    assert.equal(learner.reason, "not part of the cell's configuration yet");
  });

  it("members that disagree are not ready, however well they are connected", () => {
    const world = World.ready();
    world.isDiverged = true;
    assert.equal(world.reason, "the members disagree about the state");
  });
});
