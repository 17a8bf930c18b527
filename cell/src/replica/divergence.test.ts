import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Configuration, LogIndex, MemberId } from "../raft/types.ts";
import { DIGEST_INTERVAL, DivergenceDetector } from "./divergence.ts";

const id = (n: number): MemberId => n as MemberId;
const AT = DIGEST_INTERVAL as LogIndex;
const voters = (...ids: number[]): Configuration => ({
  voters: ids.map(id),
  outgoing: [],
  learners: [],
  learnersNext: [],
  autoLeave: false,
});

function detector(hash: number): DivergenceDetector {
  const found = new DivergenceDetector(id(1));
  found.record({ index: AT, hash });
  return found;
}

describe("divergence", () => {
  it("members that produced the same agree", () => {
    const one = detector(7);
    assert.equal(one.told(id(2), AT, 7, voters(1, 2, 3)).kind, "agree");
    assert.equal(one.told(id(3), AT, 7, voters(1, 2, 3)).kind, "agree");
  });

  it("a member that a majority contradicts must stop; the majority goes on", () => {
    const dissenter = detector(7);
    assert.equal(dissenter.told(id(2), AT, 8, voters(1, 2, 3)).kind, "agree", "one voice is no majority");
    assert.equal(dissenter.told(id(3), AT, 8, voters(1, 2, 3)).kind, "minority");
    const majority = detector(8);
    assert.equal(majority.told(id(2), AT, 8, voters(1, 2, 3)).kind, "agree");
    assert.equal(majority.told(id(3), AT, 7, voters(1, 2, 3)).kind, "agree");
  });

  it("without a majority writes must be refused", () => {
    const one = detector(7);
    assert.equal(one.told(id(2), AT, 8, voters(1, 2, 3)).kind, "agree");
    assert.equal(one.told(id(3), AT, 9, voters(1, 2, 3)).kind, "split");
    assert.equal(detector(7).told(id(2), AT, 8, voters(1, 2)).kind, "split");
  });

  it("a learner's word does not count, and other indexes are not compared", () => {
    const one = detector(7);
    assert.equal(one.told(id(4), AT, 8, voters(1, 2, 3)).kind, "agree");
    assert.equal(one.told(id(5), AT, 8, voters(1, 2, 3)).kind, "agree");
    assert.equal(one.told(id(2), (AT * 2) as LogIndex, 8, voters(1, 2, 3)).kind, "agree");
  });

  it("only indexes that every member passes are recorded, and a new state starts anew", () => {
    const one = new DivergenceDetector(id(1));
    one.record({ index: (AT + 1) as LogIndex, hash: 7 });
    const newest = (): number | undefined => one.newest?.hash;
    assert.equal(newest(), undefined);
    one.record({ index: AT, hash: 7 });
    assert.equal(newest(), 7);
    one.reset();
    assert.equal(newest(), undefined);
    assert.equal(one.told(id(2), AT, 8, voters(1, 2)).kind, "agree");
  });
});
