import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InvariantError } from "../invariant.ts";
import { acknowledgement, append, Bench, bytes, entries, heartbeat, ofKind } from "./testing/bench-member.ts";

const broken = (pattern: RegExp) => (error: unknown) =>
  error instanceof InvariantError && pattern.test(error.message);

describe("raft: replication", () => {
  it("raft §5.4.2: a leader does not commit an entry of an older term by counting", () => {
    const bench = new Bench({ log: entries(2, 1) });
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    assert.equal(bench.node.commit, 1, "1/2 is on a majority, and could still be overwritten");
    bench.step(acknowledgement(2, 2, 3));
    assert.equal(bench.node.commit, 3);
  });

  it("R19: a new leader appends an empty entry, whatever the bounds", () => {
    const bench = new Bench({ options: { uncommittedBytesMax: 0 } });
    bench.lead(2);
    const [first] = ofKind(bench.sent, "append");
    assert.deepEqual(
      first?.entries.map(({ data, term: of }) => [data.length, of]),
      [[0, 2]],
    );
  });

  it("R27: a lazy commit index rides with the next append, or leaves when it is announced or a tick passes", () => {
    for (const release of ["append", "announce", "tick"] as const) {
      const bench = new Bench({ options: { lazyCommit: true } });
      bench.lead(2);
      bench.step(acknowledgement(3, 2, 2));
      const alone = bench.step(acknowledgement(2, 2, 2));
      assert.equal(bench.node.commit, 2);
      assert.deepEqual(ofKind(alone, "append"), [], "nothing leaves for the commit index alone");
      if (release === "append") bench.node.propose(bytes("more"));
      else if (release === "announce") bench.node.announceCommit();
      else bench.node.tick();
      const told = ofKind(bench.settle(), "append").map(({ commit, entries: carried }) => [
        commit,
        carried.length,
      ]);
      const expected = [2, release === "append" ? 1 : 0];
      assert.deepEqual(told, [expected, expected], release);
    }
  });

  it("R22: a refusal names the largest index at which the logs could agree", () => {
    const bench = new Bench({ log: entries(2, 1, 1, 2, 2, 4) });
    for (const [after, hint] of [
      [
        [3, 9],
        [2, 5],
      ],
      [
        [1, 5],
        [1, 3],
      ],
      [
        [5, 4],
        [0, 0],
      ],
    ] as const) {
      const [answer] = ofKind(bench.step(append(2, 5, after)), "append-response");
      if (hint[1] === 0) continue;
      assert.deepEqual([answer?.rejected, answer?.hintTerm, answer?.hintIndex], [true, ...hint]);
    }
  });

  it("R23: a delayed append whose entries are all here erases nothing", () => {
    const bench = new Bench();
    bench.step(append(2, 2, [1, 1], { entries: entries(2, 2, 2, 2, 2) }));
    const [answer] = ofKind(
      bench.step(append(2, 2, [1, 1], { entries: entries(2, 2, 2) })),
      "append-response",
    );
    assert.equal(answer?.index, 3, "only what the message vouches for");
    assert.equal(bench.node.lastIndex, 5);
  });

  it("R9: a commit index beyond the log, or a conflict below commit, stops the member", () => {
    const bench = new Bench();
    assert.throws(() => bench.step(heartbeat(2, 2, 7)), broken(/lost\?/));
    const conflicted = new Bench({ log: entries(2, 1, 1), commit: 3 });
    const overlong = append(2, 2, [1, 3], { entries: entries(4, 2), commit: 3 });
    conflicted.step(overlong);
    assert.equal(conflicted.node.lastIndex, 4);
    const early = append(2, 2, [1, 1], { entries: entries(2, 2), commit: 3 });
    const [answer] = ofKind(conflicted.step(early), "append-response");
    assert.equal(answer?.index, 3, "below commit there is nothing to discuss");
  });

  it("R9: a heartbeat names no commit index beyond what the follower is known to hold", () => {
    const bench = new Bench();
    bench.lead(2);
    bench.step(acknowledgement(2, 2, 2));
    const beats = ofKind(bench.tick(1), "heartbeat");
    assert.deepEqual(
      beats.map(({ to, commit }) => [to, commit]),
      [
        [2, 2],
        [3, 0],
      ],
    );
  });

  it("R25: one append stays below its bound, but one entry always goes", () => {
    const bench = new Bench({ options: { appendBytesMax: 100 } });
    bench.lead(2, 3);
    bench.step(acknowledgement(2, 2, 2));
    bench.node.propose(new Uint8Array(500));
    bench.node.propose(new Uint8Array(10));
    bench.node.propose(new Uint8Array(10));
    const sizes = ofKind(bench.settle(), "append").filter(({ to }) => to === 2);
    assert.deepEqual(
      sizes.map((message) => message.entries.length),
      [1, 2],
    );
  });

  it("R26: uncommitted bytes are bounded, one proposal and empty ones always pass", () => {
    const bench = new Bench({ options: { uncommittedBytesMax: 100 } });
    bench.lead(2, 3);
    assert.equal(bench.node.propose(new Uint8Array(500)).ok, true);
    assert.deepEqual(bench.node.propose(new Uint8Array(1)), { ok: false, reason: "too-much-uncommitted" });
    assert.equal(bench.node.propose(new Uint8Array(0)).ok, true);
    bench.settle();
    bench.step(acknowledgement(2, 2, 4));
    assert.equal(bench.node.propose(new Uint8Array(1)).ok, true, "applied: the bytes are free again");
  });

  it("R10: all appends of a turn leave in one message a peer, in member order", () => {
    const bench = new Bench();
    bench.lead(2, 3);
    bench.step(acknowledgement(3, 2, 2));
    bench.step(acknowledgement(2, 2, 2));
    for (const text of ["a", "b", "c"]) bench.node.propose(bytes(text));
    const sent = ofKind(bench.settle(), "append");
    assert.deepEqual(
      sent.map(({ to, entries: { length } }) => [to, length]),
      [
        [2, 3],
        [3, 3],
      ],
    );
    assert.equal(sent[0]!.entries, sent[1]!.entries, "one array, the same bytes");
  });

  it("R28: answers from strangers are ignored", () => {
    const bench = new Bench();
    bench.lead(2);
    bench.step(acknowledgement(9, 7, 2));
    assert.deepEqual([bench.node.role, bench.node.term, bench.node.commit], ["leader", 2, 1]);
  });
});
