/** Cells with a known defect behind the production door: the actors and checkers find each. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Coordinator, ReadOutcome } from "@lockstep/gateway";
import type { MemoryCoordinator } from "../../../gateway/src/testing/memory-coordinator.ts";
import { drawWorkloadPlan, type WorkloadPlan } from "./plan.ts";
import { manualCell } from "./testing/manual-cell.ts";
import { createWorkload } from "./workload.ts";
import { SeededDice } from "../kernel/dice.ts";

const SECONDS_MAX = 60;

type Defect = (right: MemoryCoordinator) => Partial<Coordinator>;

async function findIn(defect: Defect, actors: Partial<WorkloadPlan["actors"]>): Promise<void> {
  const cell = manualCell(5, (right) => ({ ...delegate(right), ...defect(right) }));
  const plan: WorkloadPlan = {
    ...drawWorkloadPlan(new SeededDice(5)),
    operationsPerSecond: 8,
    deadlineMs: 2_000,
    ttlMsMin: 2_000,
    ttlMsMax: 2_000,
    actors: {
      registers: 0,
      sequences: 0,
      leases: 0,
      locks: 0,
      contenders: 0,
      watches: 0,
      streams: 0,
      compactor: 0,
      ...actors,
    },
  };
  const { truth, reporter, world } = cell;
  await cell.live(createWorkload({ plan, truth, reporter, scheduler: world.scheduler }), SECONDS_MAX);
}

function delegate(right: MemoryCoordinator): Coordinator {
  return {
    mutate: (mutation, deliver) => right.mutate(mutation, deliver),
    read: (read, deliver) => right.read(read, deliver),
    renew: (renewal, deliver) => right.renew(renewal, deliver),
    watch: (request, sink) => right.watch(request, sink),
    onLeaseEnd: (listener) => right.onLeaseEnd(listener),
    onLeaderChange: (listener) => right.onLeaderChange(listener),
    info: () => right.info(),
  };
}

/** Every so often, from the third time on. */
function sometimes(every: number): () => boolean {
  let count = 0;
  return () => (count += 1) > 2 && count % every === 0;
}

describe("a cell with a known defect is found out:", () => {
  it("an old answer served again", async () => {
    const stale = sometimes(5);
    const answers = new Map<string, ReadOutcome>();
    const defect: Defect = (right) => ({
      read: (read, deliver) =>
        right.read(read, (outcome) => {
          const question = JSON.stringify(read.operation);
          const old = answers.get(question);
          answers.set(question, outcome);
          deliver(old !== undefined && stale() ? old : outcome);
        }),
    });
    await assert.rejects(findIn(defect, { registers: 3 }), /I8-stale|I12/);
  });

  it("a mutation that runs a second time", async () => {
    const again = sometimes(10);
    const defect: Defect = (right) => ({
      mutate: (mutation, deliver) => {
        right.mutate(mutation, deliver);
        if (mutation.operation.kind === "put" && again()) {
          right.mutate({ ...mutation, identity: { kind: "none" } }, () => undefined);
        }
      },
    });
    await assert.rejects(findIn(defect, { registers: 2 }), /I-idempotence/);
    await assert.rejects(findIn(defect, { sequences: 1 }), /I-idempotence/);
  });

  it("a write that is refused and done all the same", async () => {
    const refused = sometimes(10);
    const failure = { code: "no-leader", outcome: "not-applied", message: "no leader" } as const;
    const defect: Defect = (right) => ({
      mutate: (mutation, deliver) => {
        const isPut = mutation.operation.kind === "put";
        right.mutate(mutation, (outcome) => {
          deliver(
            isPut && refused() ? { ok: false, failure: { ...failure, code: "quota-exceeded" } } : outcome,
          );
        });
      },
    });
    await assert.rejects(findIn(defect, { registers: 2 }), /I-not-applied/);
  });

  for (const [name, actors] of [
    ["iterator", { registers: 2, watches: 4 }],
    ["stream", { registers: 2, streams: 4 }],
  ] as const) {
    it(`an event that is left out of a watch (${name})`, async () => {
      const drop = sometimes(6);
      const defect: Defect = (right) => ({
        watch: (request, sink) =>
          right.watch(request, {
            events: (events, revision) => drop() || sink.events(events, revision),
            progress: (revision) => sink.progress(revision),
            end: (end) => sink.end(end),
          }),
      });
      await assert.rejects(findIn(defect, actors), /I9-complete|I9-progress/);
    });
  }

  it("progress that is told ahead of the events", async () => {
    const defect: Defect = (right) => ({
      watch: (request, sink) =>
        right.watch(request, {
          events: (events, revision) => sink.events(events, revision),
          progress: (revision) => sink.progress((revision + 3) as typeof revision),
          end: (end) => sink.end(end),
        }),
    });
    await assert.rejects(findIn(defect, { registers: 2, streams: 2 }), /I9-progress/);
  });

  it("a renewal that is acknowledged and forgotten", async () => {
    const defect: Defect = (right) => ({
      renew: (renewal, deliver) => {
        const revision = right.info().revision;
        deliver({ ok: true, revision, remainingMs: renewal.leaseIds.map(() => 2_000) });
      },
    });
    await assert.rejects(findIn(defect, { leases: 2 }), /I10/);
    await assert.rejects(findIn(defect, { locks: 3 }), /I10|I11/);
    await assert.rejects(findIn(defect, { contenders: 3 }), /I10|I11/);
  });
});
