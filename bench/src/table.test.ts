import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LoadReport } from "./load-report.ts";
import { parseLoadReport } from "./load-report.ts";
import type { SystemName } from "./options.ts";
import type { Measurement } from "./suites/table.ts";
import { median, renderTable, summarise } from "./table.ts";
import { WORKLOADS } from "./workloads.ts";

function report(operationsPerSecond: number, errors = 0): LoadReport {
  return {
    mode: "put",
    clients: 64,
    connections: 1,
    operations: operationsPerSecond * 5,
    completed: operationsPerSecond * 6,
    seconds: 5,
    operationsPerSecond,
    errors,
    ...(errors > 0 ? { firstError: "overloaded" } : {}),
    p50Ms: 1,
    p90Ms: 2,
    p99Ms: 4,
    p999Ms: 8,
    maxMs: 16,
    cpuSeconds: 1,
  };
}

function measurement(system: SystemName, round: number, outcome: LoadReport | string): Measurement {
  return {
    system,
    round,
    workload: "put-64",
    ...(typeof outcome === "string" ? { failure: outcome } : { report: outcome }),
    serverCpuSeconds: 3,
    residentBytes: [100e6, 120e6, 110e6],
  };
}

const labels = { etcd: "etcd", lockstep: "Lockstep", "lockstep-etcd-api": "Lockstep, etcd API" };
const put64 = WORKLOADS.filter((workload) => workload.name === "put-64");

describe("the bench's table", () => {
  it("takes the middle of an odd number of rounds and the mean of the middle two of an even one", () => {
    assert.equal(median([9, 1, 5]), 5);
    assert.equal(median([9, 1, 5, 7]), 6);
    assert.ok(Number.isNaN(median([])));
  });

  it("sums operations and errors over the rounds and takes medians of the rest", () => {
    const summary = summarise([100, 300, 200].map((rate, i) => measurement("etcd", i + 1, report(rate, i))));
    assert.equal(summary.operationsPerSecond, 200);
    assert.equal(summary.operations, 3000);
    assert.equal(summary.errors, 3);
    assert.equal(summary.firstError, "overloaded");
  });

  it("prints the ratio of Lockstep to etcd", () => {
    const rows = renderTable(
      put64,
      [measurement("etcd", 1, report(1_000)), measurement("lockstep", 1, report(8_000))],
      labels,
    );
    assert.match(rows, /Lockstep \/ etcd +8\.00x +1\.00x/);
    assert.match(rows, /round 1: 100 - 120/);
  });

  it("tells processor time by answered operation, the warm-up's too", () => {
    const summary = summarise([measurement("etcd", 1, report(1_000))]);
    assert.equal(summary.serverMicros, 500);
    assert.ok(Math.abs(summary.loadMicros - 1e6 / 6_000) < 1e-9);
  });

  it("never hides an error or a run that failed", () => {
    const rows = renderTable(
      put64,
      [measurement("etcd", 1, "the generator broke"), measurement("lockstep", 1, report(8_000, 17))],
      labels,
    );
    assert.match(rows, /FAILED on etcd: the generator broke/);
    assert.match(rows, /errors on Lockstep, the first: overloaded/);
    assert.match(rows, / 17 /);
  });
});

describe("a load report", () => {
  it("is read back as it was printed", () => {
    assert.deepEqual(parseLoadReport(JSON.stringify(report(10))), report(10));
  });

  it("is refused when a figure is missing", () => {
    const { p99Ms, ...rest } = report(10);
    assert.equal(p99Ms, 4);
    assert.throws(() => parseLoadReport(JSON.stringify(rest)), /p99Ms/);
  });
});
