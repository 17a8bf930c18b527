import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvariantError } from "../invariant.ts";
import { ConfigurationError } from "./index.ts";
import {
  acknowledgement,
  Bench,
  bytes,
  entries,
  heartbeatAnswer,
  index,
  member,
  ofKind,
  voters,
} from "./testing/bench-member.ts";
import { parseChange } from "./testing/story.ts";

const broken = (pattern: RegExp) => (error: unknown) =>
  error instanceof InvariantError && pattern.test(error.message);

describe("raft: configuration changes", () => {
  const pending = { ok: false, reason: "change-pending" };

  it("R40: none before the leader has committed in its term", () => {
    const bench = new Bench();
    bench.lead(2);
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["l4"])), pending);
    bench.step(acknowledgement(2, 2, 2));
    assert.equal(bench.node.proposeConfiguration(parseChange(["l4"])).ok, true);
  });

  it("R35: one at a time, until it is applied; and a refusal leaves no entry", () => {
    const bench = new Bench();
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    bench.holdApply = true;
    bench.node.proposeConfiguration(parseChange(["l4"]));
    bench.settle();
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["l5"])), pending);
    bench.step(acknowledgement(2, 2, 3));
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["l5"])), pending, "committed, not applied");
    assert.equal(bench.node.lastIndex, 3);
    bench.node.applyConfiguration(index(3), parseChange(["l4"]));
    bench.node.applied(index(3));
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["leave"])), pending);
    const invalid = { ok: false, reason: "invalid-change" };
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["r1", "r2", "r3"])), invalid);
    assert.equal(bench.node.proposeConfiguration(parseChange(["l5"])).ok, true);
  });

  it("R35: a new leader waits for all of an earlier leader's tail", () => {
    const bench = new Bench({ log: entries(2, 1, ["l4"]) });
    bench.holdApply = true;
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 4));
    assert.equal(bench.node.commit, 4);
    assert.deepEqual(bench.node.proposeConfiguration(parseChange(["l5"])), pending);
  });

  it("R36: a change that does not fit when applied throws, changes nothing, and can be refused", () => {
    const bench = new Bench({ log: entries(2, ["leave"]), commit: 2 });
    bench.holdApply = true;
    bench.settle();
    assert.throws(() => bench.node.applied(index(2)), broken(/settled before/));
    assert.throws(
      () => bench.node.applyConfiguration(index(2), parseChange(["leave"])),
      (error) => error instanceof ConfigurationError && error.code === "change-pending",
    );
    bench.node.refuseConfiguration(index(2));
    bench.node.applied(index(2));
    assert.deepEqual(bench.node.status().configuration, voters(1, 2, 3));
  });

  it("R38: a leader leaves a joint configuration by itself, a new leader too, and not during a transfer", () => {
    const joint = { ...voters(1, 2, 3), outgoing: [member(1), member(2)], autoLeave: true };
    const bench = new Bench({ configuration: joint });
    bench.lead(2, 3);
    bench.node.transferLeadership(member(2));
    bench.step(acknowledgement(2, 2, 2));
    assert.equal(bench.node.lastIndex, 2, "a transfer is under way");
    bench.step(acknowledgement(3, 2, 2));
    bench.tick(10);
    assert.equal(bench.node.status().transferTarget, 0);
    const sent = ofKind(bench.sent, "append").flatMap((message) => message.entries);
    const leave = sent.find(({ kind }) => kind === "configuration");
    assert.deepEqual([leave?.index, leave?.data], [3, Uint8Array.of(1, 0, 0, 0)]);
  });

  it("R39: a removed leader does not count itself, tells a quorum, hands over and steps down", () => {
    const bench = new Bench();
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    bench.holdApply = true;
    bench.node.proposeConfiguration(parseChange(["r1"]));
    bench.node.propose(bytes("behind it"));
    bench.settle();
    bench.step(acknowledgement(2, 2, 3));
    assert.equal(bench.node.commit, 3);
    bench.node.applyConfiguration(index(3), parseChange(["r1"]));
    bench.node.applied(index(3));
    assert.deepEqual(bench.node.propose(bytes("no more")), { ok: false, reason: "transferring" });
    bench.settle();
    bench.step(acknowledgement(2, 2, 4));
    assert.equal(bench.node.commit, 3, "2 alone is no majority of 2 and 3");
    bench.step(acknowledgement(3, 2, 4));
    assert.equal(bench.node.commit, 4);
    bench.step(heartbeatAnswer(2, 2, 1));
    assert.equal(bench.node.role, "leader");
    const beat = ofKind(bench.tick(1), "heartbeat").at(-1)!;
    bench.step(heartbeatAnswer(2, 2, beat.readRound));
    const sent = bench.step(heartbeatAnswer(3, 2, beat.readRound));
    assert.equal(bench.node.role, "follower");
    assert.deepEqual(
      ofKind(sent, "timeout-now").map(({ to }) => to),
      [2],
    );
  });

  it("R39: a removed leader that reaches no quorum goes after an election timeout", () => {
    const bench = new Bench({ configuration: voters(1, 2) });
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    bench.holdApply = true;
    bench.node.proposeConfiguration(parseChange(["r1"]));
    bench.settle();
    bench.step(acknowledgement(2, 2, 3));
    bench.node.applyConfiguration(index(3), parseChange(["r1"]));
    bench.node.applied(index(3));
    bench.tick(9);
    assert.equal(bench.node.role, "leader");
    bench.tick(1);
    assert.equal(bench.node.role, "follower");
  });

  it("R13: a newcomer does not cost the leader its quorum", () => {
    const bench = new Bench({ configuration: voters(1) });
    bench.lead();
    bench.holdApply = true;
    bench.node.proposeConfiguration(parseChange(["v2"]));
    bench.settle();
    bench.node.applyConfiguration(index(3), parseChange(["v2"]));
    bench.node.applied(index(3));
    bench.tick(10);
    assert.equal(bench.node.role, "leader", "the first check takes the newcomer for alive");
    bench.tick(10);
    assert.equal(bench.node.role, "follower", "the second does not");
  });
});
