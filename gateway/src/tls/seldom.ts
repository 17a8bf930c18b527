/** At most one line per pause, so that whoever keeps knocking cannot fill the log. */
export class Seldom {
  readonly #pauseMs: number;
  readonly #now: () => number;
  #nextMs = Number.NEGATIVE_INFINITY;
  #unsaid = 0;

  /** @param now monotonic milliseconds; default: `performance.now` */
  constructor(pauseMs: number = 10_000, now: () => number = () => performance.now()) {
    this.#pauseMs = pauseMs;
    this.#now = now;
  }

  /** Calls `tell` with the number of lines that were left out since the last one, or not at all. */
  say(tell: (unsaid: number) => void): void {
    const now = this.#now();
    if (now < this.#nextMs) {
      this.#unsaid += 1;
      return;
    }
    this.#nextMs = now + this.#pauseMs;
    const unsaid = this.#unsaid;
    this.#unsaid = 0;
    tell(unsaid);
  }
}
