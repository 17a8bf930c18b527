import { LockstepError } from "@lockstep/client";

/** The last refusals, by code: what to look at when nothing moves. */
export class ErrorCounts {
  readonly #counts = new Map<string, number>();
  #last = "";

  /** Counts an expected error and returns it; anything else is a defect of the load and is thrown on. */
  add(error: unknown): LockstepError {
    if (!(error instanceof LockstepError)) throw error;
    this.#counts.set(error.code, (this.#counts.get(error.code) ?? 0) + 1);
    this.#last = `${error.code} (${error.outcome}): ${error.message}`;
    return error;
  }

  /** By code. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Empty: there was none. */
  get last(): string {
    return this.#last;
  }
}
