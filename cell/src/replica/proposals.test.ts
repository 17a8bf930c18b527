import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createCommandEncoder } from "../machine/index.ts";
import type { Command, CommandOutcome } from "../machine/types.ts";
import type { LogIndex, ProposalRefusal, Term } from "../raft/types.ts";
import { ENTRIES_IN_FLIGHT_MAX, Proposals } from "./proposals.ts";
import type { Waiter } from "./proposals.ts";

const WINDOW = ENTRIES_IN_FLIGHT_MAX;
const put: Command = {
  kind: "client",
  namespaceId: 1,
  epoch: 0,
  identity: { kind: "none" },
  operation: { kind: "put", key: Buffer.from("k"), value: Buffer.from("v") },
};
const big: Command = {
  ...put,
  operation: { kind: "put", key: Buffer.from("k"), value: Buffer.alloc(1024 * 1024) },
};
const DONE: CommandOutcome = { ok: true, result: undefined, replayed: false };

/** A log that takes or refuses what is proposed; turns end when the test says so. */
class World {
  term = 1 as Term;
  next = 1;
  refusal: ProposalRefusal | undefined;
  proposed = 0;
  readonly turn: (() => void)[] = [];
  readonly proposals = new Proposals({
    encoder: createCommandEncoder(),
    propose: () => {
      if (this.refusal !== undefined) return { ok: false, reason: this.refusal };
      this.proposed += 1;
      this.next += 1;
      return { ok: true, term: this.term, index: (this.next - 1) as LogIndex };
    },
    wallMs: () => 0,
    schedule: (task) => void this.turn.push(task),
    pump: () => undefined,
  });

  add(command: Command = put, options: { deadlineMs?: number; retry?: boolean } = {}): Caller {
    const caller = new Caller(options.deadlineMs ?? 1000, options.retry === true);
    this.proposals.add(command, caller);
    return caller;
  }

  endTurn(): void {
    for (const task of this.turn.splice(0)) task();
  }

  applied(index: number, term: number, commands: number): void {
    const outcomes = new Array<CommandOutcome>(commands).fill(DONE);
    this.proposals.applied(index as LogIndex, term as Term, outcomes);
    this.proposals.flush();
  }
}

class Caller implements Waiter {
  settled = false;
  readonly deadlineMs: number;
  readonly answers: string[] = [];
  readonly deliver = (outcome: CommandOutcome): void => {
    this.answers.push(outcome.ok ? "ok" : `${outcome.failure.code} ${outcome.failure.outcome}`);
  };
  readonly retry?: () => void;

  constructor(deadlineMs: number, retries: boolean) {
    this.deadlineMs = deadlineMs;
    if (retries) this.retry = () => void this.answers.push("retry");
  }
}

describe("proposals", () => {
  it("all commands of a turn are one entry, and each gets its own outcome", () => {
    const world = new World();
    const callers = [world.add(), world.add()];
    assert.equal(world.proposed, 0);
    world.endTurn();
    assert.equal(world.proposed, 1);
    world.applied(1, 1, 2);
    assert.deepEqual(
      callers.map((caller) => caller.answers),
      [["ok"], ["ok"]],
    );
    assert.equal(world.proposals.pending, 0);
  });

  it("R53: another term's entry applied at the index means certainly not applied", () => {
    const world = new World();
    const caller = world.add();
    world.endTurn();
    world.applied(1, 2, 0);
    assert.deepEqual(caller.answers, ["leader-changed not-applied"]);
  });

  it("R53: losing leadership alone decides nothing about what is in the log", () => {
    const world = new World();
    const caller = world.add();
    world.endTurn();
    world.refusal = "not-leader";
    world.proposals.leadershipLost();
    assert.deepEqual(caller.answers, []);
    world.applied(1, 1, 1);
    assert.deepEqual(caller.answers, ["ok"]);
  });

  it("R53: a snapshot that jumped over an entry leaves its commands unknown, later ones open", () => {
    const world = new World();
    const jumped = world.add();
    world.endTurn();
    const later = world.add();
    world.endTurn();
    world.proposals.skippedTo(1 as LogIndex);
    assert.deepEqual(jumped.answers, ["leader-changed unknown"]);
    assert.deepEqual(later.answers, []);
  });

  it("R53: an entry that was cut here may still be committed elsewhere, so its index taken anew leaves it unknown", () => {
    const world = new World();
    const cut = world.add();
    world.endTurn();
    world.proposals.leadershipLost();
    world.term = 3 as Term;
    world.next = 1;
    const fresh = world.add();
    world.endTurn();
    assert.deepEqual(cut.answers, ["leader-changed unknown"]);
    world.applied(1, 3, 1);
    assert.deepEqual(fresh.answers, ["ok"]);
    assert.equal(world.proposals.pending, 0);
  });

  it("while the window is full commands share the next entry", () => {
    const world = new World();
    for (let entry = 0; entry < WINDOW; entry += 1) {
      world.add();
      world.endTurn();
    }
    world.add();
    world.endTurn();
    world.add();
    world.endTurn();
    assert.equal(world.proposed, WINDOW);
    world.applied(1, 1, 1);
    assert.equal(world.proposed, WINDOW + 1);
    world.applied(2, 1, 1);
    assert.equal(world.proposed, WINDOW + 1, "both went in one");
  });

  it("entries of a lost leadership do not fill the window of the next", () => {
    const world = new World();
    // Large turns pass the window by.
    const lost = Array.from({ length: 2 * WINDOW }, () => world.add(big));
    world.proposals.leadershipLost();
    assert.equal(world.proposals.entriesInFlight, 0);
    // A leader in between cut them all; this member leads again behind that leader's first entry.
    world.term = 3 as Term;
    world.next = 3;
    world.applied(1, 2, 0);
    world.applied(2, 3, 0);
    const fresh = world.add();
    world.endTurn();
    assert.equal(world.proposals.entriesInFlight, 1);
    world.applied(3, 3, 1);
    assert.deepEqual(fresh.answers, ["ok"]);
    assert.equal(lost.filter((caller) => caller.answers.length > 1).length, 0);
  });

  it("what waits for the window goes another way when leadership is lost", () => {
    const world = new World();
    for (let entry = 0; entry < WINDOW; entry += 1) {
      world.add();
      world.endTurn();
    }
    const [forwarded, own] = [world.add(put, { retry: true }), world.add(put)];
    world.endTurn();
    world.refusal = "not-leader";
    world.proposals.leadershipLost();
    assert.deepEqual(forwarded.answers, ["retry"]);
    assert.deepEqual(own.answers, ["leader-changed not-applied"]);
  });

  it("a deadline ends every wait, in the log and before it, with unknown outcome", () => {
    const world = new World();
    const inLog = world.add(put, { deadlineMs: 10 });
    world.endTurn();
    for (let entry = 1; entry < WINDOW; entry += 1) {
      world.add();
      world.endTurn();
    }
    const before = world.add(put, { deadlineMs: 10 });
    world.endTurn();
    world.proposals.expire(9);
    assert.deepEqual([...inLog.answers, ...before.answers], []);
    world.proposals.expire(10);
    assert.deepEqual(inLog.answers, ["deadline-exceeded unknown"]);
    assert.deepEqual(before.answers, ["deadline-exceeded unknown"]);
    world.applied(1, 1, 1);
    assert.deepEqual(inLog.answers.length, 1, "answered once");
    world.applied(WINDOW + 1, 1, 1);
    assert.deepEqual(before.answers.length, 1, "answered once");
  });

  it("what the log refuses for its size is overloaded, and certainly not applied", () => {
    const world = new World();
    world.refusal = "too-much-uncommitted";
    const caller = world.add(put, { retry: true });
    world.endTurn();
    assert.deepEqual(caller.answers, ["overloaded not-applied"]);
    assert.equal(world.proposals.pending, 0);
  });

  it("closing tells what is in the log from what is not", () => {
    const world = new World();
    const inLog = world.add();
    world.endTurn();
    const before = world.add();
    world.proposals.close();
    assert.deepEqual(inLog.answers, ["shutting-down unknown"]);
    assert.deepEqual(before.answers, ["shutting-down not-applied"]);
    world.endTurn();
    assert.equal(world.proposed, 1);
  });
});
