const SAMPLES_MAX = 1024;
const AGE_MS_MAX = 60_000;
/** Fewer say nothing about a tenth. */
const SAMPLES_MIN = 20;

/** How long the log's syncs took lately: a bounded window, so that an old stall does not count for ever. */
export class RecentSyncs {
  readonly #durationsMs = new Float64Array(SAMPLES_MAX);
  readonly #atMs = new Float64Array(SAMPLES_MAX);
  #count = 0;

  add(durationMs: number, nowMs: number): void {
    const at = this.#count % SAMPLES_MAX;
    this.#durationsMs[at] = durationMs;
    this.#atMs[at] = nowMs;
    this.#count += 1;
  }

  /**
   * The slowest tenth took at least this long, in microseconds: of the syncs of the last minute, and of the newest
   * 1,024 at most. 0: fewer than 20.
   */
  p90Us(nowMs: number): number {
    const held = Math.min(this.#count, SAMPLES_MAX);
    const recent = this.#durationsMs
      .subarray(0, held)
      .filter((_, position) => nowMs - (this.#atMs[position] ?? 0) <= AGE_MS_MAX)
      .sort();
    if (recent.length < SAMPLES_MIN) return 0;
    return Math.round((recent[Math.floor(recent.length * 0.9)] ?? 0) * 1000);
  }
}
