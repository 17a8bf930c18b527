/**
 * The words that the parts of the simulator share. One world holds processes (members and clients), a network between
 * them and a disk under each member. Everything that happens is a function of the seed: no part reads a real clock, draws
 * real randomness or waits for real I/O. Between two events all microtasks run, so that production code may use promises.
 */
import type { NativeDoor } from "@lockstep/gateway";
import type { Client } from "@lockstep/client";
import type { Core } from "../../cell/src/member/core.ts";

/** Microseconds of true time since the world began; a safe integer. No process can see it. */
export type TimeUs = number;

/** A seeded generator; a fork is independent of what its parent draws later. */
export interface Dice {
  /** Uniform in [0, 1). */
  random(): number;
  chance(probability: number): boolean;
  /** A whole number, both ends included. */
  between(min: number, max: number): number;
  pick<T>(items: readonly T[]): T;
  /** With the given mean; at least 0. */
  exponential(mean: number): number;
  fork(label: string): Dice;
}

/** True time. Tasks due at one time run in the order in which they were scheduled. */
export interface Scheduler {
  readonly nowUs: TimeUs;
  /** @returns the function that calls it off. */
  in(delayUs: number, task: () => void): () => void;
}

/**
 * One run of a simulated operating-system process: with clocks of its own, it can be paused (its tasks wait, time goes
 * on) and killed (its tasks never run again). A restart is another process.
 */
export interface SimProcess {
  /** The host it runs on, as the network knows it: `m1`, `m2`... for members, `c1`... for clients. */
  readonly host: string;
  readonly alive: boolean;
  readonly paused: boolean;
  readonly dice: Dice;
  /** Of this process: drifts against true time, never goes back. */
  monotonicMs(): number;
  /** Of this process: drifts and jumps. */
  wallMs(): number;
  /** Runs `task` in this process after `delayUs` of true time, later when it is paused then, never once it is killed. */
  deliver(delayUs: number, task: () => void): () => void;
  /** The same, measured by the process's own monotonic clock. */
  after(delayMs: number, task: () => void): () => void;
  /** Called once, in the turn of the kill, outside of the process. */
  onKill(listener: () => void): void;
}

/** A member while it runs: from the end of its start until its process dies. */
export interface SimMember {
  readonly host: string;
  readonly memberId: number;
  readonly process: SimProcess;
  readonly core: Core;
  readonly door: NativeDoor;
}

/**
 * Where parts tell what they saw. A violation ends the history at once: it throws, and the runner prints seed, text and
 * the command that replays it.
 */
export interface Reporter {
  /** @param law the invariant's id, e.g. `I9` or `I9-ordered` */
  violation(law: string, text: string): never;
  /** Counts for the coverage line. */
  count(what: CoverageKey, by?: number): void;
  /** One line of `--trace`; `text` is only called when somebody traces. */
  trace(source: string, text: () => string): void;
}

/** What the histories must have exercised; each is printed by CI and none may be zero. */
export const COVERAGE_KEYS = [
  "steps",
  "elections",
  "configuration changes",
  "joint configurations",
  "snapshots sent",
  "snapshots installed",
  "members joined",
  "members removed",
  "transfers",
  "stalled leaders",
  "compactions",
  "crashes",
  "power cuts",
  "wiped disks",
  "corrupted disks",
  "failed syncs",
  "full disks",
  "slow disks",
  "partitions",
  "one-way partitions",
  "messages lost",
  "messages doubled",
  "messages reordered",
  "connections broken",
  "pauses",
  "clock jumps",
  "puts",
  "compare-and-sets",
  "transactions",
  "deletes",
  "sequential keys",
  "linearizable reads",
  "serializable reads",
  "reads at a revision",
  "unknown outcomes",
  "replayed answers",
  "leases granted",
  "leases revoked",
  "lease renewals",
  "lease expiries",
  "lease checkpoints",
  "sessions lost",
  "locks acquired",
  "multi-locks acquired",
  "fair locks acquired",
  "read-write locks acquired",
  "permits acquired",
  "terms led",
  "leaders observed",
  "holders asked",
  "remains waited for",
  "guarded writes accepted",
  "guarded writes refused",
  "stale writes without the guard",
  "watch events",
  "watch resumes",
  "watch compacted",
  "watch slow consumers",
  "progress notices",
  "digests compared",
  "linearizability checks",
] as const;
export type CoverageKey = (typeof COVERAGE_KEYS)[number];

/** One key's state in the one true history. Keys and values are latin-1 text. */
export interface TrueState {
  readonly key: string;
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly leaseId: string;
}

export interface TrueEvent {
  readonly kind: "put" | "delete";
  readonly key: string;
  /** The new state; undefined: deleted. */
  readonly state: TrueState | undefined;
  readonly previous: TrueState | undefined;
  readonly cause: string;
}

export interface TrueRevision {
  readonly revision: number;
  readonly events: readonly TrueEvent[];
  /** When the first member applied it. */
  readonly atUs: TimeUs;
}

/**
 * The one true history of the cell (namespace `default`): what a single machine, fed with each committed entry once and
 * in order, makes of it. It stands at the newest entry that any member has been handed as committed.
 */
export interface Truth {
  readonly revision: number;
  /** undefined: nothing happened at that revision, or it is not there yet. */
  at(revision: number): TrueRevision | undefined;
  /** The state of a key as of a revision, whatever was compacted. */
  stateAt(key: string, revision: number): TrueState | undefined;
  /** Live keys with this prefix as of a revision, in key order. */
  rangeAt(prefix: string, revision: number): readonly TrueState[];
  /** Called for every new revision, in order, in the turn in which it first was applied anywhere. */
  onRevision(listener: (revision: TrueRevision) => void): void;
  /** Called when a lease ends, in the turn in which that first was applied anywhere. */
  onLeaseEnd(listener: (leaseId: string, cause: string, atUs: TimeUs) => void): void;
}

/** A client process: the production client over the simulated network, with the process's own clock. */
export interface SimClient {
  readonly process: SimProcess;
  readonly client: Client;
}

/** What one actor (a piece of workload in a client process of its own) is handed. */
export interface ActorContext {
  readonly name: string;
  readonly dice: Dice;
  readonly scheduler: Scheduler;
  readonly truth: Truth;
  readonly reporter: Reporter;
  /**
   * Connects a new client process. Rejects like `connect`. Its process may be paused or killed by the nemesis at any
   * time: promises of a killed process never settle, and the actor is started anew by the world.
   * @param options `pinned`: it reaches one member only, drawn by the world, whoever leads
   */
  connect(options?: { readonly pinned?: boolean }): Promise<SimClient>;
  /** By the actor's process clock. */
  sleep(ms: number): Promise<void>;
  /** Becomes true when the world wants actors to come to an end: no new operations then, wait for what is under way. */
  readonly stopping: boolean;
}
