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

/** Keys beyond this many are made when they are asked for: ten million of them would fill the generator's memory. */
const READY_KEYS_MAX = 1_000_000;

function nthKey(index: number): Buffer {
  return Buffer.from(`/bench/${String(index).padStart(8, "0")}`);
}

/** All keys, and values of random bytes (which do not compress). */
export class Corpus {
  readonly keyCount: number;
  readonly valueBytes: number;
  readonly #keys: readonly Buffer[];
  readonly #values: readonly Buffer[];

  constructor(keyCount: number, valueBytes: number) {
    this.keyCount = keyCount;
    this.valueBytes = valueBytes;
    const ready = keyCount > READY_KEYS_MAX ? 0 : keyCount;
    this.#keys = Array.from({ length: ready }, (_, index) => nthKey(index));
    const pool = randomFillSync(Buffer.alloc(VALUES * valueBytes));
    this.#values = Array.from({ length: VALUES }, (_, i) =>
      pool.subarray(i * valueBytes, (i + 1) * valueBytes),
    );
  }

  keyAt(index: number): Buffer {
    return this.#keys[index] ?? nthKey(index);
  }

  key(random: Random): Buffer {
    return this.keyAt(random.below(this.keyCount));
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
