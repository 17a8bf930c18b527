import { StaleTokenError } from "./guard-error.ts";
import { requireToken, slotResource } from "./token.ts";

export { GuardError, StaleTokenError } from "./guard-error.ts";
export type { GuardErrorCode } from "./guard-error.ts";
export { slotResource } from "./token.ts";

/** The largest tokens that a resource has seen; 0: none yet. */
export interface Marks {
  readonly exclusive: number;
  readonly shared: number;
}

/**
 * The marks of one resource inside this process, for resources that live in it: a device, a file, a socket, a cache.
 * Call {@link admit} in the same synchronous block as the effect: between the two nobody else can come.
 *
 * The marks live as long as this object. What outlives the process needs marks that outlive it too.
 */
export class TokenGuard {
  readonly resource: string;
  #exclusive = 0;
  #shared = 0;
  #rejections = 0;

  /** @param resource names the resource in errors; must not be empty */
  constructor(resource: string) {
    if (resource === "") throw new TypeError("a guarded resource needs a name");
    this.resource = resource;
  }

  /**
   * Admits the holder of an exclusive token and remembers the token.
   * @throws StaleTokenError when a larger token, exclusive or shared, was admitted before
   */
  admit(token: number): void {
    requireToken(token);
    const seen = Math.max(this.#exclusive, this.#shared);
    if (token < seen) throw this.#refusal(token, seen);
    this.#exclusive = token;
  }

  /**
   * Admits a holder of the shared side of a read-write lock and remembers the token.
   * @throws StaleTokenError when a larger exclusive token was admitted before; larger shared ones do not matter
   */
  admitShared(token: number): void {
    requireToken(token);
    if (token < this.#exclusive) throw this.#refusal(token, this.#exclusive);
    this.#shared = Math.max(this.#shared, token);
  }

  get marks(): Marks {
    return { exclusive: this.#exclusive, shared: this.#shared };
  }

  /** How many tokens were refused. */
  get rejections(): number {
    return this.#rejections;
  }

  #refusal(offered: number, seen: number): StaleTokenError {
    this.#rejections += 1;
    return new StaleTokenError({ resource: this.resource, offered, seen });
  }
}

/**
 * A {@link TokenGuard} for each slot of a semaphore. Permits are held at the same time and their tokens may be used in any
 * order, so each slot is a domain of its own: what is refused is the earlier holder of *the same* slot.
 */
export class SlotGuards {
  readonly resource: string;
  readonly #slots: readonly TokenGuard[];

  /** @param permits how many slots there are, numbered from 0 */
  constructor(resource: string, permits: number) {
    if (!Number.isSafeInteger(permits) || permits < 1)
      throw new TypeError("a semaphore has at least one permit");
    this.resource = resource;
    this.#slots = Array.from({ length: permits }, (_, slot) => new TokenGuard(slotResource(resource, slot)));
  }

  /** The guard of one slot. Throws a `TypeError` when there is no such slot. */
  slot(slot: number): TokenGuard {
    const guard = this.#slots[slot];
    if (guard === undefined)
      throw new TypeError(`"${this.resource}" has slots 0 to ${String(this.#slots.length - 1)}`);
    return guard;
  }

  /** How many tokens were refused, in all slots. */
  get rejections(): number {
    return this.#slots.reduce((sum, guard) => sum + guard.rejections, 0);
  }
}

/** A value that takes writes only from holders whose ownership has not passed on. */
export class FencedRegister<T> {
  /** The marks that writes are checked against; admit a token here to shut earlier holders out before the first write. */
  readonly guard: TokenGuard;
  #value: T;

  constructor(resource: string, initial: T) {
    this.guard = new TokenGuard(resource);
    this.#value = initial;
  }

  /** For anybody: the value as it is now. */
  get value(): T {
    return this.#value;
  }

  /**
   * The value, for a holder of the shared side.
   * @throws StaleTokenError when an exclusive holder with a larger token came since: what is there is not what this
   * reader's lock protects
   */
  read(token: number): T {
    this.guard.admitShared(token);
    return this.#value;
  }

  /** @throws StaleTokenError when the register has seen a larger token; the value stays */
  write(token: number, value: T): void {
    this.guard.admit(token);
    this.#value = value;
  }

  get rejections(): number {
    return this.guard.rejections;
  }
}
