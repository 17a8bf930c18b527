import type { Runtime } from "./runtime.ts";

export interface TokenBucketOptions {
  readonly runtime: Runtime;
  /** Tokens a second. */
  readonly rate: number;
  /** Tokens that may be saved up, and so spent at once. */
  readonly burst: number;
}

/** Spreads work over time: callers take turns in the order in which they asked. */
export class TokenBucket {
  private readonly options: TokenBucketOptions;
  /** May be negative: tokens that are promised. */
  private tokens: number;
  private filledMs: number;
  private pausedUntilMs = 0;

  constructor(options: TokenBucketOptions) {
    if (!(options.rate > 0) || !(options.burst >= 1))
      throw new TypeError("a bucket needs rate > 0 and burst >= 1");
    this.options = options;
    this.tokens = options.burst;
    this.filledMs = options.runtime.monotonicMs();
  }

  /**
   * Takes a token, now or in advance.
   * @returns how long to wait before using it; undefined: that would be more than `waitMsMax`, and nothing was taken
   */
  take(waitMsMax: number = Infinity): number | undefined {
    const now = this.options.runtime.monotonicMs();
    const { rate, burst } = this.options;
    this.tokens = Math.min(burst, this.tokens + ((now - this.filledMs) * rate) / 1000);
    this.filledMs = now;
    const missing = Math.max(0, 1 - this.tokens);
    const waitMs = Math.max((missing * 1000) / rate, this.pausedUntilMs - now, 0);
    if (waitMs > waitMsMax) return undefined;
    this.tokens -= 1;
    return waitMs;
  }

  /** Nobody goes on for so long, whatever was saved: the server asked for it. */
  pause(durationMs: number): void {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.options.runtime.monotonicMs() + durationMs);
  }
}
