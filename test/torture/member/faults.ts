/** The faults of one member process that are switched on and off from outside. */
export class Faults {
  /** The volume says that it is full. */
  full = false;
  /** Writes are reported as durable long before they are: the fault that no member can survive, for the proof. */
  lying = false;
  #slow: { readonly minMs: number; readonly maxMs: number } = { minMs: 0, maxMs: 0 };
  readonly #waiting = new Set<() => void>();
  #failing: "log" | "store" | undefined;
  readonly #onFailed: () => void;
  #held: (() => void)[] | undefined;

  constructor(onFailed: () => void) {
    this.#onFailed = onFailed;
  }

  /** What is waiting now is done with it at once. */
  slowDown(minMs: number, maxMs: number): void {
    this.#slow = { minMs, maxMs };
    for (const wake of [...this.#waiting]) wake();
  }

  failNext(of: "log" | "store"): void {
    this.#failing = of;
  }

  /** As long as a slow disk takes. */
  async delay(): Promise<void> {
    const { minMs, maxMs } = this.#slow;
    if (maxMs === 0) return;
    const delayMs = minMs + Math.random() * (maxMs - minMs);
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, delayMs);
      this.#waiting.add(wake);
    });
  }

  /** @throws once, as a failed fsync does, when asked to */
  failIfAsked(of: "log" | "store"): void {
    if (this.#failing !== of) return;
    this.#failing = undefined;
    this.#onFailed();
    throw Object.assign(new Error("EIO: injected failure of an fsync"), { code: "EIO" });
  }

  /** From now on nothing that fixes the store completes. */
  holdBarriers(): void {
    this.#held ??= [];
  }

  releaseBarriers(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const release of held) release();
  }

  /** Resolves at once, or when barriers are released. */
  async unlessHeld(): Promise<void> {
    const held = this.#held;
    if (held !== undefined) await new Promise<void>((resolve) => held.push(resolve));
  }
}
