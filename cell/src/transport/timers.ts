/** Time as a transport uses it; an `Environment` of a member is one. */
export interface TransportTimers {
  /** Runs `task` in this turn, after what the turn has already made due. */
  readonly soon: (task: () => void) => void;
  /** Runs `task` in a turn of its own. */
  readonly schedule: (task: () => void) => void;
  /** Runs `task` once after about `delayMs`. @returns the function that calls it off. */
  readonly after: (delayMs: number, task: () => void) => () => void;
  /** Runs `task` about every `intervalMs`. @returns the function that calls it off. */
  readonly every: (intervalMs: number, task: () => void) => () => void;
}

/** Those of Node's event loop. */
export const NODE_TIMERS: TransportTimers = {
  soon: queueMicrotask,
  schedule: (task) => void setImmediate(task),
  after: (delayMs, task) => {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  every: (intervalMs, task) => {
    const timer = setInterval(task, intervalMs);
    return () => clearInterval(timer);
  },
};
