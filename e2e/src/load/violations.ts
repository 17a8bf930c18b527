/** Which promise was broken. */
export type ViolationKind =
  /** An acknowledged write is not there. */
  | "lost-write"
  /** Something is there, or was shown, that nobody wrote, or that was written once more, or that was said to be refused. */
  | "phantom-write"
  /** Revisions or versions do not grow as they must. */
  | "revision-order"
  /** A watch left a change out. */
  | "watch-gap"
  /** A watch showed a change again. */
  | "watch-duplicate"
  /** A watch showed changes in another order than they were made, or not whole revisions. */
  | "watch-order"
  /** A lock's token is not larger than all earlier ones. */
  | "token-order"
  /** Two workers certainly held one lock at one time. */
  | "two-holders"
  /** Somebody with a larger token wrote the guarded register while this worker certainly held the lock. */
  | "guard"
  /** The load itself went wrong: its findings are worth nothing. */
  | "program";

export interface Violation {
  readonly kind: ViolationKind;
  /** Wall clock, ISO 8601. */
  readonly at: string;
  /** A sentence with what was expected and what was found. */
  readonly details: string;
}

const KEPT_MAX = 100;

/** What was found. The first hundred are kept, all are counted. */
export class Violations {
  readonly #kept: Violation[] = [];
  readonly #wallNow: () => number;
  readonly #tell: (violation: Violation) => void;
  #count = 0;

  /** @param tell is called at once with each that is kept */
  constructor(wallNow: () => number, tell: (violation: Violation) => void) {
    this.#wallNow = wallNow;
    this.#tell = tell;
  }

  get count(): number {
    return this.#count;
  }

  get kept(): readonly Violation[] {
    return this.#kept;
  }

  add(kind: ViolationKind, details: string): void {
    this.#count += 1;
    if (this.#kept.length >= KEPT_MAX) return;
    const violation = { kind, at: new Date(this.#wallNow()).toISOString(), details };
    this.#kept.push(violation);
    this.#tell(violation);
  }
}
