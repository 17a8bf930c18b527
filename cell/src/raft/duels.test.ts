import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRaft } from "./index.ts";
import {
  Bench,
  entries,
  heartbeat,
  index,
  member,
  ofKind,
  term,
  voteRequest,
  voters,
} from "./testing/bench-member.ts";
import type { Configuration, Message, RaftNode } from "./types.ts";

/** Members whose disks are instant, and who hear each other when the test says so. */
class Survivors {
  readonly nodes: readonly RaftNode[];
  #wire: Message[] = [];

  /** @param configuration with others, who are dead */
  constructor(ids: readonly number[], configuration: Configuration) {
    this.nodes = ids.map((id) =>
      createRaft(
        { id: member(id), random: () => 0 },
        {
          hardState: { term: term(4), vote: member(0), commit: index(1) },
          logStart: { index: index(1), term: term(1) },
          entries: [],
          applied: index(1),
          configuration,
        },
      ),
    );
  }

  node(id: number): RaftNode {
    const node = this.nodes.find((one) => one.status().id === id);
    assert.ok(node !== undefined);
    return node;
  }

  /** What everybody says now is on its way. */
  speak(): void {
    for (const node of this.nodes) {
      while (node.hasReady()) {
        const { messages, append, committed } = node.ready();
        this.#wire.push(...messages);
        if (append !== undefined) {
          node.appended(append.token);
          this.#wire.push(...append.held);
        }
        const last = committed.at(-1);
        if (last !== undefined) node.applied(last.index);
      }
    }
  }

  /** What is on its way arrives, from one member after the other. */
  hear(order: readonly number[]): void {
    const arriving = this.#wire;
    this.#wire = [];
    for (const from of order) {
      for (const message of arriving.filter((one) => one.from === from)) {
        this.nodes.find((node) => node.status().id === message.to)?.step(message);
      }
    }
  }

  settle(order: readonly number[]): void {
    for (let round = 0; round < 10; round += 1) {
      this.speak();
      this.hear(order);
    }
  }

  /** Who leads, and in which term. */
  leaders(): string[] {
    return this.nodes
      .filter((node) => node.role === "leader")
      .map((node) => `${String(node.status().id)} in ${String(node.term)}`);
  }
}

describe("raft: several ask for votes at once", () => {
  it("the two survivors of three elect one of them in the first term, in whatever order they hear each other", () => {
    for (const order of [
      [2, 3],
      [3, 2],
    ]) {
      const both = new Survivors([2, 3], voters(1, 2, 3));
      for (const node of both.nodes) node.campaign();
      both.settle(order);
      assert.deepEqual(both.leaders(), ["2 in 5"]);
      assert.deepEqual([both.node(3).leader, both.node(3).term], [2, 5]);
    }
  });

  it("so do all four of five, whoever began first", () => {
    for (const order of [
      [1, 2, 3, 4],
      [4, 3, 2, 1],
      [2, 4, 1, 3],
    ]) {
      const four = new Survivors([1, 2, 3, 4], voters(1, 2, 3, 4, 5));
      for (const id of order) four.node(id).campaign();
      four.settle(order);
      assert.deepEqual(four.leaders(), ["1 in 5"], order.join());
    }
  });

  it("who gives way grants the pre-vote, counts none for itself any more, and votes", () => {
    const bench = new Bench();
    bench.node.campaign();
    bench.settle();
    const [answer] = ofKind(bench.step(voteRequest(2, 2, [1, 2], { kind: "pre-vote" })), "pre-vote-response");
    assert.equal(answer?.granted, true);
    assert.equal(bench.node.role, "follower", "the other log is better");
    bench.step({ kind: "pre-vote-response", from: member(3), to: member(1), term: term(2), granted: true });
    assert.deepEqual([bench.node.role, bench.node.term], ["follower", 1]);
    const [vote] = ofKind(bench.step(voteRequest(2, 2, [1, 2])), "vote-response");
    assert.equal(vote?.granted, true);
  });

  it("who gave way stands again when the other one does not make it", () => {
    const bench = new Bench();
    bench.node.campaign();
    bench.step(voteRequest(2, 2, [1, 2], { kind: "pre-vote" }));
    bench.tick(20);
    assert.equal(bench.node.role, "pre-candidate");
  });

  it("nobody gives way to a worse log, to a higher id with an equal one, to another term or to who is no voter", () => {
    const log = entries(2, 1);
    for (const [from, of, last, granted] of [
      [2, 2, [1, 1], false],
      [2, 2, [1, 2], true],
      [2, 3, [1, 3], true],
      [9, 2, [1, 3], true],
    ] as const) {
      const bench = new Bench({ log });
      bench.node.campaign();
      bench.settle();
      const sent = bench.step(voteRequest(from, of, last, { kind: "pre-vote" }));
      assert.equal(ofKind(sent, "pre-vote-response")[0]?.granted, granted);
      assert.equal(bench.node.role, "pre-candidate", `${String(from)} in ${String(of)}`);
    }
  });

  it("a candidate does not give way: its vote is cast", () => {
    const bench = new Bench();
    bench.node.campaign();
    bench.settle();
    bench.step({ kind: "pre-vote-response", from: member(3), to: member(1), term: term(2), granted: true });
    assert.equal(bench.node.role, "candidate");
    const [answer] = ofKind(bench.step(voteRequest(2, 2, [1, 9], { kind: "pre-vote" })), "pre-vote-response");
    assert.deepEqual([answer?.granted, bench.node.role, bench.node.status().vote], [false, "candidate", 1]);
  });

  it("whoever granted a vote or a pre-vote has promised, until it has a leader or loses sight of one", () => {
    for (const kind of ["vote", "pre-vote"] as const) {
      const bench = new Bench();
      bench.step(heartbeat(2, 2, 1));
      bench.node.forgetLeader();
      assert.equal(bench.node.hasPromised, false);
      bench.step(voteRequest(3, 3, [1, 0], { kind }));
      assert.equal(bench.node.hasPromised, false, "refused");
      bench.step(voteRequest(3, 4, [1, 1], { kind }));
      assert.equal(bench.node.hasPromised, true);
      bench.step(heartbeat(3, 4, 1));
      assert.equal(bench.node.hasPromised, false);
      bench.node.forgetLeader();
      assert.equal(bench.node.hasPromised, false);
    }
  });
});
