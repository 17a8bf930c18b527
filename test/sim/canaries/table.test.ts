import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CANARIES } from "./canaries.ts";
import { allCaught, renderTable, runCanaries } from "./table.ts";
import type { RunCanary } from "./table.ts";

/** A canary that one seed catches: what a child would say about a range. */
function caughtAt(seed: number, law: string): RunCanary {
  return (_canary, from, to) =>
    Promise.resolve(from <= seed && seed <= to ? { seed, law, text: "as told" } : undefined);
}

describe("the run over the canaries", () => {
  it("tries every seed from 1 on, none twice, up to the first violation", async () => {
    const tried: number[] = [];
    const results = await runCanaries({
      seedsMax: 1000,
      jobs: 1,
      only: ["read-without-quorum"],
      run: (canary, from, to) => {
        for (let seed = from; seed <= to; seed++) tried.push(seed);
        return caughtAt(20, "I8")(canary, from, to);
      },
    });
    assert.deepEqual(
      tried,
      Array.from({ length: tried.length }, (_, at) => at + 1),
    );
    assert(tried.length >= 20 && tried.length < 100, `stops soon after: ${tried.length}`);
    assert.equal(results[0]?.kind === "caught" && results[0].violation.seed, 20);
    assert(allCaught(results));
  });

  it("gives up behind the last seed, and not before it", async () => {
    let last = 0;
    const results = await runCanaries({
      seedsMax: 77,
      jobs: 1,
      only: ["read-without-quorum"],
      run: (_canary, _from, to) => {
        last = to;
        return Promise.resolve(undefined);
      },
    });
    assert.equal(last, 77);
    assert.deepEqual(results, [{ kind: "not-caught", canary: results[0]?.canary, seeds: 77 }]);
    assert(!allCaught(results));
  });

  it("keeps the order of the table whatever ends first, and never runs more than it may at once", async () => {
    let running = 0;
    let most = 0;
    const results = await runCanaries({
      seedsMax: 8,
      jobs: 3,
      run: async (canary) => {
        running += 1;
        most = Math.max(most, running);
        for (let turn = CANARIES.length - CANARIES.indexOf(canary); turn > 0; turn--) await Promise.resolve();
        running -= 1;
        return undefined;
      },
    });
    assert.deepEqual(
      results.map((result) => result.canary.name),
      CANARIES.map((canary) => canary.name),
    );
    assert.equal(most, 3);
  });

  it("a child that breaks is neither caught nor not caught, and does not stop the others", async () => {
    const results = await runCanaries({
      seedsMax: 8,
      jobs: 1,
      only: ["ack-before-fsync", "read-without-quorum"],
      run: (canary, from, to) =>
        canary.name === "ack-before-fsync"
          ? Promise.reject(new Error("no such file"))
          : caughtAt(1, "I8")(canary, from, to),
    });
    assert.deepEqual(
      results.map((result) => result.kind),
      ["broken", "caught"],
    );
    assert(!allCaught(results));
  });

  it("refuses a name that is no canary's", async () => {
    const nothing = runCanaries({ seedsMax: 1, jobs: 1, only: ["nope"], run: caughtAt(1, "I8") });
    await assert.rejects(nothing, TypeError);
  });
});

describe("the table", () => {
  it("names seed and law, marks a law that was not expected, and shouts about what was not caught", async () => {
    const only = [
      "read-without-quorum",
      "expire-by-local-timer",
      "vote-twice-after-restart",
      "old-read-batch",
    ];
    const results = await runCanaries({
      seedsMax: 50,
      jobs: 2,
      only,
      run: (canary, from, to) => {
        switch (canary.name) {
          case "read-without-quorum":
            return caughtAt(12, "I8-linearizable")(canary, from, to);
          case "expire-by-local-timer":
            return caughtAt(3, "I4")(canary, from, to);
          case "old-read-batch":
            return Promise.reject(new Error("it broke\nin two lines"));
          default:
            return Promise.resolve(undefined);
        }
      },
    });
    const lines = renderTable(results).split("\n");
    assert.match(lines[1] ?? "", /^read-without-quorum +12 +I8-linearizable +The leader answers/);
    assert.match(lines[2] ?? "", /^expire-by-local-timer +3 +I4 \(expected I10, I11\) /);
    assert.match(lines[3] ?? "", /^vote-twice-after-restart +>50 +NOT CAUGHT /);
    assert.match(lines[4] ?? "", /^old-read-batch +- +BROKEN: it broke +A read/);
    assert.equal(lines.at(-1), "2 of 4 canaries caught");
  });
});
