// A voter is replaced while the cell serves: surge, one joint change, and only then the old one goes.
import assert from "node:assert/strict";
import { Cell, installOperator } from "../lockstep.ts";
import { describePhase, startLoad } from "../load-client.ts";
import type { Scenario } from "../scenario.ts";

const GAP_MS_MAX = 1_000;

export const replace: Scenario = {
  name: "replace",
  about: "the voter that leads is replaced under load, and its CellMember, Pod and Secret are gone after",
  ci: true,
  minutes: 6,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const load = await startLoad(context, { cell: "main" });
    const before = await cell.get();
    const old = before.status?.leader ?? "";
    const zone = before.status?.members?.find(({ name }) => name === old)?.zone;
    await load.mark("replace");
    const started = performance.now();
    await cell.request({ action: "Replace", member: old });
    context.say(`${old}, which led, replaced in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    const after = await cell.untilReady();
    const members = after.status?.members ?? [];
    assert.ok(members.every(({ name }) => name !== old));
    assert.equal(
      members.filter((member) => member.zone === zone).length,
      1,
      "the newcomer is in the same zone",
    );
    const ids = (object: typeof after): readonly number[] =>
      (object.status?.members ?? []).map(({ id }) => id ?? 0);
    assert.ok(Math.max(...ids(after)) > Math.max(...ids(before)), "its id was never used before");
    await cell.checkAtRest();
    await context.kubectl(["wait", "--for=delete", `cellmember/${old}`, `pod/${old}`, "--timeout=60s"]);
    const report = await load.report();
    context.say(describePhase(report));
    await load.verify();
    assert.ok(
      report.current.longestWriteGapMs <= GAP_MS_MAX,
      `no write gap over ${String(GAP_MS_MAX)} ms: ${String(report.current.longestWriteGapMs)} ms`,
    );
  },
};
