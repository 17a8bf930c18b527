/**
 * How many cells of the fleet restart their members at a time. Only the elected operator decides, so one process's
 * memory, fed with what the cells' statuses say, is enough.
 */
export class RollBudget {
  readonly #max: number;
  readonly #rolling = new Set<string>();

  /** @param max cells that may roll at once; at least 1. */
  constructor(max: number) {
    if (!Number.isInteger(max) || max < 1) throw new TypeError("at least one cell must be able to roll");
    this.#max = max;
  }

  /** What a cell's status says: whether it rolls. To be told of every cell, at every change. */
  note(cell: string, rolls: boolean): void {
    if (rolls) this.#rolling.add(cell);
    else this.#rolling.delete(cell);
  }

  /** Whether `cell` rolls already or may begin to. */
  allows(cell: string): boolean {
    return this.#rolling.has(cell) || this.#rolling.size < this.#max;
  }

  /** Takes a place before the status is written; false: another cell took the last one meanwhile. */
  take(cell: string): boolean {
    if (!this.allows(cell)) return false;
    this.#rolling.add(cell);
    return true;
  }
}
