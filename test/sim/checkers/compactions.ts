/** What may have been compacted: a lost answer does not tell, so every attempt counts. */
export class CompactionLedger {
  readonly #retained: () => number;
  #highest = 0;

  /** @param retained what the cell has given up by itself, by its retention */
  constructor(retained: () => number = () => 0) {
    this.#retained = retained;
  }

  /** The highest revision that anybody has asked to compact to; history from there on must be readable. */
  get highest(): number {
    return Math.max(this.#highest, this.#retained());
  }

  /** Before the request is sent. */
  attempt(revision: number): void {
    this.#highest = Math.max(this.#highest, revision);
  }
}
