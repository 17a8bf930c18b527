import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { adminCode } from "../support/admin.ts";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

describe("membership under load", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(1);
  });
  after(async () => {
    await cell.stop();
  });

  it("grows 1→3→5, shrinks to 3, replaces a voter; no acknowledged write is lost", async (t) => {
    const writers = await Writers.start(cell.endpoints);
    t.after(() => writers.abandon());
    await writers.progress(100);

    for (const name of ["m2", "m3"]) (await cell.addProcess(name)).start(cell.joinFlags());
    await cell.promote(["m2", "m3"]);
    await writers.progress(100);
    for (const name of ["m4", "m5"]) (await cell.addProcess(name)).start(cell.joinFlags());
    await cell.promote(["m4", "m5"]);
    await writers.progress(100);
    assert.equal((await (await cell.leader()).adminApi.members()).members.length, 5);

    const leader = await cell.leader();
    let list = await leader.adminApi.members();
    const stale = list.configurationIndex;
    const idOf = (name: string): number => list.members.find((member) => member.name === name)?.id ?? -1;
    await leader.adminApi.change({ plannedOn: list.configurationIndex, remove: [idOf("m4"), idOf("m5")] });
    await writers.progress(100);
    await Promise.all(["m4", "m5"].map((name) => cell.member(name).exited()));

    await assert.rejects(
      (await cell.leader()).adminApi.change({ plannedOn: stale, remove: [idOf("m2")] }),
      (error) => adminCode(error) === "stale-plan",
    );

    (await cell.addProcess("m6")).start(cell.joinFlags());
    await until("m1 is replaced by m6 in one joint change", async () => {
      const { adminApi } = await cell.leader();
      list = await adminApi.members();
      if (list.members.every((member) => member.name !== "m6")) return undefined;
      return adminApi.change({
        plannedOn: list.configurationIndex,
        promote: [idOf("m6")],
        remove: [idOf("m1")],
      });
    });
    await cell.member("m1").exited();
    await writers.progress(100);

    const acknowledged = await writers.stop();
    t.diagnostic(
      `${String(writers.acknowledgedCount)} writes acknowledged, longest gap ${writers.longestGapMs.toFixed(0)} ms`,
    );
    const endpoints = cell.running.map((member) => member.address(0));
    assert.equal(endpoints.length, 3);
    await assertAllThere(endpoints, acknowledged);
    await cell.agreedDigest();
    list = await (await cell.leader()).adminApi.members();
    assert.deepEqual(list.members.map((member) => member.name).sort(), ["m2", "m3", "m6"]);
    assert.deepEqual([...list.removedIds].sort(), [1, 4, 5]);
  });
});
