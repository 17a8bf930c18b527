// A first cell: founded once, complete before anybody is let in, spread over zones and hosts.
import assert from "node:assert/strict";
import { Cell, installOperator, isTrue, kubectlLockstep } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";

const READY_SECONDS_MAX = 60;

export const firstCell: Scenario = {
  name: "first-cell",
  about: "a cell of three voters is Ready within a minute, and grows from one voter to three under load",
  ci: true,
  minutes: 8,
  run: async (context) => {
    await installOperator(context);
    const { cell, seconds } = await Cell.create(context, { name: "quick" });
    context.say(`three voters Ready ${seconds.toFixed(1)} s after kubectl apply`);
    await cell.checkAtRest();
    assert.ok(seconds <= READY_SECONDS_MAX, `Ready within ${String(READY_SECONDS_MAX)} s`);
    const picture = await kubectlLockstep(context, ["status", "quick"]);
    assert.equal(picture.code, 0, picture.stderr);
    assert.match(picture.stdout, /3\/3 voters ready/);
    await context.kubectl(["delete", "coordinationcell", "quick", "--timeout=90s"], { timeoutMs: 100_000 });

    const { cell: small } = await Cell.create(context, { name: "small", voters: 1 });
    const load = await startLoad(context, { cell: "small" });
    await load.mark("grow");
    const started = performance.now();
    await small.patch({ voters: 3 });
    let saw = 0;
    await small.until("three voters", (object) => {
      const { voters = 0 } = object.status ?? {};
      assert.notEqual(voters, 2, "it never rests at two voters");
      saw = Math.max(saw, voters);
      return voters === 3 && isTrue(object, "Ready");
    });
    assert.equal(saw, 3);
    context.say(`1 → 3 in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    await small.checkAtRest();
    context.say(describePhase(await load.report()));
    await load.verify();
  },
};
