/** 128 steps for each doubling: a quantile is off by less than 1 %. */
const STEP_BITS = 7;
const STEPS = 1 << STEP_BITS;
/** Microseconds from 2^7 up to about 2^36 (19 hours). */
const DOUBLINGS = 30;
const BUCKETS = STEPS * (DOUBLINGS + 1);

function bucketOf(micros: number): number {
  if (micros < STEPS) return micros;
  // Doubles, not shifts: microseconds may exceed 31 bits.
  const shift = Math.floor(Math.log2(micros)) - STEP_BITS;
  const index = shift * STEPS + Math.floor(micros / 2 ** shift);
  return Math.min(index, BUCKETS - 1);
}

/** The largest value, in microseconds, that falls into the bucket. */
function highestOf(index: number): number {
  if (index < STEPS) return index;
  const shift = Math.floor(index / STEPS) - 1;
  return ((index % STEPS) + STEPS + 1) * 2 ** shift - 1;
}

/**
 * A log-linear histogram of durations. bench/etcdload/histogram.go has the same buckets, so that both load
 * generators round in the same way.
 */
export class Histogram {
  readonly #counts = new Float64Array(BUCKETS);
  #total = 0;
  #maxMicros = 0;

  get total(): number {
    return this.#total;
  }

  get maxMs(): number {
    return this.#maxMicros / 1000;
  }

  /** Counts `times` samples of one duration. */
  record(milliseconds: number, times = 1): void {
    const micros = Math.max(0, Math.floor(milliseconds * 1000));
    const index = bucketOf(micros);
    this.#counts[index] = (this.#counts[index] ?? 0) + times;
    this.#total += times;
    if (micros > this.#maxMicros) this.#maxMicros = micros;
  }

  /** Takes all samples of another. */
  add(other: Histogram): void {
    for (let index = 0; index < BUCKETS; index += 1) {
      this.#counts[index] = (this.#counts[index] ?? 0) + (other.#counts[index] ?? 0);
    }
    this.#total += other.#total;
    this.#maxMicros = Math.max(this.#maxMicros, other.#maxMicros);
  }

  /** The value that at least the fraction `q` of all samples does not exceed; 0 without samples. */
  quantileMs(q: number): number {
    const wanted = Math.max(1, Math.round(q * this.#total));
    let seen = 0;
    for (let index = 0; index < BUCKETS; index += 1) {
      seen += this.#counts[index] ?? 0;
      if (seen >= wanted) return Math.min(highestOf(index), this.#maxMicros) / 1000;
    }
    return this.#maxMicros / 1000;
  }
}
