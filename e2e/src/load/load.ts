import { ErrorCounts } from "./errors.ts";
import { Ledger, type KeyRecord } from "./ledger.ts";
import { Guard, Locker } from "./locker.ts";
import { Gate, type Timing } from "./pace.ts";
import { Phases, type PhaseReport } from "./phases.ts";
import type { Store } from "./store.ts";
import { TokenCheck } from "./token-check.ts";
import { verifyAll, type Verification } from "./verify.ts";
import { Violations, type Violation } from "./violations.ts";
import { WatchCheck } from "./watch-check.ts";
import { Watcher } from "./watcher.ts";
import { Writer } from "./writer.ts";

export interface LoadOptions {
  /** Names this run of the load: its keys lie below `/load/INSTANCE/`, its lock is `load-INSTANCE`. */
  readonly instance: string;
  readonly writers: number;
  readonly keysPerWriter: number;
  /** Writes a second, of all writers together. */
  readonly writesPerSecond: number;
  readonly lockers: number;
  /** Tenures of the lock a second that are tried, of all lockers together. */
  readonly locksPerSecond: number;
  /** How often the watch is ended and resumed, in milliseconds. */
  readonly watchRenewMs: number;
}

/** Connections of their own: a lock that waits, or a watch that lags, is not to stand before writes. */
export interface Stores {
  readonly writes: Store;
  readonly locks: Store;
  readonly watch: Store;
}

/** All that was counted and found so far. */
export interface LoadReport {
  readonly instance: string;
  /** Since the start of the load. */
  readonly total: PhaseReport;
  /** Since the last mark. */
  readonly current: PhaseReport;
  /** The phases that earlier marks ended, oldest first. */
  readonly finished: readonly PhaseReport[];
  readonly keys: number;
  /** Keys given up because a blind write's outcome was unknown. */
  readonly retiredKeys: number;
  readonly reads: number;
  /** Writes of unknown outcome that were found to have taken effect. */
  readonly resolved: number;
  readonly locks: {
    readonly acquired: number;
    readonly largestToken: number;
    readonly largestWritten: number;
    readonly fenced: number;
    readonly sessionsLost: number;
  };
  readonly watch: {
    readonly revision: number;
    readonly events: number;
    /** Acknowledged writes that it has not shown yet. */
    readonly awaited: number;
    readonly resumed: number;
    readonly restarted: number;
  };
  /** Refusals by code, expected while the cell is harmed. */
  readonly errors: Readonly<Record<string, number>>;
  readonly lastError: string;
  readonly violations: { readonly count: number; readonly kept: readonly Violation[] };
}

/** Writes, locks and watches without pause, and holds every answer against what was promised before. */
export class Load {
  readonly #options: LoadOptions;
  readonly #timing: Timing;
  readonly #stores: Stores;
  readonly #prefix: string;
  readonly #violations: Violations;
  readonly #watch: WatchCheck;
  readonly #ledger: Ledger;
  readonly #phases: Phases;
  readonly #errors = new ErrorCounts();
  readonly #tokens: TokenCheck;
  readonly #guard: Guard;
  readonly #gate = new Gate();
  readonly #watcher: Watcher;
  readonly #writers: readonly Writer[];
  readonly #lockers: readonly Locker[];
  readonly #last: KeyRecord;
  #running: Promise<unknown> | undefined;
  #verifying: Promise<Verification> | undefined;

  /** @param tell is called at once with each violation */
  constructor(
    stores: Stores,
    options: LoadOptions,
    timing: Timing,
    tell: (violation: Violation) => void = () => undefined,
  ) {
    this.#options = options;
    this.#timing = timing;
    this.#stores = stores;
    this.#prefix = `/load/${options.instance}/`;
    this.#violations = new Violations(() => timing.wallNow(), tell);
    this.#watch = new WatchCheck(this.#violations);
    this.#ledger = new Ledger(this.#violations, this.#watch);
    this.#phases = new Phases(() => timing.now());
    this.#tokens = new TokenCheck(this.#violations);
    this.#guard = new Guard(`${this.#prefix}guard`);
    this.#last = this.#ledger.create(`${this.#prefix}last`, "compare");
    this.#watcher = new Watcher(
      { store: stores.watch, check: this.#watch, errors: this.#errors, timing },
      { prefix: this.#prefix, renewMs: options.watchRenewMs },
    );
    this.#writers = Array.from({ length: options.writers }, (_, n) => this.#writer(n + 1));
    this.#lockers = Array.from({ length: options.lockers }, (_, n) => this.#locker(n + 1));
  }

  /** Resolves when the watch has its place and all workers run. */
  async start(): Promise<void> {
    await this.#watcher.begin();
    this.#phases.resume();
    const workers = [this.#watcher, ...this.#writers, ...this.#lockers];
    this.#running = Promise.all(
      workers.map((worker) => worker.run().catch((error: unknown) => this.#broken(error))),
    );
  }

  /** Has written, and could tell what became of it. */
  get isReady(): boolean {
    return this.#phases.acknowledgedCount > 0;
  }

  mark(name: string): void {
    this.#phases.mark(name);
  }

  report(): LoadReport {
    const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
    return {
      instance: this.#options.instance,
      total: this.#phases.total,
      current: this.#phases.current,
      finished: this.#phases.finished,
      keys: this.#ledger.keys,
      retiredKeys: sum(this.#writers.map((writer) => writer.retired)),
      reads: sum(this.#writers.map((writer) => writer.reads)),
      resolved: this.#ledger.resolved,
      locks: {
        acquired: this.#tokens.acquired,
        largestToken: this.#tokens.largest,
        largestWritten: this.#guard.acknowledged,
        fenced: sum(this.#lockers.map((locker) => locker.fenced)),
        sessionsLost: sum(this.#lockers.map((locker) => locker.sessionsLost)),
      },
      watch: {
        revision: this.#watch.revision,
        events: this.#watch.events,
        awaited: this.#watch.awaited,
        resumed: this.#watcher.resumed,
        restarted: this.#watcher.restarted,
      },
      errors: this.#errors.counts,
      lastError: this.#errors.last,
      violations: { count: this.#violations.count, kept: this.#violations.kept },
    };
  }

  /**
   * Stops all workers between two of their turns, reads back everything, waits until the watch has shown the last
   * write, and lets them go on. Who asks meanwhile gets the same answer.
   */
  verify(): Promise<Verification> {
    this.#verifying ??= this.#verify().finally(() => (this.#verifying = undefined));
    return this.#verifying;
  }

  /** Ends the workers; the stores stay open. */
  async stop(): Promise<void> {
    this.#gate.end();
    this.#watcher.stop();
    await this.#running;
  }

  async #verify(): Promise<Verification> {
    // First this: a worker that ends its turn slowly makes no gap.
    this.#phases.pause();
    await this.#gate.close();
    try {
      return await verifyAll({
        store: this.#stores.writes,
        prefix: this.#prefix,
        ledger: this.#ledger,
        watch: this.#watch,
        watcher: this.#watcher,
        guard: this.#guard,
        violations: this.#violations,
        errors: this.#errors,
        timing: this.#timing,
        writer: this.#lastWriter(),
        last: this.#last,
      });
    } finally {
      this.#phases.resume();
      this.#gate.open();
    }
  }

  /** A defect of the load is a finding like any other: nobody is to believe a report that says nothing of it. */
  #broken(error: unknown): void {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.#violations.add("program", text);
  }

  #writer(n: number): Writer {
    const { keysPerWriter: keys, writesPerSecond, writers } = this.#options;
    const prefix = `${this.#prefix}writer-${String(n)}/`;
    return new Writer(this.#writerParts(), { prefix, keys, perSecond: writesPerSecond / writers });
  }

  /** For the write that ends a verification; it has no keys of its own. */
  #lastWriter(): Writer {
    return new Writer(this.#writerParts(), { prefix: this.#prefix, keys: 0, perSecond: 1 });
  }

  #writerParts(): ConstructorParameters<typeof Writer>[0] {
    return {
      store: this.#stores.writes,
      ledger: this.#ledger,
      phases: this.#phases,
      errors: this.#errors,
      timing: this.#timing,
      gate: this.#gate,
    };
  }

  #locker(n: number): Locker {
    const { instance, lockers, locksPerSecond } = this.#options;
    const parts = {
      store: this.#stores.locks,
      ledger: this.#ledger,
      watch: this.#watch,
      tokens: this.#tokens,
      guard: this.#guard,
      violations: this.#violations,
      errors: this.#errors,
      timing: this.#timing,
      gate: this.#gate,
    };
    const worker = `locker-${String(n)}`;
    return new Locker(parts, { worker, lock: `load-${instance}`, perSecond: locksPerSecond / lockers });
  }
}
