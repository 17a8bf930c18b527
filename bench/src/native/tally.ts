import { Histogram } from "../histogram.ts";

/**
 * When a run measures: the load is on from the start; what completes between `fromMs` and `untilMs` (the clock of
 * `performance.now`) counts. Errors count always.
 */
export interface Plan {
  readonly fromMs: number;
  readonly untilMs: number;
}

export function planFromNow(warmupSeconds: number, measureSeconds: number): Plan {
  const fromMs = performance.now() + warmupSeconds * 1000;
  return { fromMs, untilMs: fromMs + measureSeconds * 1000 };
}

/** What a run saw. */
export class Tally {
  readonly latencies: Histogram = new Histogram();
  readonly #plan: Plan;
  #operations = 0;
  #completed = 0;
  #errors = 0;
  #firstError: string | undefined;

  constructor(plan: Plan) {
    this.#plan = plan;
  }

  get operations(): number {
    return this.#operations;
  }

  /** Measured or not. */
  get completed(): number {
    return this.#completed;
  }

  get errors(): number {
    return this.#errors;
  }

  get firstError(): string | undefined {
    return this.#firstError;
  }

  /** One answer that carried `weight` operations. */
  success(beginMs: number, endMs: number, weight: number): void {
    this.#completed += weight;
    if (endMs <= this.#plan.fromMs || endMs >= this.#plan.untilMs) return;
    this.#operations += weight;
    this.latencies.record(endMs - beginMs, weight);
  }

  failure(what: string, times = 1): void {
    this.#errors += times;
    this.#firstError ??= what;
  }
}
