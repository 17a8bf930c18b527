/** All clients of one history, with the checkers that judge what they see. */
import { NO_LEASE_ID } from "@lockstep/client";
import type { History } from "../../linearizability/history.ts";
import { ClaimLedger } from "../checkers/claims.ts";
import { CompactionLedger } from "../checkers/compactions.ts";
import { GuardedRegister } from "../checkers/guarded-register.ts";
import { LeaseKeyChecker } from "../checkers/lease-keys.ts";
import { ReadChecker } from "../checkers/reads.ts";
import { RegisterHistory } from "../checkers/register-history.ts";
import type { Resource } from "../checkers/resources.ts";
import { SessionLedger } from "../checkers/sessions.ts";
import { WaiterLedger } from "../checkers/waiters.ts";
import { WriteLedger } from "../checkers/writes.ts";
import type { ActorContext, Reporter, Scheduler, TimeUs, Truth } from "../contract.ts";
import { runCompactor } from "./compactor.ts";
import { contendFor } from "./contenders.ts";
import { runLeases } from "./leases.ts";
import { ACTOR_KINDS, type ActorKind, type WorkloadPlan } from "./plan.ts";
import { runRegisters } from "./registers.ts";
import { expectNothingLeft } from "./remains.ts";
import { runSequences } from "./sequences.ts";
import { runStreams } from "./streams.ts";
import { OpenCalls, registerId, type Actor, type Tools } from "./tools.ts";
import { runWatches } from "./watches.ts";

export const ACTORS: Readonly<Record<ActorKind, Actor>> = {
  registers: runRegisters,
  sequences: runSequences,
  leases: runLeases,
  locks: contendFor(({ locks }) => locks),
  contenders: contendFor(({ resources }) => resources),
  watches: runWatches,
  streams: runStreams,
  compactor: runCompactor,
};

/** The default bound of how fast or slow a clock may run against another, as a fraction. */
const DRIFT_MAX = 0.01;

export interface WorkloadOptions {
  readonly plan: WorkloadPlan;
  readonly truth: Truth;
  readonly reporter: Reporter;
  readonly scheduler: Scheduler;
  /** The largest difference in rate between any two clocks of the world, as a fraction. Default 0.01. */
  readonly driftMax?: number;
  /** Up to where the cell gives up history by itself. Default: nowhere. */
  readonly retained?: () => number;
}

export interface WorkloadActor {
  readonly name: string;
  /** Ends some time after `context.stopping`; rejects with a violation only. May be run anew after its process died. */
  run(context: ActorContext): Promise<void>;
}

export interface Workload {
  actors(): readonly WorkloadActor[];
  /** In the turn of the kill: calls of that process have unknown outcomes, and nobody counts on its leases. */
  processKilled(host: string): void;
  /** What was asked of the registers and told: as lines of JSON for people, for instance. */
  registerHistory(): History;
  /** Stale writes that reached the registers without a guard. */
  staleWritesWithoutGuard(): number;
  /** From now on there are no faults, and the cell is well: watches that end have to have caught up within a bound. */
  healed(): void;
  /**
   * The cell has been healthy since then: leases that nobody renews have ended within TTL and `boundMs`.
   */
  expectNoOrphanLeases(healedAtUs: TimeUs, boundMs: number): void;
  /** The checks that only the end of a history allows, linearizability among them. */
  finish(): void;
}

export function createWorkload(options: WorkloadOptions): Workload {
  const { plan, truth, reporter, scheduler } = options;
  const driftMax = options.driftMax ?? DRIFT_MAX;
  const compactions = new CompactionLedger(options.retained);
  const locks = Array.from({ length: plan.lockNames }, (_, index): Resource => {
    return { recipe: "lock", name: `l${String(index + 1)}`, permits: 1 };
  });
  const resources = plan.recipes.map((recipe): Resource => {
    return { recipe, name: "x", permits: recipe === "semaphore" ? plan.permits : 1 };
  });
  const claims = new ClaimLedger(truth, reporter, [...locks, ...resources]);
  const leaseKeys = new LeaseKeyChecker(truth, reporter);
  let values = 0;
  let connections = 0;
  const tools: Tools = {
    plan,
    truth,
    reporter,
    scheduler,
    openCalls: new OpenCalls(),
    writes: new WriteLedger(truth, reporter),
    reads: new ReadChecker(truth, reporter),
    sessions: new SessionLedger(truth, reporter, driftMax),
    claims,
    waiters: new WaiterLedger(truth, claims, reporter, scheduler),
    compactions,
    history: new RegisterHistory({ scheduler, reporter, truth }),
    registers: guardedRegisters([...locks, ...resources], claims, reporter),
    locks,
    resources,
    health: { healedAtUs: undefined },
    places: new Map(),
    openWatches: new Map(),
    uniqueValue: () => `v${String((values += 1))}`,
    nextConnection: () => (connections += 1),
  };
  const actors = ACTOR_KINDS.flatMap((kind) =>
    Array.from({ length: plan.actors[kind] }, (_, index) => ({
      name: `${kind}${String(index + 1)}`,
      run: (context: ActorContext) => ACTORS[kind](context, tools),
    })),
  );
  return {
    actors: () => actors,
    processKilled: (host) => {
      tools.openCalls.processKilled(host);
      tools.sessions.processKilled(host, scheduler.nowUs);
      tools.claims.processKilled(host);
      tools.waiters.processKilled(host);
      const watches = tools.openWatches.get(host);
      tools.openWatches.delete(host);
      for (const { name, nextRevision } of watches ?? []) tools.places.set(name, nextRevision);
    },
    registerHistory: () => tools.history.history,
    staleWritesWithoutGuard: () => {
      let stale = 0;
      for (const register of tools.registers.values()) stale += register.staleWithoutGuard;
      return stale;
    },
    healed: () => {
      tools.health.healedAtUs = scheduler.nowUs;
      tools.waiters.healed();
    },
    expectNoOrphanLeases: (healedAtUs, boundMs) => {
      tools.sessions.expectNoOrphans(scheduler.nowUs, healedAtUs, boundMs);
      for (const { key, leaseId, modRevision } of truth.rangeAt("", truth.revision)) {
        if (leaseId === NO_LEASE_ID || tools.sessions.isCountedOn(leaseId)) continue;
        const sinceUs = Math.max(healedAtUs, truth.at(modRevision)?.atUs ?? 0);
        if (scheduler.nowUs <= sinceUs + (plan.ttlMsMax * (1 + driftMax) + boundMs) * 1_000) continue;
        reporter.violation(
          "I10-late",
          `${key} hangs on lease ${leaseId}, which nobody renews, and is still there`,
        );
      }
    },
    finish: () => {
      leaseKeys.finish();
      expectNothingLeft(tools);
      tools.history.check();
    },
  };
}

/** What the resources protect: one thing each, and one for each slot of a semaphore. */
function guardedRegisters(
  resources: readonly Resource[],
  claims: ClaimLedger,
  reporter: Reporter,
): ReadonlyMap<string, GuardedRegister> {
  const registers = new Map<string, GuardedRegister>();
  for (const resource of resources) {
    for (let slot = 0; slot < resource.permits; slot += 1) {
      const role = resource.recipe === "semaphore" ? (`slot ${slot}` as const) : "exclusive";
      registers.set(registerId(resource, role), new GuardedRegister(resource, claims, reporter));
    }
  }
  return registers;
}
