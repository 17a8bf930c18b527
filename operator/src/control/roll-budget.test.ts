import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { RollBudget } from "./roll-budget.ts";

describe("the fleet's budget of rolling cells", () => {
  it("lets no more begin than it has places", () => {
    const budget = new RollBudget(1);
    assert.equal(budget.take("a"), true);
    assert.equal(budget.take("b"), false);
    assert.equal(budget.take("a"), true);
    budget.note("a", false);
    assert.equal(budget.take("b"), true);
  });

  it("counts cells that rolled before this operator began", () => {
    const budget = new RollBudget(2);
    budget.note("a", true);
    budget.note("b", true);
    assert.equal(budget.allows("c"), false);
    assert.equal(budget.allows("a"), true);
  });

  it("refuses a budget under which nothing would ever roll", () => {
    assert.throws(() => new RollBudget(0), TypeError);
  });
});
