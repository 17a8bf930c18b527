import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { renderChart } from "./chart.ts";
import { NOTHING, type Results } from "./results.ts";
import { judge } from "./targets.ts";

const about = {
  labels: { etcd: "etcd 3", lockstep: "Lockstep", "lockstep-etcd-api": "Lockstep, etcd API" },
  facts: "2 cores, <no> memory & so on",
};

function chartOf(results: Results): string {
  return renderChart(results, judge(results), about);
}

describe("the chart", () => {
  it("has a bar for each ratio, marked when it misses what it must", () => {
    const large = (["etcd", "lockstep"] as const).map((system) => ({
      ...{ system, keys: 1_000_000, keysPerSecond: system === "etcd" ? 100 : 200 },
      ...{ residentBytes: [100e6], restartMs: system === "etcd" ? 1_000 : 3_000, errors: 0 },
    }));
    const chart = chartOf({ ...NOTHING, large });
    // Fill twice as fast (met), as much memory and three times as long a restart (both missed).
    assert.equal(chart.match(/class="bar"/g)?.length, 1);
    assert.equal(chart.match(/class="bar missed"/g)?.length, 2);
    assert.match(chart, />3\.00x</);
  });

  it("has a line for each system that grew", () => {
    const point = {
      ...{ fillPerSecond: 1, putsPerSecond: 1, putP50Ms: 1, putP99Ms: 1, getsPerSecond: 10, getP50Ms: 1 },
      ...{ getP99Ms: 1, residentBytes: [1e6], errors: 0 },
    };
    const growth = (["etcd", "lockstep"] as const).flatMap((system) =>
      [1_000, 10_000].map((keys) => ({ ...point, system, keys })),
    );
    const chart = chartOf({ ...NOTHING, growth });
    assert.equal(chart.match(/<polyline [^>]*class="etcd"/g)?.length, 3);
    assert.equal(chart.match(/<polyline [^>]*class="lockstep"/g)?.length, 3);
    assert.doesNotMatch(chart, /NaN|Infinity/);
  });

  it("is a picture even of nothing, and escapes what it is told", () => {
    const chart = chartOf(NOTHING);
    assert.match(chart, /^<svg [^]*<\/svg>\n$/);
    assert.match(chart, /&lt;no&gt; memory &amp; so on/);
  });
});
