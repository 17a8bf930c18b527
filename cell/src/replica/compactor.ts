import type { Revision } from "@lockstep/gateway/coordinator";
import type { NamespaceId } from "../machine/types.ts";
import type { WatchHub } from "../watch/types.ts";
import type { CellState } from "./state.ts";

/** Rows looked at in one slice: about a millisecond of work. */
const SLICE_ROWS = 500;
const PAUSE_MS = 5;

export interface CompactorOptions {
  readonly state: CellState;
  readonly hub: WatchHub;
  readonly after: (delayMs: number, task: () => void) => () => void;
  readonly fatal: (error: Error) => void;
}

/**
 * Removes the rows that a committed compaction has given up, in short slices between which the event loop breathes.
 * Local and invisible to reads: each member does it at its own pace.
 */
export class Compactor {
  readonly #options: CompactorOptions;
  readonly #points = new Map<NamespaceId, Revision>();
  #running = false;
  #closed = false;

  constructor(options: CompactorOptions) {
    this.#options = options;
  }

  /** Called after each apply and at start: tells the watch hub about moved points, and starts when there is work. */
  look(): void {
    let moved = false;
    for (const { id, compactRevision } of this.#options.state.machine.namespaces()) {
      if ((this.#points.get(id) ?? 0) === compactRevision) continue;
      this.#points.set(id, compactRevision);
      this.#options.hub.compacted(id, compactRevision);
      moved = true;
    }
    if (moved && !this.#running) {
      this.#running = true;
      this.#options.after(PAUSE_MS, () => this.#slice());
    }
  }

  close(): void {
    this.#closed = true;
  }

  #slice(): void {
    if (this.#closed) return;
    try {
      const { state } = this.#options;
      const slice = state.machine.compactSlice(state.store, SLICE_ROWS);
      state.writeRows(slice.mutations);
      this.#running = !slice.done;
    } catch (error) {
      this.#options.fatal(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    if (this.#running) this.#options.after(PAUSE_MS, () => this.#slice());
  }
}
