import type { LeaseId } from "./operations.ts";

const WORD = 2 ** 32;
const CAPACITY_FIRST = 1024;
/** The table is cut into parts that grow one by one: a part of a million leases is made anew in a millisecond. */
const PARTS = 64;
const PART_SHIFT = 26;
const PART_FIRST = 16;
/** Filled beyond this share, a part doubles. */
const FILLED_MAX = 0.75;
/** No id: the high word of one is below 2^31. */
const FREE = 0xffff_ffff;
const DIGIT_0 = 48;
/** So many digits are surely a safe integer. */
const SAFE_DIGITS = 15;
const DIGITS_MAX = 19;
const NO_SLOT = 0;

/**
 * Numbers leases, so that whatever is known of one can stand in typed arrays at its number, its *slot*: about 25 bytes
 * for each lease where a `Map` of texts takes 80, and nothing for the garbage collector to walk. A lease is named by a
 * scope (a namespace, as a number from 0 to 2^32 - 1) and its id. Slots begin at 0, and those that were given back are
 * given out first.
 */
export class LeaseSlots {
  readonly #seed: number;
  readonly #onGrow: (capacity: number) => void;
  /** By slot: the two halves of the id. Of a free slot: the next free one plus 1, and {@link FREE}. */
  #low = new Uint32Array(CAPACITY_FIRST);
  #high = new Uint32Array(CAPACITY_FIRST);
  #scope = new Uint32Array(CAPACITY_FIRST);
  /** The first free slot below `#used`, plus 1. */
  #free = 0;
  #used = 0;
  #count = 0;
  readonly #counts = new Map<number, number>();
  /** Open addressing with linear probing: slots plus 1; {@link NO_SLOT} where nothing stands. */
  readonly #parts: Uint32Array[] = Array.from({ length: PARTS }, () => new Uint32Array(PART_FIRST));
  readonly #filled = new Uint32Array(PARTS);
  // The id that was read last.
  #idLow = 0;
  #idHigh = 0;

  /**
   * @param seed any number, unknown to clients: ids that they choose must not pile up in one place
   * @param onGrow told the new capacity before a slot beyond the old one is given out
   */
  constructor(seed: number, onGrow: (capacity: number) => void) {
    this.#seed = seed | 0;
    this.#onGrow = onGrow;
  }

  /** Slots there is room for without growing. */
  get capacity(): number {
    return this.#low.length;
  }

  get count(): number {
    return this.#count;
  }

  /** Slots ever used: the bound of a loop over all of them. */
  get slotsUsed(): number {
    return this.#used;
  }

  countOf(scope: number): number {
    return this.#counts.get(scope) ?? 0;
  }

  /** @returns undefined when it is not there, or is no id at all. */
  slot(scope: number, id: LeaseId): number | undefined {
    if (!this.#read(id)) return undefined;
    const low = this.#idLow;
    const high = this.#idHigh;
    const hash = this.#hash(scope, low, high);
    const part = this.#parts[hash >>> PART_SHIFT] as Uint32Array;
    const mask = part.length - 1;
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const slot = (part[at] as number) - 1;
      if (slot < 0) return undefined;
      if (this.#low[slot] === low && this.#high[slot] === high && this.#scope[slot] === scope) return slot;
    }
  }

  has(slot: number): boolean {
    return slot < this.#used && this.#high[slot] !== FREE;
  }

  /** @returns undefined for a free slot. */
  idOf(slot: number): LeaseId | undefined {
    if (!this.has(slot)) return undefined;
    const low = this.#low[slot] as number;
    const high = this.#high[slot] as number;
    if (high < 2 ** 21) return String(high * WORD + low) as LeaseId;
    return ((BigInt(high) << 32n) | BigInt(low)).toString() as LeaseId;
  }

  scopeOf(slot: number): number {
    return this.#scope[slot] ?? 0;
  }

  /** The lease must not be there. @throws RangeError when the text is no id of a lease */
  add(scope: number, id: LeaseId): number {
    if (!this.#read(id)) throw new RangeError(`not the id of a lease: ${JSON.stringify(id)}`);
    const low = this.#idLow;
    const high = this.#idHigh;
    let slot = this.#free - 1;
    if (slot >= 0) {
      this.#free = this.#low[slot] as number;
    } else {
      slot = this.#used;
      if (slot >= this.capacity) this.#grow();
      this.#used += 1;
    }
    this.#low[slot] = low;
    this.#high[slot] = high;
    this.#scope[slot] = scope;
    const hash = this.#hash(scope, low, high);
    this.#makeRoom(hash >>> PART_SHIFT);
    place(this.#parts[hash >>> PART_SHIFT] as Uint32Array, hash, slot);
    this.#count += 1;
    this.#counts.set(scope, this.countOf(scope) + 1);
    return slot;
  }

  /** It must be in use. */
  remove(slot: number): void {
    const scope = this.scopeOf(slot);
    const hash = this.#hashOf(slot);
    const index = hash >>> PART_SHIFT;
    const part = this.#parts[index] as Uint32Array;
    const mask = part.length - 1;
    let hole = hash & mask;
    while (part[hole] !== slot + 1) hole = (hole + 1) & mask;
    // Whoever stands behind and was pushed on by what stood here moves up: no marks of the dead stay behind.
    for (let at = (hole + 1) & mask; part[at] !== NO_SLOT; at = (at + 1) & mask) {
      const home = this.#hashOf((part[at] as number) - 1) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      part[hole] = part[at] as number;
      hole = at;
    }
    part[hole] = NO_SLOT;
    this.#filled[index] = (this.#filled[index] as number) - 1;
    this.#low[slot] = this.#free;
    this.#high[slot] = FREE;
    this.#free = slot + 1;
    this.#count -= 1;
    const left = this.countOf(scope) - 1;
    if (left > 0) this.#counts.set(scope, left);
    else this.#counts.delete(scope);
  }

  /** Forgets all; the capacity stays. */
  clear(): void {
    this.#free = 0;
    this.#used = 0;
    this.#count = 0;
    this.#counts.clear();
    for (let index = 0; index < PARTS; index += 1) this.#parts[index] = new Uint32Array(PART_FIRST);
    this.#filled.fill(0);
  }

  #grow(): void {
    const capacity = this.capacity * 2;
    this.#low = grown(this.#low, capacity);
    this.#high = grown(this.#high, capacity);
    this.#scope = grown(this.#scope, capacity);
    this.#onGrow(capacity);
  }

  /** For one more in this part. */
  #makeRoom(index: number): void {
    const part = this.#parts[index] as Uint32Array;
    const filled = (this.#filled[index] as number) + 1;
    this.#filled[index] = filled;
    if (filled <= part.length * FILLED_MAX) return;
    const larger = new Uint32Array(part.length * 2);
    for (const entry of part) if (entry !== NO_SLOT) place(larger, this.#hashOf(entry - 1), entry - 1);
    this.#parts[index] = larger;
  }

  #hashOf(slot: number): number {
    return this.#hash(this.#scope[slot] as number, this.#low[slot] as number, this.#high[slot] as number);
  }

  #hash(scope: number, low: number, high: number): number {
    return mixed(mixed(mixed(this.#seed ^ low) ^ high) ^ scope) >>> 0;
  }

  /** @returns whether the text is an id: a whole number from 0 to 2^63 - 1 as it is written */
  #read(id: string): boolean {
    const { length } = id;
    if (length === 0 || length > DIGITS_MAX) return false;
    let number = 0;
    const safe = length <= SAFE_DIGITS ? length : length - 9;
    for (let at = 0; at < safe; at += 1) {
      const digit = id.charCodeAt(at) - DIGIT_0;
      if (!(digit >= 0 && digit <= 9)) return false;
      number = number * 10 + digit;
    }
    if (length > 1 && id.charCodeAt(0) === DIGIT_0) return false;
    if (length > SAFE_DIGITS) return this.#readLong(id, number);
    this.#idHigh = Math.floor(number / WORD);
    this.#idLow = number - this.#idHigh * WORD;
    return true;
  }

  /** @param head all digits but the last nine */
  #readLong(id: string, head: number): boolean {
    let tail = 0;
    for (let at = id.length - 9; at < id.length; at += 1) {
      const digit = id.charCodeAt(at) - DIGIT_0;
      if (!(digit >= 0 && digit <= 9)) return false;
      tail = tail * 10 + digit;
    }
    // In pieces that stay below 2^53: id = (above * 2^16 + below) * 10^9 + tail.
    const above = Math.floor(head / 65_536) * 1e9;
    const below = (head % 65_536) * 1e9 + tail;
    const aboveHigh = Math.floor(above / 65_536);
    const low = (above - aboveHigh * 65_536) * 65_536 + below;
    this.#idHigh = aboveHigh + Math.floor(low / WORD);
    this.#idLow = low % WORD;
    return this.#idHigh < 2 ** 31;
  }
}

function place(part: Uint32Array, hash: number, slot: number): void {
  const mask = part.length - 1;
  let at = hash & mask;
  while (part[at] !== NO_SLOT) at = (at + 1) & mask;
  part[at] = slot + 1;
}

/** Spreads every bit over all others (the finaliser of MurmurHash3). */
function mixed(value: number): number {
  let mix = Math.imul(value ^ (value >>> 16), 0x85eb_ca6b);
  mix = Math.imul(mix ^ (mix >>> 13), 0xc2b2_ae35);
  return mix ^ (mix >>> 16);
}

function grown(array: Uint32Array, capacity: number): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(capacity);
  larger.set(array);
  return larger;
}
