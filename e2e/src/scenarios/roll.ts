// Images are rolled: one member at a time, the leader last; a bad one stops at the first, and a fix goes through.
import assert from "node:assert/strict";
import { Cell, conditionOf, installOperator, isTrue, otherCellImage } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";

const GAP_MS_MAX = 1_000;

export const roll: Scenario = {
  name: "roll",
  about:
    "a new image goes round one member at a time; a bad image stops at the first, and its fix goes through",
  ci: true,
  minutes: 10,
  run: async (context) => {
    await installOperator(context);
    const image = await otherCellImage(context, "next");
    const { cell } = await Cell.create(context);
    const load = await startLoad(context, { cell: "main" });
    await load.mark("roll");
    const started = performance.now();
    await cell.patch({ image });
    await cell.until("all run the new image", (object) => {
      const ready = object.status?.readyVoters ?? 3;
      assert.ok(ready >= 2, `never fewer than two ready voters: ${String(ready)}`);
      // Before the operator has seen the new spec, the conditions are those of the old one.
      const isSeen = object.status?.observedGeneration === object.metadata.generation;
      return isSeen && isTrue(object, "UpToDate") && isTrue(object, "Ready");
    });
    context.say(`rolled in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    assert.ok((await cell.pods()).every(({ spec }) => spec.containers[0]?.image === image));
    const rolled = await load.report();
    context.say(describePhase(rolled));

    await load.mark("bad image");
    await cell.patch({ image: "lockstep-cell:does-not-exist" });
    const stuck = await cell.until(
      "the bad image is told",
      (object) => /ErrImage|ImagePull|does-not-exist/.test(JSON.stringify(object.status?.conditions ?? [])),
      60_000,
    );
    context.say(`told: ${conditionOf(stuck, "Ready")?.message ?? ""}`);
    const bad = (await cell.pods()).filter(({ spec }) => spec.containers[0]?.image !== image);
    assert.equal(bad.length, 1, "only the first got the bad image");
    await cell.patch({ image });
    await cell.untilReady();
    await cell.checkAtRest();
    context.say(describePhase(await load.report()));
    await load.verify();
    const gap = rolled.current.longestWriteGapMs;
    assert.ok(gap <= GAP_MS_MAX, `no write gap over ${String(GAP_MS_MAX)} ms: ${String(gap)} ms`);
  },
};
