/** The rows of one keyspace that wait to be handed down: found by hash, and in order for scans. */
import { compareBytes, equalBytes, hashKey } from "../bytes.ts";

/** The newest state of a row. */
export interface WaitingRow {
  readonly key: Uint8Array;
  /** undefined: deleted. */
  readonly value: Uint8Array | undefined;
}

class Slot implements WaitingRow {
  readonly key: Uint8Array;
  readonly hash: number;
  value: Uint8Array | undefined = undefined;
  /** The store below certainly has no row of this key: its deletion is then nothing to hand down. */
  readonly isNew: boolean;

  constructor(key: Uint8Array, hash: number, isNew: boolean) {
    this.key = key;
    this.hash = hash;
    this.isNew = isNew;
  }

  get isNothing(): boolean {
    return this.isNew && this.value === undefined;
  }
}

const SLOTS_MIN = 64;

export class WaitingRows {
  /** Open addressing; nothing is ever taken out of it but all. */
  #slots: (Slot | undefined)[] = empty(SLOTS_MIN);
  #mask = SLOTS_MIN - 1;
  #held = 0;
  #size = 0;
  #ascending: Slot[] = [];
  /** Not among the ascending ones yet. */
  #added: Slot[] = [];

  /** Rows to hand down. */
  get size(): number {
    return this.#size;
  }

  /** The same, and those that came and went. */
  get held(): number {
    return this.#held;
  }

  /** undefined: nothing is known of this key here. */
  get(key: Uint8Array): WaitingRow | undefined {
    return this.#held === 0 ? undefined : this.#find(key, hashKey(0, key) | 0);
  }

  /** @param key kept, as `value` is. @param isNew there is no row of this key now, neither here nor below */
  set(key: Uint8Array, value: Uint8Array | undefined, isNew: boolean): void {
    const hash = hashKey(0, key) | 0;
    let slot = this.#find(key, hash);
    if (slot === undefined) {
      slot = new Slot(key, hash, isNew);
      this.#add(slot);
    } else if (!slot.isNothing) {
      this.#size -= 1;
    }
    slot.value = value;
    if (!slot.isNothing) this.#size += 1;
  }

  /** All that are held, in key order. */
  ascending(): readonly WaitingRow[] {
    return this.#sorted();
  }

  /** Those to hand down, in key order, which is the order that a store below takes them fastest in. */
  toHandDown(): readonly WaitingRow[] {
    const isThere = (slot: Slot): boolean => !slot.isNothing;
    return merged(this.#ascending.filter(isThere), this.#added.filter(isThere).sort(byKey));
  }

  clear(): void {
    if (this.#held === 0) return;
    if (this.#slots.length > 4 * this.#held) this.#resize(SLOTS_MIN);
    else this.#slots.fill(undefined);
    this.#held = 0;
    this.#size = 0;
    this.#ascending = [];
    this.#added = [];
  }

  #sorted(): readonly Slot[] {
    if (this.#added.length > 0) {
      this.#ascending = merged(this.#ascending, this.#added.sort(byKey));
      this.#added = [];
    }
    return this.#ascending;
  }

  #find(key: Uint8Array, hash: number): Slot | undefined {
    for (let at = hash & this.#mask; ; at = (at + 1) & this.#mask) {
      const slot = this.#slots[at];
      if (slot === undefined || (slot.hash === hash && equalBytes(slot.key, key))) return slot;
    }
  }

  #add(slot: Slot): void {
    if (this.#held * 2 >= this.#slots.length) {
      const old = this.#slots;
      this.#resize(old.length * 2);
      for (const one of old) if (one !== undefined) this.#place(one);
    }
    this.#place(slot);
    this.#held += 1;
    this.#added.push(slot);
  }

  #place(slot: Slot): void {
    let at = slot.hash & this.#mask;
    while (this.#slots[at] !== undefined) at = (at + 1) & this.#mask;
    this.#slots[at] = slot;
  }

  #resize(slots: number): void {
    this.#slots = empty(slots);
    this.#mask = slots - 1;
  }
}

function empty(slots: number): (Slot | undefined)[] {
  return new Array<Slot | undefined>(slots).fill(undefined);
}

function byKey(a: Slot, b: Slot): number {
  return compareBytes(a.key, b.key);
}

/** Both are ascending and have no key in common. */
function merged(one: readonly Slot[], other: readonly Slot[]): Slot[] {
  const all: Slot[] = [];
  let next = 0;
  for (const slot of other) {
    for (; next < one.length && byKey(one[next] as Slot, slot) < 0; next += 1) all.push(one[next] as Slot);
    all.push(slot);
  }
  for (; next < one.length; next += 1) all.push(one[next] as Slot);
  return all;
}
