/**
 * Half-open intervals of keys, and which of them contain a key. Keys are latin1 strings of bytes, so that string
 * order is byte order. A treap ordered by (start, end); each node knows the largest end below it. Equal intervals
 * share a node, so that a thousand watchers of one prefix cost one node.
 */

/** Greater than every latin1 string: the end of an interval that is open above. */
export const INFINITY_KEY = "\uffff";

export interface Interval<T> {
  readonly start: string;
  readonly end: string;
  readonly value: T;
}

interface Node<T> extends Interval<T> {
  readonly priority: number;
  maxEnd: string;
  left: Node<T> | undefined;
  right: Node<T> | undefined;
}

export class IntervalIndex<T> {
  #root: Node<T> | undefined;
  #size = 0;
  // Any stream of well-mixed numbers balances the tree; a fixed seed keeps runs reproducible.
  #state = 0x9e37_79b9;

  get size(): number {
    return this.#size;
  }

  /** The value of exactly this interval. */
  get(start: string, end: string): T | undefined {
    let node = this.#root;
    while (node !== undefined) {
      const order = compare(start, end, node);
      if (order === 0) return node.value;
      node = order < 0 ? node.left : node.right;
    }
    return undefined;
  }

  /** The interval must not be there yet. */
  add(start: string, end: string, value: T): void {
    const { left, right } = split(this.#root, start, end);
    const node: Node<T> = {
      start,
      end,
      value,
      priority: this.#random(),
      maxEnd: end,
      left: undefined,
      right: undefined,
    };
    this.#root = merge(merge(left, node), right);
    this.#size += 1;
  }

  delete(start: string, end: string): void {
    this.#root = this.#without(this.#root, start, end);
  }

  /** Calls back for every interval with `start <= key < end`. */
  stab(key: string, visit: (value: T) => void): void {
    stab(this.#root, key, visit);
  }

  /** All values, in order of their intervals. */
  values(): T[] {
    const values: T[] = [];
    collect(this.#root, values);
    return values;
  }

  #without(node: Node<T> | undefined, start: string, end: string): Node<T> | undefined {
    if (node === undefined) return undefined;
    const order = compare(start, end, node);
    if (order === 0) {
      this.#size -= 1;
      return merge(node.left, node.right);
    }
    if (order < 0) node.left = this.#without(node.left, start, end);
    else node.right = this.#without(node.right, start, end);
    update(node);
    return node;
  }

  #random(): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return x >>> 0;
  }
}

function compare(start: string, end: string, node: Interval<unknown>): number {
  if (start !== node.start) return start < node.start ? -1 : 1;
  if (end !== node.end) return end < node.end ? -1 : 1;
  return 0;
}

function update<T>(node: Node<T>): void {
  let maxEnd = node.end;
  if (node.left !== undefined && node.left.maxEnd > maxEnd) maxEnd = node.left.maxEnd;
  if (node.right !== undefined && node.right.maxEnd > maxEnd) maxEnd = node.right.maxEnd;
  node.maxEnd = maxEnd;
}

interface Halves<T> {
  left: Node<T> | undefined;
  right: Node<T> | undefined;
}

/** Everything before (start, end), and the rest. */
function split<T>(node: Node<T> | undefined, start: string, end: string): Halves<T> {
  if (node === undefined) return { left: undefined, right: undefined };
  if (compare(start, end, node) <= 0) {
    const halves = split(node.left, start, end);
    node.left = halves.right;
    update(node);
    halves.right = node;
    return halves;
  }
  const halves = split(node.right, start, end);
  node.right = halves.left;
  update(node);
  halves.left = node;
  return halves;
}

/** All of `left` is before all of `right`. */
function merge<T>(left: Node<T> | undefined, right: Node<T> | undefined): Node<T> | undefined {
  if (left === undefined) return right;
  if (right === undefined) return left;
  if (left.priority > right.priority) {
    left.right = merge(left.right, right);
    update(left);
    return left;
  }
  right.left = merge(left, right.left);
  update(right);
  return right;
}

function stab<T>(root: Node<T> | undefined, key: string, visit: (value: T) => void): void {
  let node = root;
  while (node !== undefined && node.maxEnd > key) {
    if (node.left !== undefined) stab(node.left, key, visit);
    // Everything to the right starts later still.
    if (node.start > key) return;
    if (node.end > key) visit(node.value);
    node = node.right;
  }
}

function collect<T>(node: Node<T> | undefined, into: T[]): void {
  if (node === undefined) return;
  collect(node.left, into);
  into.push(node.value);
  collect(node.right, into);
}
