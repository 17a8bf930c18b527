/** A small seeded generator: a case is a function of target, seed and index, whatever ran before it. */
export class Dice {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(label: string, seed: number, index: number) {
    let mixed = 0x811c9dc5;
    for (let i = 0; i < label.length; i++) mixed = Math.imul(mixed ^ label.charCodeAt(i), 0x01000193);
    this.#a = mixed >>> 0;
    this.#b = Math.imul(seed ^ (seed / 0x1_0000_0000), 0x9e3779b1) >>> 0;
    this.#c = Math.imul(index, 0x85ebca6b) >>> 0;
    for (let round = 0; round < 12; round++) this.uint32();
  }

  /** Small fast counting generator, 32 bits. */
  uint32(): number {
    const sum = (this.#a + this.#b + this.#counter++) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    return sum >>> 0;
  }

  /** A whole number from 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor((this.uint32() / 0x1_0000_0000) * limit);
  }

  /** A whole number, both ends included. */
  between(min: number, max: number): number {
    return min + this.below(max - min + 1);
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new TypeError("nothing to pick from");
    return item;
  }

  /** A length: short most of the time, long now and then. */
  length(max: number): number {
    return this.once(16) ? this.below(max + 1) : this.below(Math.min(max, 12) + 1);
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let i = 0; i < length; i++) bytes[i] = this.uint32() >>> 24;
    return bytes;
  }

  list<T>(max: number, make: () => T): T[] {
    return Array.from({ length: this.length(max) }, make);
  }
}
