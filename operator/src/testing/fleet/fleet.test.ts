import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, it } from "node:test";
import { measured, table, writesOf } from "./report.ts";
import type { Sample } from "./report.ts";

const MAIN = join(import.meta.dirname, "main.ts");

describe("the fleet program", () => {
  it("brings cells up with the operator's own program, and finds that an idle fleet is left alone", () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [
        ...[MAIN, "--source", "--cells", "2", "--voters", "1", "--nodes", "3"],
        // So short a time says nothing of the processor.
        ...["--settle-seconds", "1", "--minutes", "0.02", "--cpu-max", "100"],
      ],
      { encoding: "utf8" },
    );
    assert.equal(status, 0, `${stdout}\n${stderr}`);
    assert.match(stdout, /2 cells of 1 voters.*all Ready after/);
    assert.match(stdout, /API requests per idle cell and minute +\d/);
  });
});

function sample(of: {
  readonly atMs: number;
  readonly cpuSeconds: number;
  readonly requests: Readonly<Record<string, number>>;
}): Sample {
  const { atMs, cpuSeconds, requests } = of;
  return {
    usage: { atMs, cpuSeconds, residentBytes: 1e8, residentBytesMax: 2e8 },
    requests: new Map(Object.entries(requests)),
    metrics: new Map([
      [
        'lockstep_operator_api_request_seconds_count{verb="get",resource="secrets",outcome="200"}',
        atMs / 100,
      ],
      ['lockstep_operator_queue_work_seconds_count{queue="cells",outcome="ok"}', atMs / 1_000],
    ]),
    adminCalls: atMs / 10,
  };
}

describe("a measurement", () => {
  const before = sample({ atMs: 0, cpuSeconds: 10, requests: { "get secrets": 5, "create pods": 9 } });

  it("is what was used between two moments", () => {
    const requests = { "get secrets": 605, "create pods": 9, "patch leases": 30 };
    const idle = measured(before, sample({ atMs: 60_000, cpuSeconds: 11.2, requests }));
    assert.equal(idle.minutes, 1);
    assert.ok(Math.abs(idle.cpu - 2) < 1e-9, String(idle.cpu));
    assert.deepEqual(Object.fromEntries(idle.requests), { "get secrets": 600, "patch leases": 30 });
    assert.deepEqual(Object.fromEntries(idle.ownRequests), { "get secrets": 600 });
    assert.equal(idle.passes, 60);
    assert.equal(writesOf(idle), 0);
    assert.match(table(idle, { cells: 10, members: 30 }), /API requests per idle cell and minute +60\.00/);
    assert.match(table(idle, { cells: 10, members: 30 }), /admin calls per member and minute +200\.00/);
  });

  it("counts writes, which an idle fleet has no need of", () => {
    const requests = { "get secrets": 5, "create pods": 10, "patch coordinationcells/status": 2 };
    assert.equal(writesOf(measured(before, sample({ atMs: 60_000, cpuSeconds: 10, requests }))), 3);
  });
});
