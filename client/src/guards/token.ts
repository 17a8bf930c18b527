const TOKEN_DIGITS = 16;
const DIGITS_ONLY = /^[0-9]{1,16}$/;

/**
 * How a holder came by its token. `exclusive`: by a lock, an election, or the writing side of a read-write lock.
 * `shared`: by the reading side. An exclusive token must be at least as large as every one that the resource has seen;
 * a shared one at least as large as every exclusive one, so that holders of the shared side do not shut each other out.
 */
export type TokenMode = "exclusive" | "shared";

/** What a guard protects, and from whom. */
export interface GuardedResource {
  /** The resource's name: marks of different names know nothing of each other. Must not be empty. */
  readonly resource: string;
  /** Default: `exclusive`. */
  readonly mode?: TokenMode;
  /**
   * The permit's slot, when the token comes from a semaphore: its permits are held at the same time, so each slot counts
   * in a domain of its own. Default: none.
   */
  readonly slot?: number;
}

/** A guard's name for a slot of a semaphore: marks are kept under it. */
export function slotResource(resource: string, slot: number): string {
  if (!Number.isSafeInteger(slot) || slot < 0) throw new TypeError("a slot is an integer from 0 on");
  return `${resource}#${String(slot)}`;
}

/** The name that marks are kept under. */
export function resourceName({ resource, slot }: GuardedResource): string {
  if (resource === "") throw new TypeError("a guarded resource needs a name");
  return slot === undefined ? resource : slotResource(resource, slot);
}

/** @returns the token. Throws a `TypeError` unless it is an integer from 1 to 2^53 - 1. */
export function requireToken(token: number): number {
  if (!Number.isSafeInteger(token) || token < 1)
    throw new TypeError("a fencing token is an integer from 1 to 2^53 - 1");
  return token;
}

/** The token as 16 digits, which sort as text the way the numbers do; the same as `Lock.tokenString`. */
export function tokenDigits(token: number): string {
  return String(requireToken(token)).padStart(TOKEN_DIGITS, "0");
}

/** The number that digits stand for; undefined when they are none, or stand for what no token can be. */
export function tokenFromDigits(digits: string): number | undefined {
  if (!DIGITS_ONLY.test(digits)) return undefined;
  const token = Number(digits);
  return Number.isSafeInteger(token) ? token : undefined;
}
