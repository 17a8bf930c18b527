import type { ErrorCounts } from "./errors.ts";
import type { Timing } from "./pace.ts";
import type { Store } from "./store.ts";
import type { WatchCheck } from "./watch-check.ts";

export interface WatcherParts {
  readonly store: Store;
  readonly check: WatchCheck;
  readonly errors: ErrorCounts;
  readonly timing: Timing;
}

export interface WatcherOptions {
  readonly prefix: string;
  /** How often the watch is ended and resumed from its place, in milliseconds. */
  readonly renewMs: number;
}

const BACKOFF_MS = 200;

/** Watches all that the load writes, and resumes again and again: by the library when a connection breaks, and by itself. */
export class Watcher {
  readonly #parts: WatcherParts;
  readonly #options: WatcherOptions;
  readonly #waiters: { readonly revision: number; readonly resolve: () => void }[] = [];
  #watch = new AbortController();
  #stopped = false;
  #resumed = 0;
  #restarted = 0;

  constructor(parts: WatcherParts, options: WatcherOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  /** How often it went on from its place with a new watch. */
  get resumed(): number {
    return this.#resumed;
  }

  /** How often the cell had forgotten its place, so that it began anew from what was there. */
  get restarted(): number {
    return this.#restarted;
  }

  /** Finds the place to begin at: what comes later is shown. Waits for a cell that does not answer yet. */
  async begin(): Promise<void> {
    const { store, check, errors, timing } = this.#parts;
    while (!this.#stopped) {
      try {
        const { revision, stored } = await store.list(this.#options.prefix);
        check.begin(revision, stored);
        return;
      } catch (error) {
        errors.add(error);
        await timing.delay(BACKOFF_MS);
      }
    }
  }

  async run(): Promise<void> {
    const { errors, timing } = this.#parts;
    while (!this.#stopped) {
      try {
        await this.#follow();
        this.#resumed += 1;
      } catch (error) {
        if (errors.add(error).code === "compacted") await this.#restart();
        else this.#resumed += 1;
        await timing.delay(BACKOFF_MS);
      }
    }
  }

  /** Resolves when everything up to this revision was shown. */
  reached(revision: number): Promise<void> {
    if (this.#parts.check.revision >= revision) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push({ revision, resolve }));
  }

  stop(): void {
    this.#stopped = true;
    this.#watch.abort();
  }

  /** Until the watch is due to be renewed. */
  async #follow(): Promise<void> {
    const { store, check, timing } = this.#parts;
    const { prefix, renewMs } = this.#options;
    this.#watch = new AbortController();
    const untilMs = timing.now() + renewMs;
    for await (const batch of store.watch(prefix, check.revision + 1, this.#watch.signal)) {
      check.batch(batch);
      this.#tell(check.revision);
      if (this.#stopped || timing.now() >= untilMs) return;
    }
  }

  async #restart(): Promise<void> {
    this.#restarted += 1;
    await this.begin();
    this.#tell(this.#parts.check.revision);
  }

  #tell(revision: number): void {
    const due = this.#waiters.filter((waiter) => waiter.revision <= revision);
    for (const waiter of due) {
      this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
      waiter.resolve();
    }
  }
}
