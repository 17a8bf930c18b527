/** Changes that may wait for one reader; one who is further behind is told to look at everything again. */
const WAITING_MAX = 1_024;

/** Hands changes to any number of readers, none of whom delays the others or the source. */
export class ChangeFeed<T> {
  readonly #readers = new Set<Reader<T>>();
  #over: { readonly error: unknown } | undefined;

  /** Readers from now on. `behind` is what a reader gets instead of the changes that it was too slow for. */
  read(behind: () => T, signal?: AbortSignal): AsyncGenerator<T, void, undefined> {
    const reader = new Reader<T>(behind);
    // From this call on, and not from the first step of the generator: what happens in between must not be missed.
    this.#readers.add(reader);
    if (this.#over !== undefined) reader.end(this.#over.error);
    return this.#iterate(reader, signal);
  }

  push(change: T): void {
    for (const reader of this.#readers) reader.push(change);
  }

  /** All readers get what waits for them, and then finish; with the error, if there is one. */
  end(error?: unknown): void {
    if (this.#over !== undefined) return;
    this.#over = { error };
    for (const reader of this.#readers) reader.end(error);
  }

  async *#iterate(reader: Reader<T>, signal: AbortSignal | undefined): AsyncGenerator<T, void, undefined> {
    const stop = (): void => reader.stop();
    if (signal?.aborted === true) stop();
    else signal?.addEventListener("abort", stop, { once: true });
    try {
      for (;;) {
        const change = await reader.next();
        if (change === undefined) return;
        yield change.value;
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      this.#readers.delete(reader);
    }
  }
}

class Reader<T> {
  readonly #behind: () => T;
  #waiting: T[] = [];
  #over: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  constructor(behind: () => T) {
    this.#behind = behind;
  }

  push(change: T): void {
    if (this.#over !== undefined) return;
    if (this.#waiting.length >= WAITING_MAX) this.#waiting = [this.#behind()];
    else this.#waiting.push(change);
    this.#wake?.();
  }

  end(error: unknown): void {
    this.#over ??= { error };
    this.#wake?.();
  }

  stop(): void {
    this.#waiting = [];
    this.end(undefined);
  }

  /** @returns undefined at the end. */
  async next(): Promise<{ readonly value: T } | undefined> {
    while (this.#waiting.length === 0) {
      if (this.#over !== undefined) {
        if (this.#over.error !== undefined) throw this.#over.error as Error;
        return undefined;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const [value] = this.#waiting.splice(0, 1) as [T];
    return { value };
  }
}
