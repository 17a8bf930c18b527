/** Time, handed in. */
export interface Timing {
  /** Monotonic milliseconds. */
  now(): number;
  /** Milliseconds since the epoch. */
  wallNow(): number;
  delay(ms: number): Promise<void>;
  /** In [0, 1). */
  random(): number;
}

/** Spreads one worker's turns evenly; turns that were missed are not made up for. */
export class Pace {
  readonly #timing: Timing;
  readonly #intervalMs: number;
  #next = 0;

  constructor(timing: Timing, perSecond: number) {
    this.#timing = timing;
    this.#intervalMs = 1000 / perSecond;
  }

  async turn(): Promise<void> {
    const now = this.#timing.now();
    const waitMs = this.#next - now;
    this.#next = Math.max(now, this.#next) + this.#intervalMs;
    if (waitMs > 0) await this.#timing.delay(waitMs);
  }
}

/** Lets workers be stopped between two turns, all of them. */
export class Gate {
  #open = true;
  #ended = false;
  #inside = 0;
  #waiting: (() => void)[] = [];
  #empty: (() => void)[] = [];

  /** Waits while the gate is closed; false: there is nothing more to do. Call `leave` after each turn. */
  async enter(): Promise<boolean> {
    while (!this.#open && !this.#ended) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#ended) return false;
    this.#inside += 1;
    return true;
  }

  leave(): void {
    this.#inside -= 1;
    if (this.#inside > 0) return;
    for (const resolve of this.#empty.splice(0)) resolve();
  }

  /** Resolves when nobody is inside any more. */
  async close(): Promise<void> {
    this.#open = false;
    while (this.#inside > 0) await new Promise<void>((resolve) => this.#empty.push(resolve));
  }

  open(): void {
    this.#open = true;
    this.#release();
  }

  /** For good: everybody is sent away. */
  end(): void {
    this.#ended = true;
    this.#release();
  }

  get ended(): boolean {
    return this.#ended;
  }

  #release(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
