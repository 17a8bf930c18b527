/** How each recipe of the client is asked for: all end in a claim. */
import { Leadership, type AcquireOptions, type Claim, type Client } from "@lockstep/client";
import { describeResource, type Recipe, type Resource } from "../checkers/resources.ts";
import type { CoverageKey, Dice } from "../contract.ts";

/** What somebody asks for. */
export interface Wish {
  /** What counts when it comes true. */
  readonly counted: CoverageKey;
  /** More than one: exclusive locks, all or none. */
  readonly resources: readonly Resource[];
  /** For people. */
  readonly what: string;
  readonly acquire: (client: Client, options: AcquireOptions) => Promise<Claim>;
  /** What a holder does with the claim itself. */
  readonly during?: (claim: Claim) => Promise<void>;
  /** Asks whoever holds it to give it up; absent: there may be many who do, or the recipe has no such question. */
  readonly ask?: (client: Client, options: Pick<AcquireOptions, "session">) => Promise<Claim | undefined>;
}

const COUNTED: Readonly<Record<Recipe, CoverageKey>> = {
  lock: "locks acquired",
  "fair-lock": "fair locks acquired",
  "read-write-lock": "read-write locks acquired",
  semaphore: "permits acquired",
  election: "terms led",
};

const ALL_LOCKS_CHANCE = 0.3;
const WRITE_CHANCE = 0.5;

/** @param resources those that the asking actor contends for */
export function drawWish(resources: readonly Resource[], dice: Dice): Wish {
  const resource = dice.pick(resources);
  const { recipe, name, permits } = resource;
  const locks = resources.filter((other) => other.recipe === "lock");
  if (recipe === "lock" && locks.length > 1 && dice.chance(ALL_LOCKS_CHANCE)) return allOf(locks);
  const wish = { counted: COUNTED[recipe], resources: [resource], what: describeResource(resource) };
  switch (recipe) {
    case "lock":
      return {
        ...wish,
        acquire: (client, options) => client.lock(name, options),
        ask: (client, options) => client.lock(name).askHolder(options),
      };
    case "fair-lock":
      return {
        ...wish,
        acquire: (client, options) => client.fairLock(name).acquire(options),
        ask: (client, options) => client.fairLock(name).askHolder(options),
      };
    case "read-write-lock": {
      const mode = dice.chance(WRITE_CHANCE) ? "write" : "read";
      const acquire: Wish["acquire"] = (client, options) => client.readWriteLock(name)[mode](options);
      return { ...wish, what: `${wish.what} to ${mode}`, acquire };
    }
    case "semaphore":
      return {
        ...wish,
        acquire: (client, options) => client.semaphore(name, { permits }).acquire(options),
      };
    case "election":
      return {
        ...wish,
        acquire: (client, options) => client.election(name).campaign({ ...options, value: "here" }),
        during: async (claim) => {
          if (claim instanceof Leadership) await claim.announce("still here");
        },
        ask: (client, options) => client.election(name).askLeader(options),
      };
  }
}

function allOf(resources: readonly Resource[]): Wish {
  const names = resources.map(({ name }) => name);
  return {
    counted: "multi-locks acquired",
    resources,
    what: `the locks ${names.join(" and ")}`,
    acquire: (client, options) => client.multiLock(names).acquire(options),
  };
}
