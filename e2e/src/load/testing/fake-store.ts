import { LockstepError } from "@lockstep/client";
import type {
  CompareResult,
  Reading,
  Store,
  StoreBatch,
  StoreEvent,
  StoreLock,
  StoreSession,
  Stored,
  WriteResult,
} from "../store.ts";

/** What the store does wrong the next time it can. */
export type Lie =
  | "lose-write"
  | "write-twice"
  | "write-refused"
  | "old-revision"
  | "stale-read"
  | "lose-key"
  | "foreign-write"
  | "repeat-token"
  | "give-held-lock"
  | "drop-event"
  | "drop-last-event"
  | "repeat-event"
  | "swap-events"
  | "forge-event";

/** What an honest cell may do as well. */
export type Fault = "unknown-applied" | "unknown-not-applied" | "refuse" | "break-watch" | "compact";

/** One key-value store in memory, honest unless told otherwise. */
export class FakeStore implements Store {
  readonly #keys = new Map<string, Stored>();
  readonly #history: StoreEvent[] = [];
  readonly #prefix: string;
  #revision = 1;
  #compacted = 0;
  #lie: Lie | undefined;
  #faults: Fault[] = [];
  #holder: { held: boolean } | undefined;
  #lastToken = 0;
  #changed = Promise.withResolvers<undefined>();
  /** Told lies. */
  lies = 0;
  /** Faults that were played. */
  played = 0;

  /** The prefix of what is written here. */
  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  tell(lie: Lie): void {
    this.#lie = lie;
  }

  play(...faults: readonly Fault[]): void {
    this.#faults.push(...faults);
  }

  async put(key: string, value: number): Promise<WriteResult> {
    await turn();
    return this.#mutate(key, value);
  }

  async compareAndPut(key: string, value: number, revision: number): Promise<CompareResult> {
    await turn();
    const stored = this.#keys.get(key);
    if ((stored?.revision ?? 0) !== revision)
      return {
        kind: "refused",
        reading: { revision: this.#revision, ...(stored === undefined ? {} : { stored }) },
      };
    return { kind: "written", result: this.#mutate(key, value) };
  }

  async get(key: string, at?: number): Promise<Reading> {
    await turn();
    if (at !== undefined && at < this.#compacted)
      throw new LockstepError("compacted", "not-applied", "compacted");
    const revision = this.#revision;
    if (at !== undefined) return { revision, ...this.#past(key, at) };
    const stored = this.#keys.get(key);
    if (stored !== undefined && stored.version > 1 && this.#lies("stale-read"))
      return { revision, ...this.#past(key, stored.revision - 1) };
    if (stored !== undefined && this.#lies("lose-key")) return { revision };
    return { revision, ...(stored === undefined ? {} : { stored }) };
  }

  async list(prefix: string): Promise<{ readonly revision: number; readonly stored: readonly Stored[] }> {
    await turn();
    const stored = [...this.#keys.values()].filter(({ key }) => key.startsWith(prefix));
    return { revision: this.#revision, stored };
  }

  async *watch(prefix: string, startRevision: number, signal: AbortSignal): AsyncGenerator<StoreBatch> {
    if (startRevision <= this.#compacted) throw new LockstepError("compacted", "not-applied", "compacted");
    let next = this.#history.findIndex(({ revision }) => revision >= startRevision);
    if (next === -1) next = this.#history.length;
    const ended = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    while (!signal.aborted) {
      const event = this.#history[next];
      if (event === undefined) {
        await Promise.race([this.#changed.promise, ended]);
        continue;
      }
      if (this.#plays("break-watch")) throw new LockstepError("unavailable", "unknown", "broken");
      next += 1;
      if (!event.key.startsWith(prefix)) continue;
      yield* this.#shown(event);
      await turn();
    }
  }

  async session(): Promise<StoreSession> {
    await turn();
    let alive = true;
    return {
      isAlive: () => alive,
      close: () => {
        alive = false;
        this.#holder = undefined;
        return Promise.resolve();
      },
    };
  }

  async lock(_name: string, session: StoreSession): Promise<StoreLock> {
    const holding = { held: true };
    for (;;) {
      await turn();
      // One that is just being given back nobody takes for held any more: that would be no lie.
      if (this.#holder === undefined || (this.#holder.held && this.#lies("give-held-lock"))) break;
    }
    this.#holder = holding;
    this.#revision += 1;
    const token = this.#lastToken > 0 && this.#lies("repeat-token") ? this.#lastToken : this.#revision;
    this.#lastToken = token;
    return {
      token,
      isHeld: () => holding.held && session.isAlive(),
      release: async () => {
        holding.held = false;
        await turn();
        if (this.#holder === holding) this.#holder = undefined;
      },
    };
  }

  #mutate(key: string, value: number): WriteResult {
    if (this.#plays("refuse")) throw new LockstepError("overloaded", "not-applied", "refused");
    if (this.#plays("unknown-not-applied"))
      throw new LockstepError("deadline-exceeded", "unknown", "unknown");
    // Of the guarded register only tokens are held against each other: which write it was nobody asks.
    if (!key.endsWith("/guard") && this.#lies("write-refused")) {
      this.#write(key, value);
      throw new LockstepError("overloaded", "not-applied", "refused");
    }
    const before = this.#keys.get(key);
    if (before !== undefined && this.#lies("lose-write")) {
      const { createRevision, version } = before;
      this.#revision += 1;
      return { revision: this.#revision, createRevision, version: version + 1 };
    }
    if (this.#lies("write-twice")) this.#write(key, value);
    if (this.#lies("foreign-write")) this.#write(`${this.#prefix}foreign`, value);
    const { revision, createRevision, version } = this.#write(key, value);
    if (this.#plays("unknown-applied")) throw new LockstepError("deadline-exceeded", "unknown", "unknown");
    if (before !== undefined && this.#lies("old-revision"))
      return { revision: before.revision, createRevision, version };
    return { revision, createRevision, version };
  }

  #write(key: string, value: number): Stored {
    const before = this.#keys.get(key);
    this.#revision += 1;
    const revision = this.#revision;
    const createRevision = before?.createRevision ?? revision;
    const stored = { key, value, revision, createRevision, version: (before?.version ?? 0) + 1 };
    this.#keys.set(key, stored);
    this.#history.push({ kind: "put", key, value, revision, version: stored.version });
    if (this.#plays("compact")) this.#compacted = revision;
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
    return stored;
  }

  #past(key: string, at: number): { readonly stored?: Stored } {
    const event = this.#history.findLast((one) => one.key === key && one.revision <= at);
    const createRevision = this.#history.find((one) => one.key === key)?.revision ?? 0;
    return event === undefined ? {} : { stored: { ...event, createRevision } };
  }

  *#shown(event: StoreEvent): Generator<StoreBatch> {
    const { revision, key } = event;
    // The write that ends a verification comes last: nothing after it would tell that it is missing.
    if (key.endsWith("/last") && this.#lies("drop-last-event")) return;
    if (this.#lies("drop-event")) return;
    const forged = { ...event, key: `${this.#prefix}forged`, version: 1 };
    if (this.#lies("forge-event")) yield { revision, events: [forged, event] };
    else if (this.#lies("swap-events")) {
      const early = { ...forged, revision: revision + 1 };
      yield { revision: revision + 1, events: [early, event] };
    } else yield { revision, events: [event] };
    if (this.#lies("repeat-event")) yield { revision, events: [event] };
  }

  #lies(lie: Lie): boolean {
    if (this.#lie !== lie) return false;
    this.#lie = undefined;
    this.lies += 1;
    return true;
  }

  #plays(fault: Fault): boolean {
    if (this.#faults[0] !== fault) return false;
    this.#faults.shift();
    this.played += 1;
    return true;
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
