import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Registry } from "prom-client";
import type { CoordinationCell } from "../api/types.ts";
import { createPrometheusMetrics } from "../kube/index.ts";
import { observeCells } from "./metrics.ts";

const cell = {
  metadata: { name: "main", namespace: "infra" },
  spec: { voters: 3 },
  status: {
    readyVoters: 2,
    conditions: [
      { type: "Ready", status: "False" },
      { type: "Available", status: "True" },
    ],
  },
} as unknown as CoordinationCell;

describe("the operator's metrics", () => {
  it("tell the fleet, beside those of the runtime in one registry", async () => {
    const registry = new Registry();
    createPrometheusMetrics(registry, "lockstep_operator_");
    let cells: readonly CoordinationCell[] = [cell];
    observeCells(registry, { cells: () => cells });
    const text = await registry.metrics();
    assert.match(text, /lockstep_cell_condition\{namespace="infra",cell="main",condition="Ready"\} 0/);
    assert.match(text, /condition="Available"\} 1/);
    assert.match(text, /condition="Degraded"\} -1/);
    assert.match(text, /lockstep_cell_voters_ready\{namespace="infra",cell="main"\} 2/);
    // What is gone is told no more.
    cells = [];
    assert.doesNotMatch(await registry.metrics(), /cell="main"/);
  });
});
