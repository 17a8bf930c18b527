/** What is protected by something held, twice: a register that looks at tokens, and its twin that does not. */
import type { Reporter } from "../contract.ts";
import type { ClaimLedger } from "./claims.ts";
import { describeResource } from "./resources.ts";
import type { Resource } from "./resources.ts";

export interface RegisterWrite {
  readonly token: number;
  readonly leaseId: string;
  readonly host: string;
  /** By one of those who share. */
  readonly shared: boolean;
}

/** The highest seen of each kind; without anything that can be shared only the first is ever used. */
export interface Marks {
  readonly exclusive: number;
  readonly shared: number;
}

/** The guard under test; the one that is used is {@link acceptsToken}. */
export type Guard = (write: Pick<RegisterWrite, "token" | "shared">, marks: Marks) => boolean;

/**
 * A token not lower than the highest seen: an owner may write again, an earlier one may not. Whoever has all of it must
 * come after those who shared, too; who shares only after those who had all of it.
 */
export const acceptsToken: Guard = ({ token, shared }, marks) =>
  token >= marks.exclusive && (shared || token >= marks.shared);

const NOBODY: Marks = { exclusive: -1, shared: -1 };

/**
 * Stands outside of the cell. Its writers believe that they hold the lock when they send; what arrives late is told
 * apart by the token alone. The judge does not look at tokens: it knows from the true history who owned it after whom.
 */
export class GuardedRegister {
  readonly #resource: Resource;
  readonly #claims: ClaimLedger;
  readonly #reporter: Reporter;
  readonly #guard: Guard;
  #marks: Marks = { exclusive: 0, shared: 0 };
  /** The latest owners that have written to the guarded register, in the true order. */
  #latest = NOBODY;
  /** The same for the twin. */
  #twin = NOBODY;
  staleWithoutGuard = 0;

  constructor(resource: Resource, claims: ClaimLedger, reporter: Reporter, guard: Guard = acceptsToken) {
    this.#resource = resource;
    this.#claims = claims;
    this.#reporter = reporter;
    this.#guard = guard;
  }

  /** A write arrives at both. @returns whether the guard let it in. */
  arrive(write: RegisterWrite): boolean {
    const { token, host, shared } = write;
    const what = describeResource(this.#resource);
    const ordinal = this.#claims.ordinal(this.#resource, write);
    if (ordinal === undefined) {
      this.#reporter.violation(
        "I11",
        `${host} writes under ${what} with token ${token}, which was never given to its session`,
      );
    }
    if (isStale(ordinal, shared, this.#twin)) {
      this.staleWithoutGuard += 1;
      this.#reporter.count("stale writes without the guard");
    }
    this.#twin = withMark(this.#twin, ordinal, shared);
    const stale = isStale(ordinal, shared, this.#latest);
    const marks = `after ${this.#marks.exclusive} and, shared, ${this.#marks.shared}`;
    if (!this.#guard(write, this.#marks)) {
      this.#reporter.count("guarded writes refused");
      if (!stale) {
        this.#reporter.violation("I11", `the guard of ${what} refused token ${token} of its owner, ${marks}`);
      }
      return false;
    }
    if (stale) {
      this.#reporter.violation(
        "I11",
        `the guard of ${what} accepted a stale write of ${host} with token ${token}, ${marks}`,
      );
    }
    this.#marks = withMark(this.#marks, token, shared);
    this.#latest = withMark(this.#latest, ordinal, shared);
    this.#reporter.count("guarded writes accepted");
    return true;
  }
}

/** Whether somebody whom this owner excludes, and who owned after it, has written already. */
function isStale(ordinal: number, shared: boolean, latest: Marks): boolean {
  const excluded = shared ? latest.exclusive : Math.max(latest.exclusive, latest.shared);
  return ordinal < excluded;
}

/** Those who share come in any order. */
function withMark(marks: Marks, mark: number, shared: boolean): Marks {
  return shared
    ? { exclusive: marks.exclusive, shared: Math.max(marks.shared, mark) }
    : { exclusive: mark, shared: marks.shared };
}
