import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assertLinearizable, checkHistory } from "./check-history.ts";
import { check } from "./checker.ts";
import { keyModel } from "./model.ts";
import { SmallDice } from "./testing/dice.ts";
import { mutateOne } from "./testing/mutate.ts";
import { simulate } from "./testing/register.ts";
import type { Shape } from "./testing/register.ts";

const shape: Shape = {
  keys: ["a", "b", "c", "d", "e"],
  processes: 8,
  operations: 2_000,
  unknownChance: 0.05,
  notAppliedChance: 0.02,
  txnChance: 0,
  foreignChance: 0.05,
  legMax: 1_000,
};

describe("large histories of a correct cell", () => {
  // Steps and not milliseconds: they are the same on every machine (2,000 take some 15 ms).
  const kinds: Readonly<Record<string, readonly [over: Partial<Shape>, stepsPerOperationMax: number]>> = {
    "single keys": [{}, 2],
    "a fifth of all outcomes unknown": [{ unknownChance: 0.2 }, 3],
    "small transactions over three keys": [{ keys: ["a", "b", "c"], txnChance: 0.3, operations: 600 }, 30],
    "without any revisions": [{ keys: ["a", "b"], tacitChance: 1, processes: 5, operations: 200 }, 30],
  };
  for (const [name, [over, stepsPerOperationMax]] of Object.entries(kinds)) {
    it(`${name}: each is found to be good, in few steps`, () => {
      for (let seed = 0; seed < 8; seed += 1) {
        const history = simulate(new SmallDice(seed), { ...shape, ...over });
        const result = checkHistory(history);
        assert.equal(result.kind, "linearizable", `seed ${seed}: ${"text" in result ? result.text : ""}`);
        assert.ok(
          "steps" in result && result.steps <= stepsPerOperationMax * history.size,
          `seed ${seed}: ${JSON.stringify(result)}`,
        );
      }
    });
  }

  it("is decided alike each time", () => {
    const once = (): string => {
      const dice = new SmallDice(3);
      const history = mutateOne(simulate(dice, { ...shape, operations: 400 }).operations(), dice);
      return JSON.stringify(check(keyModel, history ?? []));
    };
    assert.equal(once(), once());
  });

  it("one stale answer among thousands is found, and told where it is", () => {
    for (let seed = 0; seed < 3; seed += 1) {
      const history = simulate(new SmallDice(seed), shape);
      const operations = [...history.operations()];
      const reads = operations.flatMap(({ input, outcome }, index) =>
        input.kind === "get" &&
        outcome.kind === "ok" &&
        outcome.output.kind === "get" &&
        outcome.output.found !== null
          ? [{ index, key: input.key, output: outcome.output, returnedAt: outcome.returnedAt }]
          : [],
      );
      const stale = reads.at(-1)!;
      const earlier = reads.find(
        ({ key, output }) => key === stale.key && output.found?.value !== stale.output.found?.value,
      )!;
      const operation = operations[stale.index]!;
      operations[stale.index] = {
        ...operation,
        outcome: {
          kind: "ok",
          output: { kind: "get", found: { value: earlier.output.found!.value } },
          returnedAt: stale.returnedAt,
        },
      };
      const result = check(keyModel, operations);
      assert.ok(result.kind === "violation", `seed ${seed}: ${result.kind}`);
      assert.ok(result.stuck.includes(operations[stale.index]!), `seed ${seed}:\n${result.text}`);
    }
    assertLinearizable(simulate(new SmallDice(0), shape));
  });
});
