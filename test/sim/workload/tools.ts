/** What all actors of one history share: the plan, the checkers and what survives the death of a process. */
import type { ClaimLedger } from "../checkers/claims.ts";
import type { CompactionLedger } from "../checkers/compactions.ts";
import type { GuardedRegister } from "../checkers/guarded-register.ts";
import type { ReadChecker } from "../checkers/reads.ts";
import type { RegisterHistory } from "../checkers/register-history.ts";
import type { Resource, Role } from "../checkers/resources.ts";
import type { SessionLedger } from "../checkers/sessions.ts";
import type { WaiterLedger } from "../checkers/waiters.ts";
import type { WatchChecker } from "../checkers/watch.ts";
import type { WriteLedger } from "../checkers/writes.ts";
import type { ActorContext, Reporter, Scheduler, TimeUs, Truth } from "../contract.ts";
import type { WorkloadPlan } from "./plan.ts";

/** Calls whose answers are awaited, by host: the death of a process leaves their outcomes unknown. */
export class OpenCalls {
  readonly #byHost = new Map<string, Set<() => void>>();

  /** @returns the function that forgets it: the call has ended. */
  begin(host: string, onDeath: () => void): () => void {
    let calls = this.#byHost.get(host);
    if (calls === undefined) {
      calls = new Set();
      this.#byHost.set(host, calls);
    }
    calls.add(onDeath);
    return () => calls.delete(onDeath);
  }

  processKilled(host: string): void {
    const calls = this.#byHost.get(host);
    this.#byHost.delete(host);
    for (const onDeath of calls ?? []) onDeath();
  }
}

export interface Tools {
  readonly plan: WorkloadPlan;
  readonly truth: Truth;
  readonly reporter: Reporter;
  readonly scheduler: Scheduler;
  readonly openCalls: OpenCalls;
  readonly writes: WriteLedger;
  readonly reads: ReadChecker;
  readonly sessions: SessionLedger;
  readonly claims: ClaimLedger;
  readonly waiters: WaiterLedger;
  readonly compactions: CompactionLedger;
  readonly history: RegisterHistory;
  /** Exclusive locks. */
  readonly locks: readonly Resource[];
  /** Of the other recipes: one of each kind that this history has. */
  readonly resources: readonly Resource[];
  /** What each of them protects, by {@link registerId}. */
  readonly registers: ReadonlyMap<string, GuardedRegister>;
  /** Where the watches of each actor stand, so that an actor that is started anew goes on there. */
  readonly places: Map<string, number>;
  /** Watches that are open now, by host. */
  readonly openWatches: Map<string, Set<WatchChecker>>;
  /** What is known of the cell as a whole. */
  readonly health: Health;
  /** A value that nobody else writes in this history. */
  readonly uniqueValue: () => string;
  /** A number that no other connection has. */
  readonly nextConnection: () => number;
}

export interface Health {
  /** Since when there are no faults and the cell is well; undefined: not yet. */
  healedAtUs: TimeUs | undefined;
}

/** Each slot of a semaphore protects something of its own: tokens of two slots have no order. */
export function registerId({ recipe, name }: Resource, role: Role): string {
  return role.startsWith("slot ") ? `${recipe} ${name} ${role}` : `${recipe} ${name}`;
}

/** An actor's program; it ends when the context is stopping. */
export type Actor = (context: ActorContext, tools: Tools) => Promise<void>;

/** Sleeps for one exponentially distributed pause between operations. */
export function pause(context: ActorContext, perSecond: number): Promise<void> {
  return context.sleep(1 + context.dice.exponential(1_000 / perSecond));
}
