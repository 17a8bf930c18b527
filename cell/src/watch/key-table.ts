import type { Watcher, WatcherGroup } from "./watcher.ts";

/** The table is cut into parts that grow one by one, so that none takes long, and none leaves much behind. */
const PARTS = 64;
const PART_SHIFT = 26;
const PART_FIRST = 8;
/** Filled beyond this share, a part doubles. */
const FILLED_MAX = 0.75;

type Part = (WatcherGroup | undefined)[];

function emptyPart(length: number): Part {
  return new Array<WatcherGroup | undefined>(length).fill(undefined);
}

/**
 * The watchers of single keys, by key. Open addressing with linear probing: a place is one pointer, because the key
 * stands in the watcher itself. About 14 bytes a key where a `Map` takes 30, and it never doubles as a whole.
 */
export class KeyTable {
  readonly #seed: number;
  readonly #parts: Part[] = Array.from({ length: PARTS }, () => emptyPart(PART_FIRST));
  readonly #filled = new Uint32Array(PARTS);
  #size = 0;

  /** @param seed any number, unknown to clients: keys that they choose must not pile up in one place */
  constructor(seed: number) {
    this.#seed = seed | 0;
  }

  /** Keys. */
  get size(): number {
    return this.#size;
  }

  get(key: string): WatcherGroup | undefined {
    const hash = this.#hash(key);
    const part = this.#parts[hash >>> PART_SHIFT] as Part;
    return part[placeOf(part, hash, key)];
  }

  /** Adds the key, or replaces its group. The group is of watchers of this key, and never empty while it is here. */
  set(key: string, group: WatcherGroup): void {
    const hash = this.#hash(key);
    const index = hash >>> PART_SHIFT;
    let part = this.#parts[index] as Part;
    let at = placeOf(part, hash, key);
    if (part[at] === undefined) {
      const filled = (this.#filled[index] as number) + 1;
      this.#filled[index] = filled;
      this.#size += 1;
      if (filled > part.length * FILLED_MAX) {
        part = this.#larger(part);
        this.#parts[index] = part;
        at = placeOf(part, hash, key);
      }
    }
    part[at] = group;
  }

  /** The key must be here, with its group as it was. */
  delete(key: string): void {
    const hash = this.#hash(key);
    const index = hash >>> PART_SHIFT;
    const part = this.#parts[index] as Part;
    const mask = part.length - 1;
    let hole = placeOf(part, hash, key);
    if (part[hole] === undefined) return;
    // Whoever stands behind and was pushed on by what stood here moves up: no marks of the dead stay behind.
    for (let at = (hole + 1) & mask; ; at = (at + 1) & mask) {
      const group = part[at];
      if (group === undefined) break;
      const home = this.#hash(keyOfGroup(group)) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      part[hole] = group;
      hole = at;
    }
    part[hole] = undefined;
    this.#filled[index] = (this.#filled[index] as number) - 1;
    this.#size -= 1;
  }

  /** A copy: the table may change while it is walked. */
  values(): WatcherGroup[] {
    return this.#parts.flatMap((part) => part.filter((group) => group !== undefined));
  }

  #larger(part: Part): Part {
    const larger = emptyPart(part.length * 2);
    const mask = larger.length - 1;
    for (const group of part) {
      if (group === undefined) continue;
      let at = this.#hash(keyOfGroup(group)) & mask;
      while (larger[at] !== undefined) at = (at + 1) & mask;
      larger[at] = group;
    }
    return larger;
  }

  #hash(key: string): number {
    let hash = this.#seed;
    for (let at = 0; at < key.length; at += 1) {
      hash = Math.imul(hash ^ key.charCodeAt(at), 0x85eb_ca6b);
      hash ^= hash >>> 15;
    }
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2_ae35);
    return (hash ^ (hash >>> 16)) >>> 0;
  }
}

/** Where the key stands, or would. */
function placeOf(part: Part, hash: number, key: string): number {
  const mask = part.length - 1;
  let at = hash & mask;
  for (let group = part[at]; group !== undefined && keyOfGroup(group) !== key; group = part[at]) {
    at = (at + 1) & mask;
  }
  return at;
}

function keyOfGroup(group: WatcherGroup): string {
  const watcher = Array.isArray(group) ? (group[0] as Watcher) : group;
  return watcher.key as string;
}
