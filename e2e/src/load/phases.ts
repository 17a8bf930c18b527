import { Latencies } from "./latencies.ts";

/** The time from one mark to the next. */
export interface PhaseReport {
  readonly name: string;
  readonly seconds: number;
  readonly acknowledged: number;
  readonly unknown: number;
  /** Refused for certain. */
  readonly failed: number;
  /** The longest time without an acknowledged write, of which a part lies in this phase; the open one counts too. */
  readonly longestWriteGapMs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

const FINISHED_MAX = 100;

class Phase {
  readonly name: string;
  readonly startedMs: number;
  readonly latencies = new Latencies();
  acknowledged = 0;
  unknown = 0;
  failed = 0;
  longestGapMs = 0;

  constructor(name: string, startedMs: number) {
    this.name = name;
    this.startedMs = startedMs;
  }

  report(nowMs: number, openGapMs: number): PhaseReport {
    const round = (ms: number): number => Math.round(ms * 10) / 10;
    return {
      name: this.name,
      seconds: round((nowMs - this.startedMs) / 1000),
      acknowledged: this.acknowledged,
      unknown: this.unknown,
      failed: this.failed,
      longestWriteGapMs: round(Math.max(this.longestGapMs, openGapMs)),
      p50Ms: round(this.latencies.quantileMs(0.5)),
      p99Ms: round(this.latencies.quantileMs(0.99)),
      maxMs: round(this.latencies.maxMs),
    };
  }
}

/** Counts writes from mark to mark and over all, and measures how long none was acknowledged. */
export class Phases {
  readonly #now: () => number;
  readonly #total: Phase;
  readonly #finished: PhaseReport[] = [];
  #current: Phase;
  /** Undefined while nobody tries to write. */
  #lastMs: number | undefined;

  constructor(now: () => number) {
    this.#now = now;
    this.#total = new Phase("all", now());
    this.#current = new Phase("start", now());
  }

  get acknowledgedCount(): number {
    return this.#total.acknowledged;
  }

  /** Writing begins, or goes on. */
  resume(): void {
    this.#lastMs = this.#now();
  }

  /** Nobody writes now, on purpose: no gap. */
  pause(): void {
    this.#gap();
    this.#lastMs = undefined;
  }

  acknowledged(latencyMs: number): void {
    this.#gap();
    if (this.#lastMs !== undefined) this.#lastMs = this.#now();
    for (const phase of [this.#total, this.#current]) {
      phase.acknowledged += 1;
      phase.latencies.add(latencyMs);
    }
  }

  unknown(): void {
    for (const phase of [this.#total, this.#current]) phase.unknown += 1;
  }

  failed(): void {
    for (const phase of [this.#total, this.#current]) phase.failed += 1;
  }

  /** A new phase begins. A gap that is open counts whole in both: no mark makes one look shorter. */
  mark(name: string): void {
    this.#finished.push(this.#current.report(this.#now(), this.#openMs()));
    if (this.#finished.length > FINISHED_MAX) this.#finished.shift();
    this.#current = new Phase(name, this.#now());
  }

  get total(): PhaseReport {
    return this.#total.report(this.#now(), this.#openMs());
  }

  get current(): PhaseReport {
    return this.#current.report(this.#now(), this.#openMs());
  }

  /** The last hundred. */
  get finished(): readonly PhaseReport[] {
    return this.#finished;
  }

  #openMs(): number {
    return this.#lastMs === undefined ? 0 : this.#now() - this.#lastMs;
  }

  #gap(): void {
    const gapMs = this.#openMs();
    for (const phase of [this.#total, this.#current])
      phase.longestGapMs = Math.max(phase.longestGapMs, gapMs);
  }
}
