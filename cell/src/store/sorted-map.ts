import { assert } from "../invariant.ts";

/** Rows of a leaf before it is split in two. */
const LEAF_ROWS_MAX = 128;

/**
 * Sorted rows in leaves of bounded size. A leaf is changed in place only by the map that owns it; after
 * {@link SortedMap.clone} nobody owns the shared ones, and the first change copies the leaf. So a view costs one array
 * of leaf references, and later changes a leaf each.
 */
interface Leaf {
  keys: Uint8Array[];
  values: Uint8Array[];
  owner: object;
}

export interface Position {
  readonly leaf: number;
  readonly row: number;
}

/** Ordered map from bytes to bytes, compared bytewise. Cloning is cheap. */
export class SortedMap {
  #leaves: Leaf[] = [];
  #owner: object = {};
  #size = 0;
  #bytes = 0;

  get size(): number {
    return this.#size;
  }

  /** Of all keys and values. */
  get bytes(): number {
    return this.#bytes;
  }

  clone(): SortedMap {
    const copy = new SortedMap();
    copy.#leaves = this.#leaves.slice();
    copy.#size = this.#size;
    copy.#bytes = this.#bytes;
    this.#owner = {};
    return copy;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    const leaf = this.#leaves[this.#leafFor(key)];
    if (leaf === undefined) return undefined;
    const row = lowerBound(leaf.keys, key);
    return equalAt(leaf, row, key) ? leaf.values[row] : undefined;
  }

  /** Keeps `key` and `value`: the caller must not change them afterwards. */
  set(key: Uint8Array, value: Uint8Array): void {
    if (this.#leaves.length === 0) this.#leaves.push({ keys: [], values: [], owner: this.#owner });
    const at = this.#leafFor(key);
    const leaf = this.#own(at);
    const row = lowerBound(leaf.keys, key);
    this.#bytes += value.length;
    if (equalAt(leaf, row, key)) {
      this.#bytes -= leaf.values[row]?.length ?? 0;
      leaf.values[row] = value;
      return;
    }
    this.#bytes += key.length;
    this.#size += 1;
    leaf.keys.splice(row, 0, key);
    leaf.values.splice(row, 0, value);
    if (leaf.keys.length > LEAF_ROWS_MAX) this.#split(at, leaf);
  }

  delete(key: Uint8Array): void {
    const at = this.#leafFor(key);
    const shared = this.#leaves[at];
    if (shared === undefined) return;
    const row = lowerBound(shared.keys, key);
    if (!equalAt(shared, row, key)) return;
    const leaf = this.#own(at);
    this.#bytes -= key.length + (leaf.values[row]?.length ?? 0);
    this.#size -= 1;
    leaf.keys.splice(row, 1);
    leaf.values.splice(row, 1);
    if (leaf.keys.length === 0) this.#leaves.splice(at, 1);
  }

  /** The first row whose key is not below `key`; undefined: there is none. */
  firstFrom(key: Uint8Array): Position | undefined {
    const leaf = this.#leafFor(key);
    const row = lowerBound(this.#leaves[leaf]?.keys ?? [], key);
    return this.#normal(leaf, row);
  }

  /** The last row whose key is below `key` (absent: the last row); undefined: there is none. */
  lastBelow(key: Uint8Array | undefined): Position | undefined {
    if (this.#size === 0) return undefined;
    if (key === undefined) return this.#lastOf(this.#leaves.length - 1);
    const leaf = this.#leafFor(key);
    const row = lowerBound(this.#leaves[leaf]?.keys ?? [], key);
    return row > 0 ? { leaf, row: row - 1 } : this.#lastOf(leaf - 1);
  }

  next({ leaf, row }: Position): Position | undefined {
    return this.#normal(leaf, row + 1);
  }

  previous({ leaf, row }: Position): Position | undefined {
    return row > 0 ? { leaf, row: row - 1 } : this.#lastOf(leaf - 1);
  }

  at({ leaf, row }: Position): { key: Uint8Array; value: Uint8Array } {
    const key = this.#leaves[leaf]?.keys[row];
    const value = this.#leaves[leaf]?.values[row];
    assert(key !== undefined && value !== undefined, "a position names a row", { leaf, row });
    return { key, value };
  }

  #normal(leaf: number, row: number): Position | undefined {
    if (row < (this.#leaves[leaf]?.keys.length ?? 0)) return { leaf, row };
    return leaf + 1 < this.#leaves.length ? { leaf: leaf + 1, row: 0 } : undefined;
  }

  #lastOf(leaf: number): Position | undefined {
    const rows = this.#leaves[leaf]?.keys.length;
    return rows === undefined ? undefined : { leaf, row: rows - 1 };
  }

  /** The last leaf whose first key is not above `key`, else the first one. */
  #leafFor(key: Uint8Array): number {
    let low = 0;
    let high = this.#leaves.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const first = this.#leaves[middle]?.keys[0];
      if (first !== undefined && Buffer.compare(first, key) <= 0) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #own(at: number): Leaf {
    const leaf = this.#leaves[at];
    assert(leaf !== undefined, "an owned leaf exists", { at });
    if (leaf.owner === this.#owner) return leaf;
    const copy = { keys: leaf.keys.slice(), values: leaf.values.slice(), owner: this.#owner };
    this.#leaves[at] = copy;
    return copy;
  }

  #split(at: number, leaf: Leaf): void {
    // Keys that only grow (history rows) leave full leaves behind; others split in the middle.
    const appended = at === this.#leaves.length - 1;
    const keep = appended ? LEAF_ROWS_MAX : LEAF_ROWS_MAX / 2;
    const right = { keys: leaf.keys.splice(keep), values: leaf.values.splice(keep), owner: this.#owner };
    this.#leaves.splice(at + 1, 0, right);
  }
}

function equalAt(leaf: Leaf, row: number, key: Uint8Array): boolean {
  const found = leaf.keys[row];
  return found !== undefined && Buffer.compare(found, key) === 0;
}

/** The first index whose key is not below `key`. */
function lowerBound(keys: readonly Uint8Array[], key: Uint8Array): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const found = keys[middle];
    if (found !== undefined && Buffer.compare(found, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
