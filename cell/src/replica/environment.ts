import type { Pause } from "../store/index.ts";

/** What a member is handed instead of reaching for it: the same code runs on a real machine and in the simulator. */
export interface Environment {
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** Runs `task` in a turn of its own, after the I/O events that are already waiting. */
  readonly schedule: (task: () => void) => void;
  /** Runs `task` in this turn, after what the turn has already made due and before the next I/O event. */
  readonly soon: (task: () => void) => void;
  /** Runs `task` once after about `delayMs`. @returns the function that calls it off. */
  readonly after: (delayMs: number, task: () => void) => () => void;
  /** Runs `task` about every `intervalMs`. @returns the function that calls it off. */
  readonly every: (intervalMs: number, task: () => void) => () => void;
  readonly log: Log;
  /** A broken invariant, a failed disk, a divergence: the process must stop, without answering anything more. */
  readonly fatal: (error: Error) => void;
}

/** While the store nears a write stall, whoever fills it looks again after this long. */
const STALL_WAIT_MS = 20;
/** What work in slices may take of one turn of the event loop, in milliseconds. */
const WORK_MS_MIN = 1;
const WORK_MS_MAX = 4;
/** For one millisecond of work everything else had this many. */
const OTHERS_SHARE = 3;
/** Where the clock stands still within a turn, or slices cost nothing, others get their turn all the same. */
const SLICES_MAX = 8;

/**
 * How long work in slices lets other work run. On an idle member it takes a millisecond of each turn. Under load a turn
 * takes long, and a slice in each of them would make a stream of the state last for ever: then it takes a quarter of the
 * time, in up to four milliseconds at once.
 */
export function pauseIn(environment: Environment): Pause {
  const { clock } = environment;
  let resumedMs = clock.monotonicMs();
  let workMs = WORK_MS_MIN;
  let slices = 0;
  return (reason) => {
    const nowMs = clock.monotonicMs();
    slices += 1;
    if (reason === "turn" && nowMs - resumedMs < workMs && slices < SLICES_MAX) return Promise.resolve();
    return new Promise((resolve) => {
      const resume = (): void => {
        resumedMs = clock.monotonicMs();
        workMs = Math.min(WORK_MS_MAX, Math.max(WORK_MS_MIN, (resumedMs - nowMs) / OTHERS_SHARE));
        slices = 0;
        resolve();
      };
      if (reason === "turn") environment.schedule(resume);
      else environment.after(STALL_WAIT_MS, resume);
    });
  };
}

export interface Clock {
  /** Never goes back; stands still in suspend. */
  monotonicMs(): number;
  /** For timestamps in commands only. */
  wallMs(): number;
}

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/** Structured log lines. Never a key's value, a token of a client, or key material. */
export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

/** Where the replica tells how long things took. Called on hot paths: must be cheap. */
export interface Measure {
  /** A sample of commands, from arrival to outcome. */
  readonly proposal: (durationMs: number) => void;
  /** A sample of linearizable reads. */
  readonly read: (durationMs: number) => void;
  /** Every slice of applied entries. */
  readonly apply: (durationMs: number) => void;
  readonly renewed: (leases: number) => void;
}
