/** What may have been compacted: a lost answer does not tell, so every attempt counts. */
export class CompactionLedger {
  #highest = 0;

  /** The highest revision that anybody has asked to compact to; history from there on must be readable. */
  get highest(): number {
    return this.#highest;
  }

  /** Before the request is sent. */
  attempt(revision: number): void {
    this.#highest = Math.max(this.#highest, revision);
  }
}
