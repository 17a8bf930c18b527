import type { Violations } from "./violations.ts";

/** What is asked of a lock that somebody holds. */
export interface Holding {
  readonly token: number;
  isHeld(): boolean;
}

/** All workers' locks of one name: tokens only grow, and no two workers certainly hold it at one time. */
export class TokenCheck {
  readonly #violations: Violations;
  readonly #holders = new Map<string, Holding>();
  #largest = 0;
  #acquired = 0;

  constructor(violations: Violations) {
    this.#violations = violations;
  }

  get largest(): number {
    return this.#largest;
  }

  get acquired(): number {
    return this.#acquired;
  }

  /** To be called in the turn in which the lock was got. */
  hold(worker: string, holding: Holding): void {
    this.#acquired += 1;
    const { token } = holding;
    if (token <= this.#largest)
      this.#violations.add(
        "token-order",
        `${worker} got token ${token}, and ${this.#largest} had been given before`,
      );
    this.#largest = Math.max(this.#largest, token);
    for (const [other, held] of this.#holders)
      if (other !== worker && held.isHeld())
        this.#violations.add(
          "two-holders",
          `${worker} got token ${token} while ${other} certainly held the lock with ${held.token}`,
        );
    this.#holders.set(worker, holding);
  }

  /** To be called before the lock is released. */
  drop(worker: string): void {
    this.#holders.delete(worker);
  }
}
