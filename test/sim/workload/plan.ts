/** What the clients of one history do: drawn from the seed. */
import type { Recipe } from "../checkers/resources.ts";
import type { Dice } from "../contract.ts";

export const ACTOR_KINDS = [
  "registers",
  "sequences",
  "leases",
  "locks",
  "contenders",
  "watches",
  "streams",
  "compactor",
] as const;
export type ActorKind = (typeof ACTOR_KINDS)[number];

export interface WorkloadPlan {
  /** How many actors of each kind. */
  readonly actors: Readonly<Record<ActorKind, number>>;
  /** Mean operations of one actor in a second of its own time. */
  readonly operationsPerSecond: number;
  /** Deadline of each call, in milliseconds. */
  readonly deadlineMs: number;
  /** Registers that all register actors share: few, so that they contend. */
  readonly registerKeys: number;
  /** Exclusive locks that the `locks` actors share. */
  readonly lockNames: number;
  /** What the `contenders` share: one of each. */
  readonly recipes: readonly Exclude<Recipe, "lock">[];
  /** Of the semaphore. */
  readonly permits: number;
  /** How often somebody who wants what is held asks the holder for it; 0: nobody listens either. */
  readonly askChance: number;
  /** Leases get a TTL within these bounds. */
  readonly ttlMsMin: number;
  readonly ttlMsMax: number;
  /** How often a client talks to one member only, for a while, whoever leads: reads, watches and forwarding there. */
  readonly pinnedChance: number;
  /** How much of a history a compaction leaves, in revisions. */
  readonly retainedRevisions: number;
  /** Mean seconds between two compactions. */
  readonly compactionSeconds: number;
}

/** Mostly one kind for all contenders, so that they meet. */
const RECIPE_DRAWS: readonly WorkloadPlan["recipes"][] = [
  ["fair-lock"],
  ["read-write-lock"],
  ["semaphore"],
  ["election"],
  ["fair-lock", "semaphore"],
  ["read-write-lock", "election"],
];

/** @param pace scales the rate of operations: below 1 for long histories */
export function drawWorkloadPlan(dice: Dice, pace: number = 1): WorkloadPlan {
  const ttlMsMin = dice.pick([2_000, 2_000, 3_000, 5_000]);
  return {
    actors: {
      registers: dice.between(2, 3),
      sequences: dice.between(0, 1),
      leases: dice.between(1, 2),
      locks: 2,
      contenders: dice.pick([0, 0, 2, 3]),
      watches: dice.between(1, 2),
      streams: dice.between(1, 2),
      compactor: dice.chance(0.6) ? 1 : 0,
    },
    operationsPerSecond: dice.pick([1, 2, 2, 4]) * pace,
    deadlineMs: dice.pick([1_000, 2_000, 5_000, 10_000]),
    registerKeys: dice.between(3, 5),
    lockNames: dice.between(1, 2),
    recipes: dice.pick(RECIPE_DRAWS),
    permits: dice.between(1, 3),
    askChance: dice.pick([0, 0, 0, 0.3]),
    ttlMsMin,
    ttlMsMax: ttlMsMin * dice.pick([1, 2, 4]),
    pinnedChance: dice.pick([0, 0.2, 0.5]),
    retainedRevisions: dice.pick([0, 5, 50, 200]),
    compactionSeconds: dice.pick([2, 5, 15]),
  };
}
