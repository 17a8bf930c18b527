/**
 * What the recipes give away, as the keys of the cell show it. Written from the documented layout (docs/client.md) and
 * not with the client's own code, which is what is judged by it.
 */

export const RECIPES = ["lock", "fair-lock", "read-write-lock", "semaphore", "election"] as const;
export type Recipe = (typeof RECIPES)[number];

/** Something that is held by one, or by several who do not exclude each other. */
export interface Resource {
  readonly recipe: Recipe;
  readonly name: string;
  /** How many may hold a semaphore; 1 for all else. */
  readonly permits: number;
}

/** What one key says of its owner; a `ticket` is a place in the queue of a semaphore, and holds nothing. */
export type Role = "exclusive" | "shared" | "ticket" | `slot ${number}`;

const ROOTS: Readonly<Record<Recipe, string>> = {
  lock: "/locks/",
  "fair-lock": "/fair-locks/",
  "read-write-lock": "/read-write-locks/",
  semaphore: "/semaphores/",
  election: "/elections/",
};

/** What all keys of the recipes begin with; at the end of a history there is none. */
export const RECIPE_ROOTS: readonly string[] = [...Object.values(ROOTS), "/revocations/"];

/** What a resource's keys begin with; of an exclusive lock it is the only key. */
export function prefixOf({ recipe, name }: Resource): string {
  return recipe === "lock" ? `${ROOTS.lock}${name}` : `${ROOTS[recipe]}${name}/~/`;
}

/** undefined: the key belongs to something else. */
export function roleOf(resource: Resource, key: string): Role | undefined {
  const prefix = prefixOf(resource);
  if (!key.startsWith(prefix)) return undefined;
  const rest = key.slice(prefix.length);
  switch (resource.recipe) {
    case "lock":
      return rest === "" ? "exclusive" : undefined;
    case "fair-lock":
    case "election":
      return "exclusive";
    case "read-write-lock":
      return rest.startsWith("read/") ? "shared" : "exclusive";
    case "semaphore":
      return rest.startsWith("slots/") ? `slot ${Number(rest.slice("slots/".length))}` : "ticket";
  }
}

/** Whether two must not be held at the same time. */
export function conflicts(one: Role, other: Role): boolean {
  if (one === "ticket" || other === "ticket") return false;
  if (one.startsWith("slot ")) return one === other;
  return one === "exclusive" || other === "exclusive";
}

/** For people. */
export function describeResource({ recipe, name }: Resource): string {
  return `${recipe} "${name}"`;
}
