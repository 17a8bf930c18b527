import type { Dice } from "../contract.ts";

/** Mixes a label into a seed (FNV-1a), so that forks with different names have nothing in common. */
function mix(seed: number, label: string): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (let at = 0; at < label.length; at += 1) {
    hash = Math.imul(hash ^ label.charCodeAt(at), 0x01000193) >>> 0;
  }
  return hash;
}

/** The generator sfc32: 128 bits of state, good enough for dice and a few nanoseconds a throw. */
export class SeededDice implements Dice {
  readonly #seed: number;
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number, label: string = "world") {
    this.#seed = mix(seed, label);
    this.#a = seed | 0;
    this.#b = this.#seed | 0;
    this.#c = 0x9e3779b9 | 0;
    for (let round = 0; round < 12; round += 1) this.#next();
  }

  random(): number {
    return this.#next() / 0x1_0000_0000;
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  between(min: number, max: number): number {
    return min + Math.floor(this.random() * (max - min + 1));
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError("there is nothing to pick from");
    return items[Math.floor(this.random() * items.length)] as T;
  }

  exponential(mean: number): number {
    return -Math.log(1 - this.random()) * mean;
  }

  fork(label: string): Dice {
    return new SeededDice(this.#seed, label);
  }

  #next(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + sum) | 0;
    return sum >>> 0;
  }
}

/** A UUID of the random kind (version 4). */
export function drawUuid(dice: Dice): string {
  const digits = Array.from({ length: 32 }, () => dice.between(0, 15).toString(16));
  digits[12] = "4";
  digits[16] = "8";
  const text = digits.join("");
  return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join(
    "-",
  );
}
