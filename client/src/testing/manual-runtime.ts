import type { Runtime } from "../runtime.ts";

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/** A clock that moves only when told; both of its faces can be set apart. */
export class ManualRuntime implements Runtime {
  monotonicMs = 1_000;
  wallMs = 1_700_000_000_000;
  readonly #timers = new Set<Timer>();
  #afterTurn: (() => void)[] = [];
  #drawn = 0;

  now(): number {
    return this.monotonicMs;
  }

  wallNow(): number {
    return this.wallMs;
  }

  random(): number {
    return 0;
  }

  uuid(): string {
    this.#drawn += 1;
    return `00000000-0000-4000-8000-${String(this.#drawn).padStart(12, "0")}`;
  }

  schedule(callback: () => void, delayMs: number): () => void {
    const timer = { at: this.monotonicMs + Math.max(0, delayMs), callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  afterTurn(callback: () => void): void {
    this.#afterTurn.push(callback);
  }

  /** Ends the turn, and those that it starts. */
  turn(): void {
    while (this.#afterTurn.length > 0) {
      const callbacks = this.#afterTurn;
      this.#afterTurn = [];
      for (const callback of callbacks) callback();
    }
  }

  /** Lets time pass, firing timers in order. */
  advance(ms: number): void {
    const until = this.monotonicMs + ms;
    this.turn();
    for (;;) {
      const due = [...this.#timers].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      const step = Math.max(0, due.at - this.monotonicMs);
      this.monotonicMs += step;
      this.wallMs += step;
      due.callback();
      this.turn();
    }
    this.wallMs += until - this.monotonicMs;
    this.monotonicMs = until;
  }
}
