import type { NamespaceId } from "../machine/types.ts";

/** Groups what is to be proposed by namespace, in bounded batches, in order of first need. */
export class NamespaceBatches<T> {
  readonly #max: number;
  readonly #batches: { readonly namespaceId: NamespaceId; readonly items: T[] }[] = [];
  readonly #open = new Map<NamespaceId, T[]>();

  constructor(max: number) {
    this.#max = max;
  }

  add(namespaceId: NamespaceId, item: T): void {
    let items = this.#open.get(namespaceId);
    if (items === undefined || items.length >= this.#max) {
      items = [];
      this.#open.set(namespaceId, items);
      this.#batches.push({ namespaceId, items });
    }
    items.push(item);
  }

  map<R>(make: (namespaceId: NamespaceId, items: readonly T[]) => R): R[] {
    return this.#batches.map(({ namespaceId, items }) => make(namespaceId, items));
  }
}
