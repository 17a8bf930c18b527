import type { Revision, WatchEvent } from "@lockstep/gateway/coordinator";
import type { SharedRevision, StateBefore } from "./ring.ts";
import type { Watcher, WatcherGroup, WatcherIndex } from "./watcher.ts";

/**
 * Collects what each watcher gets out of one publication or one slice of catch-up: whole revisions, delivered at
 * once afterwards. Costs one look-up for each event and a few instructions for each match.
 */
export class Turn {
  readonly #stateBefore: StateBefore;
  #watchers: Watcher[] = [];
  #matches = 0;
  #collected = 0;
  /** Watchers that need something older than this stretch are not fed from it. */
  #lowest: Revision = 0 as Revision;

  // The event under way, in fields: one closure visits all events instead of one closure for each.
  #shared: SharedRevision | undefined;
  #position = 0;
  #event: WatchEvent | undefined;
  #alone: readonly WatchEvent[] | undefined;
  #aloneWithPrevious: readonly WatchEvent[] | undefined;
  readonly #visit = (group: WatcherGroup): void => this.#collect(group);

  constructor(stateBefore: StateBefore) {
    this.#stateBefore = stateBefore;
  }

  get empty(): boolean {
    return this.#watchers.length === 0;
  }

  /** Events in all turns that were begun here and not {@link forget}ten. */
  get collected(): number {
    return this.#collected;
  }

  /** The watcher's turn is given out, or given up. */
  forget(watcher: Watcher): void {
    watcher.owed = false;
    this.#collected -= watcher.turn?.length ?? 0;
  }

  /**
   * Adds one revision for all watchers of `index` that want it.
   *
   * @param lowest only watchers whose `next` is at least this: those for whom nothing in between is missing
   */
  match(index: WatcherIndex, shared: SharedRevision, lowest: Revision): void {
    const { events } = shared;
    this.#shared = shared;
    this.#lowest = lowest;
    for (let position = 0; position < events.length; position++) {
      const event = events[position];
      if (event === undefined) continue;
      this.#event = event;
      this.#position = position;
      this.#alone = undefined;
      this.#aloneWithPrevious = undefined;
      index.match(event.kv.key, this.#visit);
    }
    this.#shared = undefined;
    this.#event = undefined;
  }

  /** @returns the watchers with matches (in their `turn`) and how many were looked at; the turn is empty again. */
  take(): { readonly watchers: Watcher[]; readonly matches: number } {
    const taken = { watchers: this.#watchers, matches: this.#matches };
    this.#watchers = [];
    this.#matches = 0;
    return taken;
  }

  #collect(group: WatcherGroup): void {
    const event = this.#event;
    const shared = this.#shared;
    if (event === undefined || shared === undefined) return;
    if (Array.isArray(group)) {
      this.#matches += group.length;
      for (const watcher of group) this.#offer(watcher, event, shared);
    } else {
      this.#matches += 1;
      this.#offer(group, event, shared);
    }
  }

  #offer(watcher: Watcher, event: WatchEvent, shared: SharedRevision): void {
    const { next } = watcher;
    if (shared.revision < next || next < this.#lowest || watcher.omits(event.kind)) return;
    this.#collected += 1;
    const alone = watcher.returnPrevious ? this.#withPrevious(shared) : (this.#alone ??= [event]);
    if (watcher.turn === undefined) {
      watcher.turn = alone;
      this.#watchers.push(watcher);
    } else {
      append(watcher, watcher.turn, alone);
    }
  }

  #withPrevious(shared: SharedRevision): readonly WatchEvent[] {
    this.#aloneWithPrevious ??= [shared.withPrevious(this.#position, this.#stateBefore)];
    return this.#aloneWithPrevious;
  }
}

/** The first event of a turn is an array shared by all its watchers; only one with more gets an array of its own. */
function append(watcher: Watcher, turn: readonly WatchEvent[], alone: readonly WatchEvent[]): void {
  const event = alone[0];
  if (event === undefined) return;
  if (!watcher.ownsTurn) {
    watcher.turn = [...turn, event];
    watcher.ownsTurn = true;
    return;
  }
  // Nobody else has it: see {@link Watcher.ownsTurn}.
  (turn as WatchEvent[]).push(event);
}
