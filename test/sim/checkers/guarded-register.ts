/** What a lock protects, twice: a register that looks at tokens, and its twin that does not. */
import type { Reporter } from "../contract.ts";
import type { LockLedger } from "./locks.ts";

export interface RegisterWrite {
  readonly token: number;
  readonly leaseId: string;
  readonly host: string;
}

/** The guard under test; the one that is used is {@link acceptsToken}. */
export type Guard = (token: number, highest: number) => boolean;

/** A token not lower than the highest seen: an owner may write again, an earlier one may not. */
export function acceptsToken(token: number, highest: number): boolean {
  return token >= highest;
}

/**
 * Stands outside of the cell. Its writers believe that they hold the lock when they send; what arrives late is told
 * apart by the token alone. The judge does not look at tokens: it knows from the true history who owned the lock after
 * whom.
 */
export class GuardedRegister {
  readonly #name: string;
  readonly #locks: LockLedger;
  readonly #reporter: Reporter;
  readonly #guard: Guard;
  #highest = 0;
  /** The latest owner that has written to the guarded register, in the true order. */
  #latestOrdinal = -1;
  /** The same for the twin. */
  #twinOrdinal = -1;
  staleWithoutGuard = 0;

  constructor(name: string, locks: LockLedger, reporter: Reporter, guard: Guard = acceptsToken) {
    this.#name = name;
    this.#locks = locks;
    this.#reporter = reporter;
    this.#guard = guard;
  }

  /** A write arrives at both. @returns whether the guard let it in. */
  arrive(write: RegisterWrite): boolean {
    const ordinal = this.#locks.ordinal(this.#name, write);
    if (ordinal === undefined) {
      this.#reporter.violation(
        "I11",
        `${write.host} writes under "${this.#name}" with token ${write.token}, which was never given to its session`,
      );
    }
    if (ordinal < this.#twinOrdinal) {
      this.staleWithoutGuard += 1;
      this.#reporter.count("stale writes without the guard");
    }
    this.#twinOrdinal = ordinal;
    if (!this.#guard(write.token, this.#highest)) {
      this.#reporter.count("guarded writes refused");
      if (ordinal >= this.#latestOrdinal) {
        this.#reporter.violation(
          "I11",
          `the guard of "${this.#name}" refused token ${write.token} of its newest owner, after ${this.#highest}`,
        );
      }
      return false;
    }
    if (ordinal < this.#latestOrdinal) {
      this.#reporter.violation(
        "I11",
        `the guard of "${this.#name}" accepted a stale write of ${write.host} with token ${write.token}, after ${this.#highest}`,
      );
    }
    this.#highest = write.token;
    this.#latestOrdinal = ordinal;
    this.#reporter.count("guarded writes accepted");
    return true;
  }
}
