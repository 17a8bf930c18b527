import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex } from "../raft/types.ts";
import { ReadRounds } from "./reads.ts";

const at = (index: number): LogIndex => index as LogIndex;

/** A core that is asked for read points; turns end when the test says so. */
class World {
  leader = true;
  applied = 0;
  /** Numbers of the rounds asked for. */
  readonly asked: number[] = [];
  readonly answers: string[] = [];
  readonly #turn: (() => void)[] = [];
  readonly reads = new ReadRounds({
    readIndex: (request) => void this.asked.push(request),
    hasLeader: () => this.leader,
    appliedIndex: () => at(this.applied),
    schedule: (task) => void this.#turn.push(task),
    pump: () => undefined,
  });

  read(name: string, deadlineMs = 1000): void {
    this.reads.add({
      serve: () => void this.answers.push(`${name}@${this.applied}`),
      fail: ({ code, outcome }) => void this.answers.push(`${name} ${code} ${outcome}`),
      deadlineMs,
    });
  }

  endTurn(): void {
    for (const task of this.#turn.splice(0)) task();
  }

  apply(index: number): void {
    this.applied = index;
    this.reads.appliedTo(at(index));
  }
}

describe("read rounds", () => {
  it("the reads of a turn share a round", () => {
    const world = new World();
    world.read("a");
    world.read("b");
    world.endTurn();
    assert.deepEqual(world.asked, [1]);
    world.reads.confirmed(1, at(0));
    assert.deepEqual(world.answers, ["a@0", "b@0"]);
    assert.equal(world.reads.pending, 0);
  });

  it("R48: a read that comes after a round left is answered by a later one", () => {
    const world = new World();
    world.read("a");
    world.endTurn();
    world.read("b");
    world.reads.confirmed(1, at(0));
    assert.deepEqual(world.answers, ["a@0"]);
    world.endTurn();
    world.reads.confirmed(2, at(0));
    assert.deepEqual(world.answers, ["a@0", "b@0"]);
  });

  it("R48: a read is served once its point is applied here, not before", () => {
    const world = new World();
    world.read("a");
    world.endTurn();
    world.reads.confirmed(1, at(7));
    world.apply(6);
    assert.deepEqual(world.answers, []);
    world.apply(9);
    assert.deepEqual(world.answers, ["a@9"]);
  });

  it("R47: the answer to a round that was given up confirms nothing; its reads ask under a new number", () => {
    const world = new World();
    world.read("a");
    world.endTurn();
    world.reads.askAgain();
    world.endTurn();
    assert.deepEqual(world.asked, [1, 2]);
    world.reads.confirmed(1, at(0));
    assert.deepEqual(world.answers, []);
    world.reads.confirmed(2, at(0));
    assert.deepEqual(world.answers, ["a@0"]);
  });

  it("without a leader reads wait for one, or for their deadlines", () => {
    const world = new World();
    world.read("late", 10);
    world.read("a");
    world.endTurn();
    world.leader = false;
    world.reads.dropped(1);
    world.endTurn();
    assert.deepEqual(world.asked, [1]);
    world.reads.expire(10);
    assert.deepEqual(world.answers, ["late deadline-exceeded not-applied"]);
    world.leader = true;
    world.reads.flush();
    world.reads.confirmed(2, at(0));
    assert.deepEqual(world.answers.slice(1), ["a@0"]);
  });

  it("what arrives while all rounds are under way shares the next", () => {
    const world = new World();
    for (let round = 1; round <= 5; round += 1) {
      world.read(`r${String(round)}`);
      world.endTurn();
    }
    world.read("r6");
    world.endTurn();
    assert.deepEqual(world.asked, [1, 2, 3, 4]);
    world.reads.confirmed(1, at(0));
    world.endTurn();
    assert.deepEqual(world.asked, [1, 2, 3, 4, 5]);
    world.reads.confirmed(5, at(0));
    assert.deepEqual(world.answers, ["r1@0", "r5@0", "r6@0"]);
  });

  it("a deadline ends every wait: for a round, under way, and for the apply", () => {
    const world = new World();
    world.read("confirmed", 10);
    world.endTurn();
    world.reads.confirmed(1, at(7));
    world.read("under way", 10);
    world.endTurn();
    world.read("collected", 10);
    world.reads.expire(10);
    assert.deepEqual(world.answers.map((answer) => answer.split(" deadline")[0]).sort(), [
      "collected",
      "confirmed",
      "under way",
    ]);
    world.apply(7);
    world.reads.confirmed(2, at(0));
    assert.equal(world.answers.length, 3, "answered once");
  });

  it("closing fails all, wherever they wait", () => {
    const world = new World();
    world.read("a");
    world.endTurn();
    world.reads.confirmed(1, at(7));
    world.read("b");
    world.endTurn();
    world.read("c");
    world.reads.close();
    assert.equal(world.answers.length, 3);
    assert.ok(world.answers.every((answer) => answer.endsWith("shutting-down not-applied")));
  });
});
