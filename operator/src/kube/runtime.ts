/**
 * Clock, timers and chance, handed in: tests own them and never wait.
 */
export interface Runtime {
  /** Never goes back; stands still while the machine is suspended. */
  monotonicMs(): number;
  /** Milliseconds since the epoch; may jump. */
  wallMs(): number;
  /** Uniform in [0, 1). */
  random(): number;
  /** Runs `task` once after about `delayMs`. @returns the function that calls it off. */
  after(delayMs: number, task: () => void): () => void;
}

// Longer delays overflow Node's timers and would fire at once.
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The real machine. */
export const REAL_RUNTIME: Runtime = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  random: () => Math.random(),
  after(delayMs, task) {
    const timer = setTimeout(task, Math.min(Math.max(0, delayMs), TIMER_MS_MAX));
    return () => clearTimeout(timer);
  },
};

/** Resolves after `delayMs`, or at once when `signal` is aborted: the caller looks which. */
export function sleep(runtime: Runtime, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = runtime.after(delayMs, done);
    signal?.addEventListener("abort", done, { once: true });
  });
}

export interface BackoffLimits {
  readonly baseMs: number;
  readonly maxMs: number;
}

/** Doubles with each failure; drawn from the upper half of the interval, so that many who failed together spread. */
export function backoffMs(limits: BackoffLimits, failures: number, random: () => number): number {
  const exponent = Math.min(Math.max(0, failures - 1), 40);
  const whole = Math.min(limits.maxMs, limits.baseMs * 2 ** exponent);
  return whole / 2 + (whole / 2) * random();
}

/**
 * A signal that ends with the first of several, or by itself: unlike `AbortSignal.any` it lets go of the others as soon
 * as its holder is done, so long-lived signals do not collect listeners.
 */
export interface LinkedAbort extends Disposable {
  readonly signal: AbortSignal;
  abort(reason: unknown): void;
}

export function linkAbort(...parents: readonly (AbortSignal | undefined)[]): LinkedAbort {
  const controller = new AbortController();
  const links: (() => void)[] = [];
  for (const parent of parents) {
    if (parent === undefined) continue;
    const pass = (): void => controller.abort(parent.reason);
    if (parent.aborted) pass();
    parent.addEventListener("abort", pass, { once: true });
    links.push(() => parent.removeEventListener("abort", pass));
  }
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    [Symbol.dispose]: () => {
      for (const unlink of links) unlink();
    },
  };
}
