import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { History } from "./history.ts";
import { SmallDice } from "./testing/dice.ts";
import { simulate } from "./testing/register.ts";

describe("the history", () => {
  it("comes back from its lines as it was", () => {
    const history = simulate(new SmallDice(7), {
      keys: ["a", "b"],
      processes: 4,
      operations: 200,
      unknownChance: 0.2,
      notAppliedChance: 0.1,
      txnChance: 0.3,
      foreignChance: 0.1,
      legMax: 20,
    });
    const again = History.fromJsonLines(history.toJsonLines());
    assert.deepEqual(again.operations(), history.operations());
    assert.deepEqual(again.refused(), history.refused());
    assert.ok(history.refused().length > 0 && history.operations().length < history.size);
    assert.equal(again.toJsonLines(), history.toJsonLines());
  });

  it("an operation that nobody ended has an unknown outcome; a refused one is left out", () => {
    const history = new History();
    history.begin("p1", { kind: "put", key: "k", value: "a" }, 1);
    history.notApplied(history.begin("p1", { kind: "put", key: "k", value: "b" }, 2));
    assert.deepEqual(
      history.operations().map(({ invokedAt, outcome }) => [invokedAt, outcome.kind]),
      [[1, "unknown"]],
    );
  });

  it("an operation ends once, after it began, with an answer of its kind", () => {
    const history = new History();
    const id = history.begin("p1", { kind: "get", key: "k" }, 5);
    assert.throws(() => history.ok(id, { kind: "get", found: null }, 4), /returned before it began/);
    assert.throws(() => history.ok(id, { kind: "put" }, 6), /cannot be answered like a put/);
    history.ok(id, { kind: "get", found: null }, 5);
    assert.throws(() => history.unknown(id), /has ended before/);
  });

  it("a line that is no operation is refused with its number", () => {
    assert.throws(() => History.fromJsonLines('\n{"process":1}\n'), /line 2 is no operation/);
  });
});
