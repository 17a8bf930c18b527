import { monitorEventLoopDelay } from "node:perf_hooks";

/** How often the monitor looks, in milliseconds. */
const RESOLUTION_MS = 10;

/** What is used of Node's histogram; nanoseconds. */
export interface DelayHistogram {
  readonly max: number;
  percentile(percentile: number): number;
  enable(): boolean;
  disable(): boolean;
  reset(): void;
}

/**
 * By how much the event loop's timers were late. Node's monitor records the time from one of its timers to the next, so
 * that a loop with nothing to do shows ten milliseconds; they are taken away here. A block of the loop begins anywhere
 * between two timers, and shows by up to ten milliseconds shorter than it was.
 */
export class EventLoopDelay {
  readonly #histogram: DelayHistogram;

  /** @param histogram default: Node's own, started now */
  constructor(histogram: DelayHistogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })) {
    this.#histogram = histogram;
    histogram.enable();
  }

  /** In seconds, since the last reset. 0: nothing was recorded. @param percentile above 0, up to 100 */
  percentile(percentile: number): number {
    return withoutSampling(this.#histogram.percentile(percentile));
  }

  /** In seconds, since the last reset. 0: nothing was recorded. */
  get max(): number {
    return withoutSampling(this.#histogram.max);
  }

  reset(): void {
    this.#histogram.reset();
  }

  close(): void {
    this.#histogram.disable();
  }
}

function withoutSampling(nanoseconds: number): number {
  const seconds = (nanoseconds - RESOLUTION_MS * 1e6) / 1e9;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : 0;
}
