import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Stage } from "./load-report.ts";
import { NOTHING } from "./results.ts";
import { bytesEach, estimateBytes, renderSuites } from "./suite-text.ts";

const labels = { etcd: "etcd", lockstep: "Lockstep", "lockstep-etcd-api": "Lockstep, etcd API" };

function stage(fields: Partial<Stage>): Stage {
  return {
    ...{ kind: "sessions", sessions: 0, watches: 0, residentBytes: [100e6], openedPerSecond: 1 },
    ...{ renewalsPerSecond: 0, putsPerSecond: 1, putP50Ms: 1, putP99Ms: 1, events: 0, errors: 0 },
    ...fields,
  };
}

describe("memory for each session or watch", () => {
  const stages = [
    stage({}),
    stage({ sessions: 100_000, residentBytes: [200e6] }),
    stage({ kind: "watches", sessions: 100_000, watches: 100, residentBytes: [230e6] }),
    stage({ kind: "watches", sessions: 100_000, watches: 200_100, residentBytes: [330e6] }),
  ];
  const each = stages.map((one) => bytesEach(one, stages));

  it("is what the leader grew by since the one of the kind before", () => {
    assert.deepEqual(each.slice(1), [1_000, undefined, 500]);
  });

  it("is carried on to a million sessions and two million watches, and only where they were not reached", () => {
    assert.equal(estimateBytes(stages), 330e6 + 900_000 * 1_000 + 1_799_900 * 500);
    assert.equal(estimateBytes(stages.slice(0, 2)), undefined);
    const all = stage({ kind: "watches", sessions: 1_000_000, watches: 2_000_000, residentBytes: [2e9] });
    assert.equal(estimateBytes([...stages, all]), undefined);
  });

  it("is not told where there are too few of them to tell", () => {
    assert.equal(each[0], undefined);
  });
});

describe("the text of the suites", () => {
  it("is nothing for what was not run", () => {
    assert.equal(renderSuites(NOTHING, labels), "");
  });

  it("tells the median and the worst gap, and the kills that failed", () => {
    const failover = [
      { system: "lockstep", kill: 1, gapMs: 300, gapBeforeMs: 10, errors: 0 },
      { system: "lockstep", kill: 2, gapMs: 900, gapBeforeMs: 30, errors: 2 },
      { system: "lockstep", kill: 3, failure: "nobody led" },
    ] as const;
    const text = renderSuites({ ...NOTHING, failover }, labels);
    assert.match(text, /Lockstep +2 +600 ms +900 ms +20 ms +2/);
    assert.match(text, /FAILED: failover: nobody led/);
  });

  it("says where a curve ended, and what was left out", () => {
    const curve = {
      system: "lockstep",
      stages: [stage({})],
      watchesLeftOut: 1_000_000,
      failure: "it broke",
    } as const;
    const text = renderSuites({ ...NOTHING, sessions: [curve] }, labels);
    assert.match(text, /1,000,000 watches more were wanted/);
    assert.match(text, /ended before its end: it broke/);
  });
});
