import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startBuggyOperator } from "./one-pass.ts";
import type { Bug } from "./one-pass.ts";
import { Simulation } from "./simulation.ts";

const SEEDS = 200;
const CHAOS_SECONDS = 120;
/** The rarest of them shows in one history of thirty. */
const BUG_SEEDS_MAX = 150;

/** What no run of this many histories may lack: a fault or deed that never happens proves nothing. */
const MUST_HAPPEN = [
  ...["conflict", "throttled", "unavailable", "unknown", "crash-before", "crash-after", "slow"].map(
    (fault) => `fault ${fault}`,
  ),
  ...[
    "kill member",
    "wipe volume",
    "lose node",
    "cut node",
    "node down",
    "drain node",
    "pod ends",
    "delete pod",
  ].map((deed) => `deed ${deed}`),
  ...["slow copy", "slow disk", "new leader", "stale caches", "two operators", "burst of API errors"].map(
    (deed) => `deed ${deed}`,
  ),
  ...["voters", "image", "bad image", "storage"].map((what) => `deed edit ${what}`),
  ...["pause", "delete CellMember", "delete claim", "status lost", "recovery"].map((deed) => `deed ${deed}`),
  ...["delete cell", "delete foreground", "tenant goes"].map((deed) => `deed ${deed}`),
  ...["Replace", "TransferLeadership", "Restart", "Drain"].map((wish) => `deed wish ${wish}`),
  ...["Create", "Grow", "Shrink", "Replace", "Roll", "Transfer", "Recover"].map(
    (kind) => `operation ${kind}`,
  ),
  "eviction refused",
  "evicted",
];

void describe("the operator in a world that fails", () => {
  void it(`keeps all laws and converges in ${String(SEEDS)} histories`, async () => {
    const counts = new Map<string, number>();
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const result = await new Simulation({ seed, chaosSeconds: CHAOS_SECONDS }).run();
      const replay = `node operator/src/testing/main.ts --seed ${String(seed)} --chaos ${String(CHAOS_SECONDS)} --trace`;
      assert.deepEqual(result.broken, [], `replay with: ${replay}`);
      for (const [what, number] of result.counts) counts.set(what, (counts.get(what) ?? 0) + number);
    }
    const missing = MUST_HAPPEN.filter((what) => !counts.has(what));
    assert.deepEqual(missing, [], "these never happened");
  });

  void it("has the same history for the same seed", async () => {
    const tell = async (): Promise<string> => {
      const lines: string[] = [];
      await new Simulation({ seed: 11, chaosSeconds: 60, trace: (line) => lines.push(line) }).run();
      return lines.join("\n");
    };
    assert.equal(await tell(), await tell());
  });
});

const BUGS: readonly (Bug & { readonly name: string; readonly law: RegExp })[] = [
  {
    name: "believes everybody to be well",
    law: /while .* is sick|others are alive|voters alive|leaves while/,
    see: (o) => ({
      ...o,
      members: o.members.map((member) => ({
        ...member,
        status: member.status === undefined ? o.leader : { ...member.status, ready: true },
        pod: member.pod === undefined ? undefined : { ...member.pod, ready: true, readySinceMs: 0 },
      })),
      configuration:
        o.configuration === undefined
          ? undefined
          : {
              ...o.configuration,
              members: o.configuration.members.map((member) => ({
                ...member,
                incarnation:
                  o.members.find(({ name }) => name === member.name)?.status?.incarnation ??
                  o.leader?.incarnation ??
                  member.incarnation,
              })),
            },
      leader:
        o.leader === undefined
          ? undefined
          : {
              ...o.leader,
              progress: o.leader.progress.map((progress) => ({
                ...progress,
                state: "replicate" as const,
                recentlyActive: true,
                silentMs: 0,
                match: o.leader?.lastIndex ?? 0,
              })),
            },
    }),
  },
  {
    name: "adds and removes in two changes",
    law: /rests with [24] voters/,
    decide: (decision) => {
      const { action } = decision;
      if (action?.kind !== "change-membership" || action.change.promote.length === 0) return decision;
      return { ...decision, action: { ...action, change: { ...action.change, remove: [] } } };
    },
  },
  {
    name: "does not raise the budget",
    law: /minAvailable/,
    see: (o) => {
      const voters = o.configuration?.members.filter(({ kind }) => kind !== "learner").length;
      const isUnderWay = o.cell.status?.operation !== undefined && voters !== undefined;
      return isUnderWay ? { ...o, disruptionBudget: voters } : o;
    },
  },
  {
    name: "forgets that the leader leads",
    law: /removed without a transfer/,
    see: (o) => {
      const { configuration: c } = o;
      const outgoing = o.cell.status?.operation?.outgoing ?? [];
      const other = c?.members.find(({ kind, name }) => kind === "voter" && !outgoing.includes(name));
      const leader = c?.members.find(({ id }) => id === c.leaderId);
      if (c === undefined || other === undefined || !outgoing.includes(leader?.name ?? "")) return o;
      return { ...o, configuration: { ...c, leaderId: other.id } };
    },
  },
  {
    name: "gives every member the same name again",
    law: /made a second time/,
    decide: (decision) =>
      decision.action?.kind === "create-member" && !decision.action.bootstrap
        ? {
            ...decision,
            action: { ...decision.action, name: "cell-again" },
            status: {
              ...decision.status,
              ...(decision.status.operation === undefined
                ? {}
                : { operation: { ...decision.status.operation, incoming: ["cell-again"] } }),
            },
          }
        : decision,
  },
  {
    name: "bootstraps the first member at each start",
    // The planner restarts such a pod for ever, or a second cell is founded over a wiped volume.
    law: /a cell is founded when there is one|a second cell is founded|does not converge/,
    decide: (decision, o) => {
      const { action } = decision;
      if (action?.kind !== "create-pod") return decision;
      const object = o.members.find(({ name }) => name === action.member)?.object;
      return object?.spec.bootstrap === true
        ? { ...decision, action: { ...action, mode: { kind: "bootstrap" } } }
        : decision;
    },
  },
  {
    name: "deletes volumes that are to be retained",
    law: /deleted under reclaimPolicy Retain/,
    decide: (decision) =>
      decision.action?.kind === "release-member"
        ? { ...decision, action: { ...decision.action, deleteClaim: true } }
        : decision,
  },
  {
    name: "does not hear of the pause",
    law: /while paused/,
    see: (o) => ({ ...o, cell: { ...o.cell, spec: { ...o.cell.spec, paused: false } } }),
  },
  {
    name: "hangs members on their cell by owner reference",
    law: /deleted while tenants use the cell/,
    see: (o) => ({
      ...o,
      outdatedObjects: o.outdatedObjects.filter((name) => !name.startsWith("CellMember/")),
    }),
    build: (builders) => ({
      ...builders,
      member: (cell, action) => {
        const { apiVersion, kind, metadata } = cell;
        const owner = { apiVersion, kind, name: metadata.name, uid: metadata.uid ?? "", controller: true };
        const member = builders.member(cell, action);
        return { ...member, metadata: { ...member.metadata, ownerReferences: [owner] } };
      },
    }),
  },
  {
    name: "does not wait for tenants",
    law: /deleted while tenants use the cell/,
    see: (o) => ({ ...o, tenants: [] }),
  },
  {
    name: "never ends an operation",
    law: /does not converge/,
    decide: (decision, o) => {
      const { operation } = o.cell.status ?? {};
      return operation !== undefined && decision.status.operation === undefined
        ? { ...decision, status: { ...decision.status, operation } }
        : decision;
    },
  },
];

void describe("the laws catch an operator that", () => {
  for (const { name, law, ...bug } of BUGS) {
    void it(name, async () => {
      for (let seed = 1; seed <= BUG_SEEDS_MAX; seed += 1) {
        const start = startBuggyOperator(bug);
        const { broken } = await new Simulation({ seed, chaosSeconds: CHAOS_SECONDS, start }).run();
        if (broken.some((each) => law.test(each))) return;
      }
      assert.fail(`not caught in ${String(BUG_SEEDS_MAX)} histories`);
    });
  }
});
