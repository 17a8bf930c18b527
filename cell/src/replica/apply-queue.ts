import { decodeConfigurationChange } from "../raft/index.ts";
import type { ConfigurationChange, Entry, LogIndex } from "../raft/types.ts";
import type { Applied } from "../machine/types.ts";
import { DIGEST_INTERVAL } from "./divergence.ts";
import type { CellState, ChangeOutcome, ConfigurationStepper } from "./state.ts";

export interface ApplyQueueOptions {
  readonly state: CellState;
  readonly step: (index: LogIndex, change: ConfigurationChange) => ReturnType<ConfigurationStepper>;
  /** Whether anybody here watches. */
  readonly wantEvents: () => boolean;
  /** The core is told about refused configuration entries (R36). */
  readonly refuse: (index: LogIndex) => void;
  /** A batch of command entries is in the store: publish its outcomes in this same synchronous block. */
  readonly onApplied: (entries: readonly Entry[], applied: Applied) => void;
  readonly onConfiguration: (entry: Entry, outcome: ChangeOutcome) => void;
  /** After everything of a slice is published. */
  readonly onSlice: (last: Entry) => void;
  readonly schedule: (task: () => void) => void;
  /** Runs the first slice of a burst: at once, or still in this turn. */
  readonly begin: (slice: () => void) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  readonly measure: (durationMs: number) => void;
  readonly fatal: (error: Error) => void;
}

/** One slice applies about this much before the event loop gets its turn: heartbeats and acks must not wait (R57). */
const SLICE_BYTES = 256 * 1024;

/**
 * Hands committed entries to the state in order, in slices that stay short. Apply failures are fatal (R58).
 */
export class ApplyQueue {
  readonly #options: ApplyQueueOptions;
  #queue: Entry[] = [];
  #head = 0;
  #scheduled = false;
  #running = false;
  #paused = false;

  constructor(options: ApplyQueueOptions) {
    this.#options = options;
  }

  get length(): number {
    return this.#queue.length - this.#head;
  }

  push(entries: readonly Entry[]): void {
    for (const entry of entries) this.#queue.push(entry);
    // Nothing is waiting: apply in this very turn, for the sake of latency. A slice that is running goes on by itself.
    if (this.#scheduled || this.#paused || this.#running) return;
    this.#scheduled = true;
    this.#options.begin(() => {
      this.#scheduled = false;
      if (!this.#paused) this.#slice();
    });
  }

  /** While a snapshot is being installed nothing is applied. What was queued is covered by the snapshot. */
  pause(): void {
    this.#paused = true;
  }

  resume(appliedIndex: LogIndex): void {
    this.#paused = false;
    this.#queue = this.#queue.slice(this.#head).filter((entry) => entry.index > appliedIndex);
    this.#head = 0;
    if (this.length > 0) this.#scheduleSlice();
  }

  #scheduleSlice(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#options.schedule(() => {
      this.#scheduled = false;
      if (!this.#paused) this.#slice();
    });
  }

  #slice(): void {
    const first = this.#queue[this.#head];
    if (first === undefined) return;
    this.#running = true;
    try {
      if (first.kind === "configuration") {
        this.#head += 1;
        this.#applyConfiguration(first);
        this.#options.onSlice(first);
      } else {
        const started = this.#options.now();
        const entries = this.#take();
        this.#options.onApplied(entries, this.#options.state.apply(entries, this.#options.wantEvents()));
        this.#options.measure(this.#options.now() - started);
        this.#options.onSlice(entries[entries.length - 1] ?? first);
      }
    } catch (error) {
      this.#options.fatal(error instanceof Error ? error : new Error(String(error)));
      return;
    } finally {
      this.#running = false;
    }
    this.#trim();
    if (this.length > 0 && !this.#paused) this.#scheduleSlice();
  }

  /** Consecutive command entries up to the slice's bytes, ending at an index where members compare digests. */
  #take(): Entry[] {
    const taken: Entry[] = [];
    let bytes = 0;
    while (bytes < SLICE_BYTES) {
      const entry = this.#queue[this.#head];
      if (entry?.kind !== "normal") break;
      this.#head += 1;
      taken.push(entry);
      bytes += entry.data.length;
      if (entry.index % DIGEST_INTERVAL === 0) break;
    }
    return taken;
  }

  #applyConfiguration(entry: Entry): void {
    const change = decodeChange(entry.data);
    const outcome = this.#options.state.applyConfiguration(entry.index, change, (accepted) =>
      this.#options.step(entry.index, accepted),
    );
    if (!outcome.accepted) this.#options.refuse(entry.index);
    this.#options.onConfiguration(entry, outcome);
  }

  #trim(): void {
    if (this.#head === this.#queue.length) {
      this.#queue = [];
      this.#head = 0;
    } else if (this.#head > 1024) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
  }
}

function decodeChange(data: Uint8Array): ConfigurationChange | undefined {
  try {
    return decodeConfigurationChange(data);
  } catch {
    return undefined;
  }
}
