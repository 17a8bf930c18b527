/** What stands in a {@link WatchTable}: under a number that its owner chose. */
export interface Numbered {
  readonly id: number;
}

const FIRST = 8;
/** Filled beyond this share, the table doubles. */
const FILLED_MAX = 0.75;

/**
 * The watches of one stream, by the number that the client gave each. Open addressing with linear probing: a place is
 * one pointer, about 14 bytes a watch where a `Map` takes 30, which two million watches make felt.
 */
export class WatchTable<T extends Numbered> {
  readonly #seed: number;
  #places: (T | undefined)[] = places<T>(FIRST);
  #size = 0;

  /** @param seed any number, unknown to clients: numbers that they choose must not pile up in one place */
  constructor(seed: number) {
    this.#seed = seed | 0;
  }

  get size(): number {
    return this.#size;
  }

  get(id: number): T | undefined {
    return this.#places[this.#placeOf(id)];
  }

  has(id: number): boolean {
    return this.get(id) !== undefined;
  }

  /** Its number must not be in use. */
  add(one: T): void {
    if (this.#size + 1 > this.#places.length * FILLED_MAX) this.#grow();
    this.#places[this.#placeOf(one.id)] = one;
    this.#size += 1;
  }

  /** Nothing happens when there is none of this number. */
  delete(id: number): void {
    const all = this.#places;
    const mask = all.length - 1;
    let hole = this.#placeOf(id);
    if (all[hole] === undefined) return;
    // Whoever stands behind and was pushed on by what stood here moves up: no marks of the dead stay behind.
    for (let at = (hole + 1) & mask; ; at = (at + 1) & mask) {
      const one = all[at];
      if (one === undefined) break;
      const home = this.#hash(one.id) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      all[hole] = one;
      hole = at;
    }
    all[hole] = undefined;
    this.#size -= 1;
  }

  /** A copy: the table may change while it is walked. */
  values(): T[] {
    return this.#places.filter((one) => one !== undefined);
  }

  clear(): void {
    this.#places = places<T>(FIRST);
    this.#size = 0;
  }

  #grow(): void {
    const before = this.#places;
    this.#places = places<T>(before.length * 2);
    for (const one of before) if (one !== undefined) this.#places[this.#placeOf(one.id)] = one;
  }

  /** Where the number stands, or would. */
  #placeOf(id: number): number {
    const mask = this.#places.length - 1;
    let at = this.#hash(id) & mask;
    for (let one = this.#places[at]; one !== undefined && one.id !== id; one = this.#places[at]) {
      at = (at + 1) & mask;
    }
    return at;
  }

  #hash(id: number): number {
    return mixed(mixed(this.#seed ^ id) ^ Math.floor(id / 2 ** 32));
  }
}

function places<T>(length: number): (T | undefined)[] {
  return new Array<T | undefined>(length).fill(undefined);
}

/** Spreads every bit over all others. */
function mixed(value: number): number {
  let mix = Math.imul(value ^ (value >>> 16), 0x85eb_ca6b);
  mix = Math.imul(mix ^ (mix >>> 13), 0xc2b2_ae35);
  return mix ^ (mix >>> 16);
}
