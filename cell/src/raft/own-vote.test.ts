import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRaft } from "./index.ts";
import type { Entry, HardState, LogIndex, MemberId, Message, RaftNode, Term } from "./types.ts";

const saved = { term: 4, vote: 0, commit: 1 } as unknown as HardState;

function member(id: number, voters: number[]): RaftNode {
  return createRaft(
    { id: id as MemberId, random: () => 0 },
    {
      hardState: saved,
      logStart: { index: 1 as LogIndex, term: 1 as Term },
      entries: [],
      applied: 1 as LogIndex,
      configuration: {
        ...{
          voters: voters as MemberId[],
          outgoing: [],
          learners: [],
          learnersNext: [],
        },
        autoLeave: false,
      },
    },
  );
}

/** Carries out what the node says; without a disk nothing it writes becomes durable. */
function carryOut(node: RaftNode, hasDisk: boolean, applied: Entry[] = []): Message[] {
  const sent: Message[] = [];
  while (node.hasReady()) {
    const { messages, append, committed } = node.ready();
    sent.push(...messages);
    if (append !== undefined && hasDisk) {
      node.appended(append.token);
      sent.push(...append.held);
    }
    applied.push(...committed);
    const last = committed.at(-1);
    if (last !== undefined) node.applied(last.index);
  }
  return sent;
}

describe("a candidate's own vote (R3)", () => {
  it("does not lead before its own term and vote are durable, whatever the others say", () => {
    const candidate = member(1, [1, 2, 3]);
    const others = [member(2, [1, 2, 3]), member(3, [1, 2, 3])];
    const exchange = (hasDisk: boolean): void => {
      for (const message of carryOut(candidate, hasDisk)) others[message.to - 2]?.step(message);
      for (const other of others) for (const message of carryOut(other, true)) candidate.step(message);
    };
    candidate.campaign();
    for (let round = 0; round < 3; round += 1) exchange(false);
    assert.equal(candidate.role, "candidate");
    assert.equal(candidate.term, 5);
  });

  it("a member that crashed before its own vote was durable does not lead that term a second time", () => {
    const [b, c] = [member(2, [1, 2, 3]), member(3, [1, 2, 3])];
    const [appliedByA, appliedByB]: [Entry[], Entry[]] = [[], []];
    const exchange = (a: RaftNode, hasDisk: boolean, reach: readonly number[], rounds: number): void => {
      for (let round = 0; round < rounds; round += 1) {
        if (a.role === "leader") a.tick();
        for (const message of carryOut(a, hasDisk, appliedByA)) {
          if (reach.includes(message.to)) (message.to === 2 ? b : c).step(message);
        }
        for (const message of [...carryOut(b, true, appliedByB), ...carryOut(c, true)]) {
          if (reach.includes(message.from)) a.step(message);
        }
      }
    };
    // The disk of the first life takes for ever; once it leads only B hears of it.
    const first = member(1, [1, 2, 3]);
    first.campaign();
    exchange(first, false, [2, 3], 2);
    first.propose(Buffer.from("first life"));
    exchange(first, false, [2], 3);
    const second = member(1, [1, 2, 3]);
    second.campaign();
    exchange(second, true, [3], 5);
    second.propose(Buffer.from("second life"));
    exchange(second, true, [2, 3], 10);
    const told = (entries: Entry[]): string[] =>
      entries.map(({ index, data }) => `${index} ${data.toString()}`);
    const both = Math.min(appliedByA.length, appliedByB.length);
    assert.deepEqual(told(appliedByB).slice(0, both), told(appliedByA).slice(0, both));
  });

  it("a write that was handed out before the campaign does not vouch for the vote", () => {
    const other = member(2, [1, 2]);
    // A write under way that carries no vote of its own.
    other.step({
      ...{
        kind: "append",
        from: 1 as MemberId,
        to: 2 as MemberId,
        term: 4 as Term,
        commit: 1 as LogIndex,
      },
      ...{ prevIndex: 1 as LogIndex, prevTerm: 1 as Term },
      entries: [
        {
          term: 4 as Term,
          index: 2 as LogIndex,
          kind: "normal",
          data: new Uint8Array(0),
        },
      ],
    });
    const { append } = other.ready();
    assert.ok(append !== undefined);
    other.step({
      kind: "timeout-now",
      from: 1 as MemberId,
      to: 2 as MemberId,
      term: 4 as Term,
    });
    assert.equal(other.role, "candidate");
    const grant = {
      kind: "vote-response",
      from: 1,
      to: 2,
      term: 5,
      granted: true,
    };
    other.step(grant as unknown as Message);
    other.appended(append.token);
    assert.equal(other.role, "candidate", "the vote of term 5 was never handed out to be saved");
    carryOut(other, true);
    assert.equal(other.role, "leader");
  });
});
