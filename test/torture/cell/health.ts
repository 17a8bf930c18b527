/**
 * Which members are meant to be well, by what the nemesis did to them, and the longest time without an acknowledged
 * write while a majority of the voters was.
 */
export class Health {
  readonly #impaired = new Map<string, number>();
  #cellImpaired = 0;
  #voters: readonly string[] = [];
  #healthySince: number | undefined;
  #lastAck = performance.now();
  longestGapMs = 0;
  /** When the longest gap ended, by the monotonic clock. */
  longestGapEndedAt: number = performance.now();

  /** Writers begin now. */
  begin(): void {
    this.#lastAck = performance.now();
  }

  setVoters(names: readonly string[]): void {
    this.#voters = names;
    this.#look();
  }

  get majorityIsHealthy(): boolean {
    if (this.#cellImpaired > 0) return false;
    const healthy = this.#voters.filter((name) => (this.#impaired.get(name) ?? 0) === 0).length;
    return healthy >= Math.floor(this.#voters.length / 2) + 1;
  }

  /** A member is not well until the returned function is called. */
  impair(name: string): () => void {
    this.#impaired.set(name, (this.#impaired.get(name) ?? 0) + 1);
    this.#look();
    return once(() => {
      this.#impaired.set(name, (this.#impaired.get(name) ?? 1) - 1);
      this.#look();
    });
  }

  /** No write can be expected until the returned function is called. */
  impairCell(): () => void {
    this.#cellImpaired += 1;
    this.#look();
    return once(() => {
      this.#cellImpaired -= 1;
      this.#look();
    });
  }

  acknowledged(): void {
    const now = performance.now();
    if (this.#healthySince !== undefined) this.#gap(now - Math.max(this.#lastAck, this.#healthySince), now);
    this.#lastAck = now;
  }

  #look(): void {
    const now = performance.now();
    const healthy = this.majorityIsHealthy;
    if (healthy && this.#healthySince === undefined) this.#healthySince = now;
    if (!healthy && this.#healthySince !== undefined) {
      this.#gap(now - Math.max(this.#lastAck, this.#healthySince), now);
      this.#healthySince = undefined;
    }
  }

  #gap(gapMs: number, now: number): void {
    if (gapMs <= this.longestGapMs) return;
    this.longestGapMs = gapMs;
    this.longestGapEndedAt = now;
  }
}

function once(task: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    task();
  };
}
