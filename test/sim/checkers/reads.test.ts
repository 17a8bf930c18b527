import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { ReadChecker, type SeenState } from "./reads.ts";

function setUp(): { truth: ManualTruth; reads: ReadChecker; at: (key: string) => SeenState } {
  const truth = new ManualTruth();
  truth.put({ key: "q/1", value: "one" });
  truth.put({ key: "q/2", value: "two" });
  truth.put({ key: "q/3", value: "three" });
  const at = (key: string): SeenState => {
    const state = truth.stateAt(key, truth.revision);
    assert.ok(state !== undefined);
    return state;
  };
  return { truth, reads: new ReadChecker(truth, new LatchedReporter()), at };
}

const WHAT = "a read";

describe("the checker of reads", () => {
  it("catches an answer older than what was committed before the question", () => {
    const { reads } = setUp();
    reads.linearizableRevision(4, { committed: 4, floor: 3 }, WHAT);
    assert.throws(() => reads.linearizableRevision(3, { committed: 4, floor: 3 }, WHAT), /I8-stale/);
  });

  it("catches a revision that goes back for one client", () => {
    const { reads } = setUp();
    assert.throws(() => reads.linearizableRevision(3, { committed: 3, floor: 4 }, WHAT), /I12/);
  });

  it("catches an answer from the future, which nobody has committed", () => {
    const { reads } = setUp();
    assert.throws(() => reads.committed(5, WHAT), /I8-uncommitted/);
  });

  it("catches a write that claims a revision from before it was sent", () => {
    const { reads } = setUp();
    reads.writtenRevision(4, { committed: 3, floor: 0 }, WHAT);
    assert.throws(() => reads.writtenRevision(4, { committed: 4, floor: 0 }, WHAT), /I8-write/);
  });

  it("catches a value, a version, a lease or a key that is not the true one", () => {
    const { reads, at } = setUp();
    reads.state("q/1", 4, at("q/1"), WHAT);
    reads.state("q/9", 4, undefined, WHAT);
    for (const wrong of [
      { ...at("q/1"), value: "two" },
      { ...at("q/1"), version: 2 },
      { ...at("q/1"), leaseId: "7" },
      { ...at("q/1"), createRevision: 1 },
      undefined,
    ]) {
      assert.throws(() => reads.state("q/1", 4, wrong, WHAT), /I8-value/);
    }
    assert.throws(() => reads.state("q/9", 4, at("q/1"), WHAT), /I8-value/);
  });

  it("catches a list with a gap, out of order, or with a wrong count", () => {
    const { reads, at } = setUp();
    const all = ["q/1", "q/2", "q/3"].map(at);
    const list = (states: readonly SeenState[], count = 3, more = false): void =>
      reads.list("q/", 4, { states, count, more }, { what: WHAT });
    list(all);
    assert.throws(() => list(all.slice(1)), /I8-range/);
    assert.throws(() => list([...all].reverse()), /I8-range/);
    assert.throws(() => list(all, 2), /I8-range/);
    assert.throws(() => list(all, 3, true), /I8-range/);
  });

  it("catches a wrong count", () => {
    const { reads } = setUp();
    const count = (number: number): void =>
      reads.count("q/", 4, { states: [], count: number, more: false }, WHAT);
    count(3);
    assert.throws(() => count(2), /I8-range/);
  });

  it("knows limits, reversed lists and bare keys", () => {
    const { reads, at } = setUp();
    const bare = (key: string): SeenState => ({ ...at(key), value: "" });
    const answer = { states: [bare("q/3"), bare("q/2")], count: 3, more: true };
    reads.list("q/", 4, answer, { what: WHAT, limit: 2, reverse: true, keysOnly: true });
    assert.throws(() => reads.list("q/", 4, answer, { what: WHAT, limit: 2, reverse: true }), /I8-range/);
  });
});
