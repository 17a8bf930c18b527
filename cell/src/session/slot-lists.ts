/** A slot in no list. */
export const NONE = -1;

/**
 * Doubly linked lists of slots in typed arrays: a slot is in at most one list, and every operation is O(1) and
 * allocates nothing.
 */
export class SlotLists {
  readonly #heads: Int32Array;
  readonly #tails: Int32Array;
  #next: Int32Array;
  #previous: Int32Array;
  #list: Int32Array;

  constructor(lists: number, capacity: number) {
    this.#heads = new Int32Array(lists).fill(NONE);
    this.#tails = new Int32Array(lists).fill(NONE);
    this.#next = new Int32Array(capacity).fill(NONE);
    this.#previous = new Int32Array(capacity).fill(NONE);
    this.#list = new Int32Array(capacity).fill(NONE);
  }

  grow(capacity: number): void {
    this.#next = grown(this.#next, capacity);
    this.#previous = grown(this.#previous, capacity);
    this.#list = grown(this.#list, capacity);
  }

  /** Empties every list. */
  clear(): void {
    this.#heads.fill(NONE);
    this.#tails.fill(NONE);
    this.#list.fill(NONE);
  }

  /** The list that holds `slot`, or {@link NONE}. */
  listOf(slot: number): number {
    return this.#list[slot] ?? NONE;
  }

  head(list: number): number {
    return this.#heads[list] ?? NONE;
  }

  pushBack(list: number, slot: number): void {
    const tail = this.#tails[list] ?? NONE;
    this.#next[slot] = NONE;
    this.#previous[slot] = tail;
    this.#list[slot] = list;
    if (tail === NONE) this.#heads[list] = slot;
    else this.#next[tail] = slot;
    this.#tails[list] = slot;
  }

  pushFront(list: number, slot: number): void {
    const head = this.#heads[list] ?? NONE;
    this.#next[slot] = head;
    this.#previous[slot] = NONE;
    this.#list[slot] = list;
    if (head === NONE) this.#tails[list] = slot;
    else this.#previous[head] = slot;
    this.#heads[list] = slot;
  }

  /** Nothing happens when it is in no list. */
  remove(slot: number): void {
    const list = this.#list[slot] ?? NONE;
    if (list === NONE) return;
    const next = this.#next[slot] ?? NONE;
    const previous = this.#previous[slot] ?? NONE;
    if (previous === NONE) this.#heads[list] = next;
    else this.#next[previous] = next;
    if (next === NONE) this.#tails[list] = previous;
    else this.#previous[next] = previous;
    this.#list[slot] = NONE;
  }
}

function grown(array: Int32Array, capacity: number): Int32Array {
  const larger = new Int32Array(capacity).fill(NONE, array.length);
  larger.set(array);
  return larger;
}
