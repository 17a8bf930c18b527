/** Chance that follows from a seed: the same seed draws the same faults with the same parameters in the same order. */
export class Dice {
  #state: number;

  constructor(seed: string) {
    // FNV-1a, so that neighbouring seeds and labels share nothing.
    let hash = 0x811c9dc5;
    for (const byte of Buffer.from(seed)) hash = Math.imul(hash ^ byte, 0x01000193);
    this.#state = hash >>> 0;
  }

  /** Uniform in [0, 1). */
  random(): number {
    // splitmix32
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  /** A whole number, both ends included. */
  between(min: number, max: number): number {
    return min + Math.floor(this.random() * (max - min + 1));
  }

  pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.random() * items.length)];
    if (item === undefined) throw new TypeError("there is nothing to pick from");
    return item;
  }

  /** With the given mean; at least 0. */
  exponential(mean: number): number {
    return -Math.log(1 - this.random()) * mean;
  }

  /** One of the keys, by weight. */
  weighted<K extends string>(weights: ReadonlyMap<K, number>): K {
    const total = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
    let at = this.random() * total;
    for (const [key, weight] of weights) {
      at -= weight;
      if (at < 0) return key;
    }
    throw new TypeError("there is nothing to draw from");
  }

  /** Independent of what this one draws later. */
  fork(label: string): Dice {
    return new Dice(`${String(this.#state)}/${label}`);
  }
}
