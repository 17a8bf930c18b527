// The in-process register under the races that the others are put through.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { FencedRegister, StaleTokenError } from "@lockstep/client/guards/register";
import { assertGuarded, decreases, race, raceSeed } from "./support/race.ts";

const WRITERS = 16;
const WRITES_EACH = 200;

describe("a register under races", () => {
  it("accepted tokens never decrease", async (t) => {
    const register = new FencedRegister<readonly number[]>("race", []);
    const result = await race({
      seed: raceSeed("register.test.ts", (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (_, token, dice) => {
        for (let turns = dice.between(0, 3); turns > 0; turns -= 1) await turn();
        try {
          register.write(token, [...register.value, token]);
          return true;
        } catch (error) {
          if (error instanceof StaleTokenError) return false;
          throw error;
        }
      },
    });
    assertGuarded(result, register.value);
    assert.equal(register.rejections, result.refused);
  });

  it("the same race with an await between check and effect shows decreases, so the test bites", async (t) => {
    const register = new FencedRegister("race", 0);
    const effects: number[] = [];
    await race({
      seed: raceSeed("register.test.ts", (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (_, token, dice) => {
        try {
          register.guard.admit(token);
        } catch {
          return false;
        }
        for (let turns = dice.between(0, 3); turns > 0; turns -= 1) await turn();
        effects.push(token);
        return true;
      },
    });
    assert(decreases(effects) > 0);
  });
});
