const LEAST_MS = 0.1;
/** Each bucket's upper end is this much above the one before: figures are exact to 5%. */
const GROWTH = 1.05;
/** Up to about two minutes. */
const BUCKETS = 290;

/** A histogram of fixed size. */
export class Latencies {
  readonly #counts = new Uint32Array(BUCKETS);
  #count = 0;
  #maxMs = 0;

  add(ms: number): void {
    const bucket = ms <= LEAST_MS ? 0 : Math.ceil(Math.log(ms / LEAST_MS) / Math.log(GROWTH));
    const index = Math.min(bucket, BUCKETS - 1);
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    this.#maxMs = Math.max(this.#maxMs, ms);
  }

  get maxMs(): number {
    return this.#maxMs;
  }

  /** The latency that this share of all stays within, 0 to 1; 0 when there are none. */
  quantileMs(share: number): number {
    let left = share * this.#count;
    for (let index = 0; index < BUCKETS && this.#count > 0; index += 1) {
      left -= this.#counts[index] ?? 0;
      if (left <= 0) return Math.min(LEAST_MS * GROWTH ** index, this.#maxMs);
    }
    return this.#maxMs;
  }
}
