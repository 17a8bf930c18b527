/**
 * Clock, timers and chance, handed in so that the simulator can own them.
 */
export interface Runtime {
  /** Monotonic milliseconds; stands still while the machine is suspended. */
  now(): number;
  /** Milliseconds since the epoch; may jump. */
  wallNow(): number;
  /** In [0, 1). */
  random(): number;
  /** A random UUID: tells one attempt from every other. */
  uuid(): string;
  /** @returns the function that cancels it. */
  schedule(callback: () => void, delayMs: number): () => void;
  /** Runs when the current turn of the event loop has done its input. */
  afterTurn(callback: () => void): void;
}

// Longer delays overflow Node's timers and would fire at once.
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The process's own clocks, timers and chance. */
export const REAL_RUNTIME: Runtime = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  random: () => Math.random(),
  // The global one: its module is loaded when the first is drawn, and not when the program starts.
  uuid: () => crypto.randomUUID(),
  schedule(callback, delayMs) {
    const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), TIMER_MS_MAX));
    return () => clearTimeout(timer);
  },
  afterTurn(callback) {
    setImmediate(callback);
  },
};
