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
  /** A namespace that was there is not any more. */
  readonly deleted: (id: NamespaceId, name: string) => void;
}

interface Known {
  readonly name: string;
  readonly compactRevision: Revision;
}

/**
 * Removes the rows that a committed compaction or the deletion of a namespace has given up, in short slices between which the event loop breathes.
 * Local and invisible to reads: each member does it at its own pace.
 */
export class Compactor {
  readonly #options: CompactorOptions;
  readonly #known = new Map<NamespaceId, Known>();
  #version = -1;
  #running = false;
  #closed = false;

  constructor(options: CompactorOptions) {
    this.#options = options;
  }

  /** Called after each apply and at start: tells of moved points and deleted namespaces, and starts the work on them. */
  look(): void {
    const { machine } = this.#options.state;
    if (machine.namespacesVersion === this.#version) return;
    this.#version = machine.namespacesVersion;
    const gone = new Map(this.#known);
    for (const { id, name, compactRevision } of machine.namespaces()) {
      gone.delete(id);
      if ((this.#known.get(id)?.compactRevision ?? 0) !== compactRevision) {
        this.#options.hub.compacted(id, compactRevision);
      }
      this.#known.set(id, { name, compactRevision });
    }
    for (const [id, { name }] of gone) {
      this.#known.delete(id);
      this.#options.deleted(id, name);
    }
    if (this.#running) return;
    this.#running = true;
    this.#options.after(PAUSE_MS, () => this.#slice());
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
