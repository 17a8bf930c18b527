import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LoadReport, Stage } from "./load-report.ts";
import type { SystemName } from "./options.ts";
import { NOTHING, type Results } from "./results.ts";
import type { Measurement } from "./suites/table.ts";
import { judge, renderTargets, TARGETS, type Verdict } from "./targets.ts";

const labels = { etcd: "etcd", lockstep: "Lockstep", "lockstep-etcd-api": "Lockstep, etcd API" };

function measured(system: SystemName, workload: string, fields: Partial<LoadReport>): Measurement {
  const report: LoadReport = {
    ...{ mode: "put", clients: 1, connections: 1, operations: 10, completed: 10, seconds: 1 },
    ...{
      operationsPerSecond: 1,
      errors: 0,
      p50Ms: 1,
      p90Ms: 1,
      p99Ms: 1,
      p999Ms: 1,
      maxMs: 1,
      cpuSeconds: 1,
    },
    ...fields,
  };
  return { system, round: 1, workload, report, serverCpuSeconds: 1, residentBytes: [] };
}

function verdictOf(results: Partial<Results>, work: string, figure = ""): Verdict {
  const found = judge({ ...NOTHING, ...results }).find(
    ({ target }) => target.work === work && target.figure === figure,
  );
  assert.ok(found !== undefined, work);
  return found;
}

describe("the table of targets", () => {
  it("judges a ratio by what was reached on both sides, whichever way is better", () => {
    const table = (ours: number): readonly Measurement[] => [
      measured("etcd", "put-1000", { operationsPerSecond: 1_000, p99Ms: 100 }),
      measured("lockstep", "put-1000", { operationsPerSecond: ours, p99Ms: 31 }),
    ];
    const work = "put, 1,000 in flight";
    assert.deepEqual(
      [3_999, 4_000, 10_000].map((ours) => {
        const { must, aim } = verdictOf({ table: table(ours) }, work);
        return [must, aim];
      }),
      [
        ["missed", false],
        ["met", false],
        ["met", true],
      ],
    );
    assert.equal(verdictOf({ table: table(4_000) }, work, "p99").must, "missed");
  });

  it("judges an absolute bound without etcd beside it", () => {
    const table = [measured("lockstep", "renew", { operationsPerSecond: 100_000 })];
    const { must, aim, ratio } = verdictOf({ table }, "lease renewals");
    assert.deepEqual([must, aim, ratio], ["met", false, undefined]);
  });

  it("never calls met what was not measured, or what failed", () => {
    for (const { must } of judge(NOTHING)) assert.equal(must, "not measured");
    const failed: Measurement = {
      ...{ system: "lockstep", round: 1, workload: "renew", failure: "it broke" },
      ...{ serverCpuSeconds: 0, residentBytes: [] },
    };
    assert.equal(verdictOf({ table: [failed] }, "lease renewals").must, "not measured");
    assert.equal(judge(NOTHING).length, TARGETS.length);
  });

  it("takes the median gap over the kills that were measured", () => {
    const failover = [600, 100, 5_000].map((gapMs, kill) => ({ system: "lockstep", kill, gapMs }) as const);
    const work = "longest write gap after kill -9 of the leader";
    assert.equal(verdictOf({ failover }, work, "median").lockstep, 600);
  });

  it("does not take a curve that ended early for a million sessions", () => {
    const stage: Omit<Stage, "watches"> = {
      ...{ kind: "watches", residentBytes: [1e9, 1e9, 1e9], openedPerSecond: 1, renewalsPerSecond: 0 },
      ...{ putsPerSecond: 1, putP50Ms: 1, putP99Ms: 1, events: 0, errors: 0, sessions: 1_000_000 },
    };
    const work = "1,000,000 sessions + 2,000,000 watches";
    const of = (watches: number): Verdict => {
      const curve = { system: "lockstep", stages: [{ ...stage, watches }], watchesLeftOut: 0 } as const;
      return verdictOf({ sessions: [curve] }, work, "resident");
    };
    assert.equal(of(1_000_000).must, "not measured");
    assert.equal(of(2_000_000).must, "met");
  });

  it("prints what was measured, and counts what was not", () => {
    const table = [
      measured("etcd", "get", { operationsPerSecond: 10_000 }),
      measured("lockstep", "get", { operationsPerSecond: 20_000 }),
    ];
    const text = renderTargets(judge({ ...NOTHING, table }), labels);
    assert.match(text, /linearizable get, 1,000 +10,000\/s +20,000\/s +2\.00x +>= 5x +>= 15x +missed/);
    assert.match(text, new RegExp(`${String(TARGETS.length - 1)} not measured`));
    assert.doesNotMatch(text, /mutex/);
  });
});
