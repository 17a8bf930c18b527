import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { jointIndex, jointVote, majorityIndex, majorityVote } from "./quorum.ts";
import { checkTranscript } from "./testing/transcript.ts";
import type { MemberId } from "./types.ts";

const FOLDER = join(import.meta.dirname, "testdata", "quorum");

/** `commit 1=12 2=_ 3=6 / 3 4 4=100`: voters with what they said, then the outgoing half. */
function run(command: string): string[] {
  const [verb, ...words] = command.split(" ");
  const halves: MemberId[][] = [[], []];
  const said = new Map<number, string>();
  let half = 0;
  for (const word of words) {
    if (word === "/") {
      half = 1;
      continue;
    }
    const [id, value] = word.split("=");
    if (!halves[half]!.includes(Number(id) as MemberId)) halves[half]!.push(Number(id) as MemberId);
    if (value !== undefined && value !== "_") said.set(Number(id), value);
  }
  const [voters = [], outgoing = []] = halves;
  if (verb === "commit") {
    return [String(jointIndex({ voters, outgoing }, (id) => Number(said.get(id) ?? 0)))];
  }
  assert.equal(verb, "vote");
  const voteOf = (id: MemberId): boolean | undefined => (said.has(id) ? said.get(id) === "y" : undefined);
  return [jointVote({ voters, outgoing }, voteOf)];
}

describe("quorum transcripts", () => {
  for (const file of readdirSync(FOLDER).sort()) {
    it(file.slice(0, -".txt".length), () => checkTranscript(join(FOLDER, file), run));
  }
});

/** Dumb: an index is agreed on when more than half acknowledged at least that much. */
function dumbIndex(voters: readonly MemberId[], indexOf: (id: MemberId) => number): number {
  if (voters.length === 0) return Infinity;
  const agreed = [0, ...voters.map(indexOf)].filter(
    (index) => voters.filter((id) => indexOf(id) >= index).length * 2 > voters.length,
  );
  return Math.max(...agreed);
}

/** Dumb: try every way in which the missing votes could fall. */
function dumbVote(
  voters: readonly MemberId[],
  voteOf: (id: MemberId) => boolean | undefined,
): "won" | "lost" | "pending" {
  if (voters.length === 0) return "won";
  const missing = voters.filter((id) => voteOf(id) === undefined);
  const outcomes = new Set<boolean>();
  for (let fall = 0; fall < 2 ** missing.length; fall++) {
    const yes = voters.filter((id) => voteOf(id) ?? ((fall >> missing.indexOf(id)) & 1) === 1).length;
    outcomes.add(yes * 2 > voters.length);
  }
  return outcomes.size === 2 ? "pending" : outcomes.has(true) ? "won" : "lost";
}

const ids = fc.uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 7 }) as fc.Arbitrary<MemberId[]>;
const indexes = fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 10, maxLength: 10 });
const votes = fc.array(fc.option(fc.boolean(), { nil: undefined }), { minLength: 10, maxLength: 10 });

describe("quorums agree with counting", () => {
  it("on what is committed", () => {
    fc.assert(
      fc.property(ids, ids, indexes, (voters, outgoing, acks) => {
        const indexOf = (id: MemberId): number => acks[id]!;
        const scratch = [99, 98, 97, 96, 95, 94, 93, 92];
        assert.equal(majorityIndex(voters, indexOf, scratch), dumbIndex(voters, indexOf));
        assert.equal(
          jointIndex({ voters, outgoing }, indexOf, scratch),
          Math.min(dumbIndex(voters, indexOf), dumbIndex(outgoing, indexOf)),
        );
      }),
      { numRuns: 2_000 },
    );
  });

  it("on who is elected", () => {
    fc.assert(
      fc.property(ids, ids, votes, (voters, outgoing, cast) => {
        const voteOf = (id: MemberId): boolean | undefined => cast[id];
        const halves = [dumbVote(voters, voteOf), dumbVote(outgoing, voteOf)];
        assert.equal(majorityVote(voters, voteOf), halves[0]);
        const expected = halves.includes("lost") ? "lost" : halves.includes("pending") ? "pending" : "won";
        assert.equal(jointVote({ voters, outgoing }, voteOf), expected);
      }),
      { numRuns: 2_000 },
    );
  });
});
