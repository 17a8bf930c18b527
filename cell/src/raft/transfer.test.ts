import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  acknowledgement,
  Bench,
  bytes,
  heartbeat,
  index,
  member,
  ofKind,
  term,
  voters,
} from "./testing/bench-member.ts";
import { parseChange } from "./testing/story.ts";

describe("raft: leadership transfer", () => {
  it("R51: waits for the target to catch up, refuses proposals, and gives up after an election timeout", () => {
    const bench = new Bench();
    bench.lead(2, 3);
    bench.step(acknowledgement(2, 2, 2));
    bench.node.transferLeadership(member(3));
    assert.deepEqual(bench.node.propose(bytes("x")), { ok: false, reason: "transferring" });
    assert.deepEqual(ofKind(bench.settle(), "timeout-now"), []);
    assert.equal(ofKind(bench.step(acknowledgement(3, 2, 2)), "timeout-now").length, 1);
    bench.tick(10);
    assert.equal(bench.node.propose(bytes("x")).ok, true);
  });

  it("R51: ignored for oneself, learners, strangers, and by those who do not lead", () => {
    const bench = new Bench({ configuration: { ...voters(1, 2, 3), learners: [member(4)] } });
    bench.node.transferLeadership(member(2));
    bench.lead(2, 3);
    for (const target of [1, 4, 9]) bench.node.transferLeadership(member(target));
    assert.equal(bench.node.status().transferTarget, 0);
  });

  it("R51: only a follower obeys, and it skips the pre-vote", () => {
    const bench = new Bench();
    bench.step(heartbeat(2, 2, 1));
    const sent = bench.step({ kind: "timeout-now", from: member(2), to: member(1), term: term(2) });
    assert.deepEqual(
      ofKind(sent, "vote").map(({ transfer, term: of }) => [transfer, of]),
      [
        [true, 3],
        [true, 3],
      ],
    );
    assert.equal(bench.node.role, "candidate");
    bench.step({ kind: "timeout-now", from: member(2), to: member(1), term: term(3) });
    assert.equal(bench.node.term, 3, "a candidate does not start over");
  });

  it("R51: ends when its target is removed or demoted", () => {
    const bench = new Bench();
    bench.lead(2, 3);
    bench.step(acknowledgement(2, 2, 2));
    bench.holdApply = true;
    bench.node.proposeConfiguration(parseChange(["l3"]));
    bench.settle();
    bench.node.transferLeadership(member(3));
    bench.step(acknowledgement(2, 2, 3));
    bench.node.applyConfiguration(index(3), parseChange(["l3"]));
    assert.equal(bench.node.status().transferTarget, 0);
  });
});
