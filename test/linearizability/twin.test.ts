import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { check } from "./checker.ts";
import type { KeyOperation } from "./facts.ts";
import { keyModel } from "./model.ts";
import { checkRevisionOrder } from "./revision-order.ts";
import { SmallDice } from "./testing/dice.ts";
import { mutateOne } from "./testing/mutate.ts";
import { simulate } from "./testing/register.ts";
import type { Shape } from "./testing/register.ts";
import { bruteForce } from "./testing/twin.ts";
import { describeOperation } from "./text.ts";

const SEEDS = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly" ? 20_000 : 2_000;

/** `LOCKSTEP_TWIN_SEED=N` replays one seed. */
const only = process.env["LOCKSTEP_TWIN_SEED"];

function seeds(): number[] {
  return only === undefined ? Array.from({ length: SEEDS }, (_, seed) => seed) : [Number(only)];
}

function shapeOf(dice: SmallDice, oneGroup: boolean): Shape {
  const keys = dice.pick(
    oneGroup
      ? [["a"], ["a"], ["a", "b"]]
      : [
          ["a", "b"],
          ["a", "b", "c"],
        ],
  );
  return {
    keys,
    processes: dice.between(2, 4),
    operations: dice.between(3, 6),
    unknownChance: dice.pick([0, 0.15, 0.3]),
    txnChance: !oneGroup ? 0 : keys.length > 1 ? 0.6 : 0.2,
    foreignChance: dice.pick([0, 0.2]),
    tacitChance: dice.pick([0, 0, 0, 0.2, 1]),
    legMax: dice.pick([0, 3, 8]),
  };
}

/** Keeps the twin's work in bounds: each write without a told revision multiplies it. */
function small(history: readonly KeyOperation[]): boolean {
  const open = history.filter(
    ({ input, outcome }) =>
      input.kind !== "get" && (outcome.kind === "unknown" || outcome.output.revision === undefined),
  );
  return open.length <= 4;
}

function told(seed: number, history: readonly KeyOperation[]): string {
  const command = `LOCKSTEP_TWIN_SEED=${seed} node --test test/linearizability/twin.test.ts`;
  return `seed ${seed}: ${command}\n${history.map(describeOperation).join("\n")}`;
}

/** Two keys that no operation joins would be two groups: the twin decides over both at once. */
function joined(history: readonly KeyOperation[]): boolean {
  return keyModel.problems(history).length <= 1;
}

describe("the checker against a twin that tries everything", () => {
  it("agrees on random histories of one group of keys and on mutations of them, both ways", () => {
    const counts = { good: 0, bad: 0 };
    for (const seed of seeds()) {
      const dice = new SmallDice(seed);
      const operations = simulate(dice, shapeOf(dice, true)).operations();
      const histories = [operations, ...[1, 2, 3].flatMap(() => [mutateOne(operations, dice) ?? []])];
      for (const [index, history] of histories.entries()) {
        if (!small(history) || !joined(history)) continue;
        const expected = bruteForce(history);
        if (index === 0) assert.ok(expected, `the twin refuses a good history; ${told(seed, history)}`);
        const result = check(keyModel, history, { minimise: false });
        assert.equal(result.kind, expected ? "linearizable" : "violation", told(seed, history));
        counts[expected ? "good" : "bad"] += 1;
      }
    }
    if (only === undefined) assert.ok(counts.good > SEEDS && counts.bad > SEEDS / 2, JSON.stringify(counts));
  });

  it("over several groups refuses nothing that the twin accepts, and hardly accepts what it refuses", () => {
    const counts = { bad: 0, missed: 0 };
    for (const seed of seeds()) {
      const dice = new SmallDice(seed + 1_000_000);
      const operations = simulate(dice, shapeOf(dice, false)).operations();
      for (const history of [
        operations,
        mutateOne(operations, dice) ?? [],
        mutateOne(operations, dice) ?? [],
      ]) {
        if (!small(history)) continue;
        const expected = bruteForce(history);
        const accepted =
          checkRevisionOrder(history) === undefined &&
          check(keyModel, history, { minimise: false }).kind === "linearizable";
        assert.ok(accepted || !expected, told(seed, history));
        counts.bad += Number(!expected);
        counts.missed += Number(accepted && !expected);
      }
    }
    // Parts are checked one by one: two writes of unknown revision in two groups may have been given the same one.
    if (only === undefined)
      assert.ok(counts.bad > SEEDS / 4 && counts.missed < counts.bad / 50, JSON.stringify(counts));
  });
});
