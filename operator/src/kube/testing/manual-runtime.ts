import type { Runtime } from "../runtime.ts";

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly task: () => void;
}

/** Time that moves only when a test says so. */
export class ManualRuntime implements Runtime {
  private nowMs = 0;
  private wallOffsetMs = Date.UTC(2030, 0, 1);
  private order = 0;
  private readonly timers = new Set<Timer>();
  private readonly draw: () => number;

  /** @param seed of everything random */
  constructor(seed = 1) {
    this.draw = mulberry32(seed);
  }

  /** Timers that are set. */
  get pending(): number {
    return this.timers.size;
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  wallMs(): number {
    return Math.floor(this.nowMs + this.wallOffsetMs);
  }

  random(): number {
    return this.draw();
  }

  after(delayMs: number, task: () => void): () => void {
    const timer = { atMs: this.nowMs + Math.max(0, delayMs), order: this.order, task };
    this.order += 1;
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  /** The wall clock jumps; timers do not notice. */
  jumpWall(byMs: number): void {
    this.wallOffsetMs += byMs;
  }

  /** Moves time on, timer by timer; after each, everything that it made possible happens. */
  async advance(byMs: number): Promise<void> {
    const untilMs = this.nowMs + byMs;
    await settle();
    for (;;) {
      const next = this.next();
      if (next === undefined || next.atMs > untilMs) break;
      this.timers.delete(next);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.task();
      await settle();
    }
    this.nowMs = untilMs;
  }

  private next(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.timers) {
      if (first === undefined || timer.atMs < first.atMs) first = timer;
      else if (timer.atMs === first.atMs && timer.order < first.order) first = timer;
    }
    return first;
  }
}

/** Lets all promises that can go on go on. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A small seeded generator (Mulberry32, public domain algorithm). */
export function mulberry32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
