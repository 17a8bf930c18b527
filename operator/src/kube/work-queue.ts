import { NO_METRICS } from "./metrics.ts";
import type { KubeMetrics } from "./metrics.ts";
import { backoffMs } from "./runtime.ts";
import type { BackoffLimits, Runtime } from "./runtime.ts";
import type { TokenBucket } from "./token-bucket.ts";
import { KubeError } from "./types.ts";

/** What a pass found: absent, nothing more to do until somebody adds the key again. */
export interface WorkResult {
  readonly requeueAfterMs?: number;
}

export interface WorkQueueOptions {
  /** For metrics. */
  readonly name: string;
  readonly runtime: Runtime;
  /**
   * One pass over a key. Never called for a key that is being worked on. What it throws is reported and tried again after
   * a back-off. `signal` is aborted when the queue can wait no longer.
   */
  readonly work: (key: string, signal: AbortSignal) => Promise<WorkResult | undefined>;
  /** Keys worked on at once; default 10. */
  readonly concurrency?: number;
  /** After failures in a row of one key; default 5 ms to 30 s. */
  readonly backoff?: BackoffLimits;
  /** Every pass takes a token, so that a hot loop stays bounded; absent: none. */
  readonly bucket?: TokenBucket;
  /** Keys known at once, due or later; default 100,000. More are dropped, counted and reported: a periodic list brings them back. */
  readonly keysMax?: number;
  readonly metrics?: KubeMetrics;
  /** Failed passes and dropped keys, for logs. */
  readonly report?: (message: string, error: Error) => void;
}

const CONCURRENCY = 10;
/**
 * An apiserver in trouble fails many passes in a row, and a cell must not wait for long when it is well again. What all
 * cells ask for together is bounded by the rate of calls.
 */
const BACKOFF: BackoffLimits = { baseMs: 5, maxMs: 30_000 };
const KEYS_MAX = 100_000;

/**
 * A set of keys that are due, each once however often it was added, in the order in which they became due. Level-triggered:
 * an addition means "look at this key after now", so one that comes during a pass makes another pass.
 */
export class WorkQueue {
  private readonly options: WorkQueueOptions;
  private readonly metrics: KubeMetrics;
  /** Key to when it became due. */
  private readonly due = new Map<string, number>();
  private readonly later = new Map<string, { atMs: number; cancel: () => void }>();
  private readonly active = new Set<string>();
  /** Added while they were worked on. */
  private readonly again = new Set<string>();
  private readonly failures = new Map<string, number>();
  private readonly stopping = new AbortController();
  private readonly idle: (() => void)[] = [];
  private state: "open" | "started" | "draining" = "open";
  private wake: (() => void) | undefined;
  private nextToken: number | undefined;

  constructor(options: WorkQueueOptions) {
    this.options = options;
    this.metrics = options.metrics ?? NO_METRICS;
  }

  /** Keys that are due and wait. */
  get depth(): number {
    return this.due.size;
  }

  /** Passes under way. */
  get working(): number {
    return this.active.size;
  }

  /** Keys may be added before. */
  start(): void {
    if (this.state === "open") this.state = "started";
    this.pump();
  }

  /** The key is due now. */
  add(key: string): void {
    if (this.state === "draining") return;
    if (this.active.has(key)) {
      this.again.add(key);
      return;
    }
    if (this.due.has(key) || !this.fits(key)) return;
    this.due.set(key, this.options.runtime.monotonicMs());
    this.metrics.queueDepth(this.options.name, this.due.size);
    this.pump();
  }

  /**
   * The key is due in `delayMs`, or sooner when something else asks for it: of several times the earliest counts, and a
   * pass that begins forgets it, because it says by itself when to look again.
   */
  addAfter(key: string, delayMs: number): void {
    if (this.state === "draining") return;
    if (delayMs <= 0) {
      this.add(key);
      return;
    }
    const atMs = this.options.runtime.monotonicMs() + delayMs;
    const planned = this.later.get(key);
    if (planned !== undefined && planned.atMs <= atMs) return;
    if (planned === undefined && !this.fits(key)) return;
    planned?.cancel();
    const cancel = this.options.runtime.after(delayMs, () => {
      this.later.delete(key);
      this.add(key);
    });
    this.later.set(key, { atMs, cancel });
  }

  /** The key's object is gone: nothing is planned or remembered for it any more. */
  forget(key: string): void {
    this.unplan(key);
    this.failures.delete(key);
    this.again.delete(key);
    if (this.due.delete(key)) this.metrics.queueDepth(this.options.name, this.due.size);
  }

  /**
   * Begins nothing more and waits for the passes under way; after `graceMs` their signals are aborted.
   * @returns true: all had ended within the grace period
   */
  async drain(graceMs: number): Promise<boolean> {
    this.state = "draining";
    for (const { cancel } of this.later.values()) cancel();
    this.later.clear();
    this.due.clear();
    this.again.clear();
    this.wake?.();
    this.wake = undefined;
    this.metrics.queueDepth(this.options.name, 0);
    const cancel = this.options.runtime.after(graceMs, () => {
      this.stopping.abort(new KubeError("unavailable", "the queue is being drained"));
    });
    if (this.active.size > 0) await new Promise<void>((resolve) => this.idle.push(resolve));
    cancel();
    return !this.stopping.signal.aborted;
  }

  private pump(): void {
    while (this.state === "started" && this.active.size < (this.options.concurrency ?? CONCURRENCY)) {
      const next = this.due.entries().next();
      if (next.done === true || !this.allowed()) return;
      const [key, sinceMs] = next.value;
      this.due.delete(key);
      this.active.add(key);
      this.unplan(key);
      this.metrics.queueDepth(this.options.name, this.due.size);
      this.metrics.queueWaited(this.options.name, this.options.runtime.monotonicMs() - sinceMs);
      void this.pass(key);
    }
  }

  /** Holds one token in advance, and wakes the queue when it is good. */
  private allowed(): boolean {
    const { bucket, runtime } = this.options;
    if (bucket === undefined) return true;
    const now = runtime.monotonicMs();
    this.nextToken ??= now + (bucket.take() ?? 0);
    if (this.nextToken <= now) {
      this.nextToken = undefined;
      return true;
    }
    this.wake ??= runtime.after(this.nextToken - now, () => {
      this.wake = undefined;
      this.pump();
    });
    return false;
  }

  private async pass(key: string): Promise<void> {
    const { name, runtime, work } = this.options;
    const startedMs = runtime.monotonicMs();
    try {
      const result = await work(key, this.stopping.signal);
      this.metrics.queueWorked(name, "ok", runtime.monotonicMs() - startedMs);
      this.failures.delete(key);
      this.finish(key);
      if (result?.requeueAfterMs !== undefined) this.addAfter(key, result.requeueAfterMs);
    } catch (thrown) {
      this.metrics.queueWorked(name, "failed", runtime.monotonicMs() - startedMs);
      this.finish(key);
      this.retry(key, thrown);
    }
    this.pump();
    if (this.active.size === 0 && this.state === "draining") {
      for (const done of this.idle.splice(0)) done();
    }
  }

  private finish(key: string): void {
    this.active.delete(key);
    if (this.again.delete(key)) this.add(key);
  }

  private retry(key: string, thrown: unknown): void {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    this.report(`${this.options.name}: ${key}`, error);
    if (this.state === "draining") return;
    const failures = (this.failures.get(key) ?? 0) + 1;
    this.failures.set(key, failures);
    const asked = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    const { backoff = BACKOFF, runtime } = this.options;
    const delayMs = backoffMs(backoff, failures, () => runtime.random());
    this.metrics.queueRetried(this.options.name);
    this.addAfter(key, Math.max(delayMs, asked));
  }

  private unplan(key: string): void {
    this.later.get(key)?.cancel();
    this.later.delete(key);
  }

  private fits(key: string): boolean {
    const keysMax = this.options.keysMax ?? KEYS_MAX;
    if (this.due.has(key) || this.later.has(key) || this.due.size + this.later.size < keysMax) return true;
    this.metrics.queueDropped(this.options.name);
    this.report(`${this.options.name}: ${key}`, new Error(`dropped: more than ${keysMax} keys`));
    return false;
  }

  private report(message: string, error: Error): void {
    try {
      this.options.report?.(message, error);
    } catch {
      // Whoever cannot even log must not stop the queue.
    }
  }
}
