import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvariantError } from "../invariant.ts";
import { createRaft, EMPTY_CONFIGURATION } from "./index.ts";
import {
  acknowledgement,
  append,
  Bench,
  entries,
  heartbeatAnswer,
  index,
  member,
  ofKind,
  term,
  voters,
} from "./testing/bench-member.ts";
import { parseChange } from "./testing/story.ts";
import type { AppendResponse, SnapshotMessage } from "./types.ts";

describe("raft: snapshots", () => {
  const snapshot = (at: readonly [number, number], configuration = voters(1, 2, 3)): SnapshotMessage => ({
    kind: "snapshot",
    from: member(2),
    to: member(1),
    term: term(3),
    snapshot: { term: term(at[0]), index: index(at[1]), configuration },
  });
  const acknowledged = (sent: ReturnType<Bench["step"]>): AppendResponse | undefined =>
    ofKind(sent, "append-response")[0];

  it("R31: replaces the whole log, and answers once it is durable", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 1) });
    bench.settle();
    bench.holdDisk = true;
    assert.deepEqual(bench.step(snapshot([2, 9])), []);
    const [write] = bench.appends;
    assert.deepEqual([write?.snapshot?.index, write?.mustSync, write?.hardState?.commit], [9, true, 9]);
    bench.node.campaign();
    bench.tick(30);
    assert.equal(bench.node.role, "follower", "R17: not while it is being installed");
    bench.finishWrites();
    assert.equal(ofKind(bench.sent, "append-response")[0]?.index, 9);
    const { firstIndex, lastIndex, applied, commit } = bench.node.status();
    assert.deepEqual([firstIndex, lastIndex, applied, commit], [10, 9, 9, 9]);
  });

  it("R31: entries that came behind it are delivered after it, not before", () => {
    const bench = new Bench();
    bench.settle();
    bench.holdDisk = true;
    bench.step(snapshot([2, 9]));
    bench.step(append(2, 3, [2, 9], { entries: entries(10, 3), commit: 10 }));
    bench.finishWrites(1);
    assert.equal(bench.delivered.length, 0);
    bench.finishWrites();
    bench.settle();
    assert.deepEqual(
      bench.delivered.map((entry) => entry.index),
      [10],
    );
  });

  it("R32: until it is installed, changes handed out before apply to the configuration before it", () => {
    const bench = new Bench({ log: entries(2, ["l4"], ["l5"]), commit: 3 });
    bench.holdApply = true;
    bench.settle();
    bench.holdDisk = true;
    bench.step(snapshot([2, 9], voters(1, 2, 3, 4, 5, 6)));
    const first = bench.node.applyConfiguration(index(2), parseChange(["l4"]));
    assert.deepEqual(first, { ...voters(1, 2, 3), learners: [member(4)] });
    const second = bench.node.applyConfiguration(index(3), parseChange(["l5"]));
    assert.deepEqual(second, { ...voters(1, 2, 3), learners: [member(4), member(5)] });
    bench.finishWrites();
    assert.deepEqual(bench.node.status().configuration, voters(1, 2, 3, 4, 5, 6));
    assert.throws(() => bench.node.applyConfiguration(index(3), parseChange(["l5"])), InvariantError);
  });

  it("R31: an old one, one without this member, and one the log covers replace nothing", () => {
    const old = new Bench({ log: entries(2, 1, 1, 1), commit: 3 });
    assert.equal(acknowledged(old.step(snapshot([1, 2])))?.index, 3);
    assert.equal(old.node.lastIndex, 4);
    const foreign = new Bench();
    assert.equal(acknowledged(foreign.step(snapshot([2, 9], voters(2, 3))))?.index, 1);
    const covered = new Bench({ log: entries(2, 1, 1, 1) });
    assert.equal(acknowledged(covered.step(snapshot([1, 3])))?.index, 3);
    assert.deepEqual([covered.node.lastIndex, covered.node.commit], [4, 3], "the suffix stays");
  });

  it("R31: one that contradicts the log at its index replaces it", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 1) });
    bench.step(snapshot([2, 3]));
    assert.deepEqual([bench.node.lastIndex, bench.node.termAt(index(3))], [3, 2]);
  });

  it("R16, R21: a fresh joiner takes a snapshot, and with it its configuration", () => {
    const options = { id: member(1), random: (): number => 0 };
    const start = { logStart: { index: index(0), term: term(0) }, entries: [], applied: index(0) };
    const node = createRaft(options, { ...start, configuration: EMPTY_CONFIGURATION });
    const joined = { ...voters(2, 3), learners: [member(1)] };
    node.step(snapshot([2, 9], joined));
    const { append: write } = node.ready();
    node.appended(write!.token);
    assert.deepEqual(node.status().configuration, joined);
    assert.equal(node.status().applied, 9);
  });

  it("R29, R30: wanted only of the living, and whatever way it ends the peer is probed again", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 1), commit: 4, applied: 4 });
    bench.node.compact(index(4));
    bench.lead(2);
    const refusal = { ...(acknowledgement(3, 2, 4) as AppendResponse), rejected: true };
    bench.step({ ...refusal, hintIndex: index(1), hintTerm: term(1) });
    assert.deepEqual(bench.wanted, [3]);
    const progress = (): unknown => {
      const { state, next, match } = bench.node.status().progress[2]!;
      return [state, match, next];
    };
    bench.node.snapshotStarted(member(3), index(4));
    assert.deepEqual(progress(), ["snapshot", 0, 5]);
    bench.node.snapshotFinished(member(3), false);
    assert.deepEqual(progress(), ["probe", 0, 1], "not past what the peer has");
    bench.step(heartbeatAnswer(3, 2, 0));
    assert.deepEqual(bench.wanted, [3, 3]);
    bench.node.snapshotStarted(member(3), index(4));
    bench.node.snapshotFinished(member(3), true);
    assert.deepEqual(progress(), ["probe", 0, 5]);
    assert.deepEqual(bench.settle(), [], "the next probe waits for a sign of life");
    const [probe] = ofKind(bench.step(heartbeatAnswer(3, 2, 0)), "append");
    assert.equal(probe?.prevIndex, 4);
  });

  it("R30: any acknowledgement within reach of the log ends the snapshot state", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 1), commit: 4, applied: 4 });
    bench.node.compact(index(3));
    bench.lead(2);
    bench.node.snapshotStarted(member(3), index(4));
    bench.step(acknowledgement(3, 2, 2));
    assert.equal(bench.node.status().progress[2]?.state, "snapshot", "entry 3 is gone");
    bench.step(acknowledgement(3, 2, 3));
    assert.equal(bench.node.status().progress[2]?.state, "replicate");
  });
});
