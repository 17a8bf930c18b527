import type { Runtime } from "@lockstep/client";
import type { Environment, Log } from "../../../cell/src/replica/environment.ts";
import type { TransportTimers } from "../../../cell/src/transport/index.ts";
import type { Dice, Scheduler, SimProcess, TimeUs } from "../contract.ts";
import { drawUuid } from "./dice.ts";

/** What a turn of an event loop takes at least: time goes on, whatever a process does. */
const TURN_US = 10;
/** The day on which every world begins. */
const EPOCH_MS = 1_800_000_000_000;

export interface ProcessOptions {
  readonly host: string;
  readonly scheduler: Scheduler;
  readonly dice: Dice;
  /** Local seconds in a second of true time: 1.0001 runs fast. */
  readonly rate: number;
  /** The wall clock against true time, at the start. */
  readonly wallOffsetMs: number;
}

/** A process as the kernel runs it; the nemesis pauses, kills and misleads it. */
export class KernelProcess implements SimProcess {
  readonly host: string;
  readonly dice: Dice;
  readonly rate: number;
  readonly #scheduler: Scheduler;
  readonly #bornUs: TimeUs;
  readonly #backlog: (() => void)[] = [];
  readonly #killListeners: (() => void)[] = [];
  /** A monotonic clock begins anywhere. */
  readonly #monotonicBaseMs: number;
  #wallOffsetMs: number;
  #alive = true;
  #paused = false;

  constructor(options: ProcessOptions) {
    this.host = options.host;
    this.dice = options.dice;
    this.rate = options.rate;
    this.#scheduler = options.scheduler;
    this.#bornUs = options.scheduler.nowUs;
    this.#wallOffsetMs = options.wallOffsetMs;
    this.#monotonicBaseMs = options.dice.between(1, 1_000_000);
  }

  get alive(): boolean {
    return this.#alive;
  }

  get paused(): boolean {
    return this.#paused;
  }

  monotonicMs(): number {
    return this.#monotonicBaseMs + ((this.#scheduler.nowUs - this.#bornUs) * this.rate) / 1_000;
  }

  wallMs(): number {
    return Math.round(EPOCH_MS + this.#wallOffsetMs + (this.#scheduler.nowUs * this.rate) / 1_000);
  }

  deliver(delayUs: number, task: () => void): () => void {
    let wanted = true;
    const run = (): void => {
      if (wanted && this.#alive) task();
    };
    const cancel = this.#scheduler.in(delayUs, () => {
      if (!this.#alive) return;
      if (this.#paused) this.#backlog.push(run);
      else run();
    });
    return () => {
      wanted = false;
      cancel();
    };
  }

  after(delayMs: number, task: () => void): () => void {
    return this.deliver((Math.max(0, delayMs) * 1_000) / this.rate, task);
  }

  onKill(listener: () => void): void {
    if (this.#alive) this.#killListeners.push(listener);
  }

  /** As SIGSTOP: nothing runs, its clocks go on. */
  pause(): void {
    this.#paused = true;
  }

  /** As SIGCONT: everything that was due meanwhile runs now, in its order, each in a turn of its own. */
  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    for (const task of this.#backlog.splice(0)) this.deliver(0, task);
  }

  kill(): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.#backlog.length = 0;
    for (const listener of this.#killListeners.splice(0)) listener();
  }

  /** Somebody sets the wall clock. */
  jumpWall(ms: number): void {
    this.#wallOffsetMs += ms;
  }
}

/** What production takes for timers, in this process. */
export function timersOf(process: SimProcess): TransportTimers {
  return {
    schedule: (task) => void process.deliver(TURN_US, task),
    soon: (task) =>
      queueMicrotask(() => {
        if (process.alive) task();
      }),
    after: (delayMs, task) => process.after(delayMs, task),
    every: (intervalMs, task) => {
      let cancel = (): void => undefined;
      const next = (): void => {
        cancel = process.after(intervalMs, () => {
          next();
          task();
        });
      };
      next();
      return () => cancel();
    },
  };
}

/** The environment of a member in this process. */
export function environmentOf(
  process: KernelProcess,
  hooks: { readonly log: Log; readonly fatal: (error: Error) => void },
): Environment {
  return {
    ...timersOf(process),
    clock: { monotonicMs: () => process.monotonicMs(), wallMs: () => process.wallMs() },
    random: () => process.dice.random(),
    log: hooks.log,
    fatal: hooks.fatal,
  };
}

/** The runtime of a client library in this process. */
export function runtimeOf(process: KernelProcess): Runtime {
  return {
    now: () => process.monotonicMs(),
    wallNow: () => process.wallMs(),
    random: () => process.dice.random(),
    uuid: () => drawUuid(process.dice),
    schedule: (callback, delayMs) => process.after(delayMs, callback),
    afterTurn: (callback) => void process.deliver(TURN_US, callback),
  };
}
