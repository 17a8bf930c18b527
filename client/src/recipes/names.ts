/**
 * Where the recipes keep their keys, for people and programs that look at them through another door. Each begins with
 * a slash, as every key of the HTTP door does.
 */
export const ROOTS = {
  lock: "/locks/",
  fairLock: "/fair-locks/",
  readWriteLock: "/read-write-locks/",
  semaphore: "/semaphores/",
  election: "/elections/",
  service: "/services/",
  barrier: "/barriers/",
  doubleBarrier: "/double-barriers/",
  counter: "/counters/",
  /** Followed by the key of the claim that somebody asks for. */
  revocation: "/revocations",
} as const;

/** Parts a recipe's name from the keys below it, so that `a` and `a/b` have nothing in common. */
const SEPARATOR = "~";

/** @throws TypeError when the name is empty, or has a part `~` between slashes. */
export function checkName(what: string, name: string): void {
  if (name === "") throw new TypeError(`${what} needs a name`);
  if (name.split("/").includes(SEPARATOR)) {
    throw new TypeError(`the name of ${what} must not have the part "~" between slashes: "${name}"`);
  }
}

/** What all keys of a recipe that needs several begin with: `ROOT NAME /~/`. */
export function keysOf(root: string, name: string): string {
  return `${root}${name}/${SEPARATOR}/`;
}

/** The half-open range of exactly these keys, and of what lies between them. */
export function between(first: string, last: string): { readonly from: string; readonly to: string } {
  return { from: first, to: after(last) };
}

/** The smallest key after `key`. */
export function after(key: string): string {
  return `${key}\0`;
}
