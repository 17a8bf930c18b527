import { randomFillSync } from "node:crypto";

const VALUES = 4096;

/** A small generator of good enough randomness (xorshift), cheaper than anything with a closure or a double. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed * 2654435761) | 1;
  }

  /** An integer in [0, bound). */
  below(bound: number): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return (x >>> 0) % bound;
  }
}

/** All keys, and values of random bytes (which do not compress), made once. */
export class Corpus {
  readonly keys: readonly Buffer[];
  readonly valueBytes: number;
  readonly #values: readonly Buffer[];

  constructor(keyCount: number, valueBytes: number) {
    this.valueBytes = valueBytes;
    this.keys = Array.from({ length: keyCount }, (_, i) =>
      Buffer.from(`/bench/${String(i).padStart(8, "0")}`),
    );
    const pool = randomFillSync(Buffer.alloc(VALUES * valueBytes));
    this.#values = Array.from({ length: VALUES }, (_, i) =>
      pool.subarray(i * valueBytes, (i + 1) * valueBytes),
    );
  }

  key(random: Random): Buffer {
    return pick(this.keys, random);
  }

  value(random: Random): Buffer {
    return pick(this.#values, random);
  }
}

function pick(from: readonly Buffer[], random: Random): Buffer {
  const found = from[random.below(from.length)];
  if (found === undefined) throw new RangeError("nothing to pick from");
  return found;
}
