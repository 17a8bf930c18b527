import { NONE, SlotLists } from "./slot-lists.ts";

/** Width of a bucket on the lowest level: slots fire at most this much late (plus the host's tick). */
export const WHEEL_TICK_MS = 64;
const BUCKETS = 256;
/** 256^5 ticks of 64 ms are 2,228 years. */
const LEVELS = 5;
const TICKS_MAX = BUCKETS ** LEVELS - 1;
/** The list after all buckets, for the owner's use: slots that fired and wait. */
export const READY: number = BUCKETS * LEVELS;

/**
 * Hierarchical timing wheel (Varghese and Lauck) over slots. A slot never fires early. Its due time is asked for again
 * when its bucket comes up, so moving it *later* needs no call here: a renewal touches no list.
 */
export class TimingWheel {
  readonly lists: SlotLists;
  readonly #dueMs: (slot: number) => number;
  #baseMs = 0;
  /** Every earlier tick is fully drained. */
  #cursor = 0;

  /** @param dueMs when a slot is due, now; never earlier than when it was scheduled */
  constructor(capacity: number, dueMs: (slot: number) => number) {
    this.lists = new SlotLists(READY + 1, capacity);
    this.#dueMs = dueMs;
  }

  /** Empties it and starts its time at `nowMs`. */
  reset(nowMs: number): void {
    this.lists.clear();
    this.#baseMs = nowMs;
    this.#cursor = 0;
  }

  /** The slot must be in no list. */
  schedule(slot: number): void {
    const due = Math.floor((this.#dueMs(slot) - this.#baseMs) / WHEEL_TICK_MS);
    const ticks = Math.min(Math.max(due, this.#cursor), this.#cursor + TICKS_MAX);
    const delta = ticks - this.#cursor;
    let level = 0;
    let width = 1;
    // A level covers the 256 buckets from the present one on, so the same bucket never means two times.
    while (level < LEVELS - 1 && delta >= width * BUCKETS) {
      level += 1;
      width *= BUCKETS;
    }
    this.lists.pushBack(level * BUCKETS + (Math.floor(ticks / width) % BUCKETS), slot);
  }

  /**
   * Takes out every slot whose bucket has passed and gives it to `visit`, which may schedule it anew.
   *
   * @param slotsMax after about how many slots to stop, between two buckets (one is what was scheduled for 64 ms: its
   * slots come in one call, so that their order can be settled) or inside a cascade; the rest comes with the next call
   * @returns slots touched
   */
  advance(nowMs: number, slotsMax: number, visit: (slot: number) => void): number {
    const target = Math.floor((nowMs - this.#baseMs) / WHEEL_TICK_MS);
    let touched = 0;
    while (this.#cursor < target) {
      if (this.#cursor % BUCKETS === 0) touched += this.#cascade(slotsMax - touched);
      if (touched >= slotsMax) return touched;
      const list = this.#cursor % BUCKETS;
      for (let slot = this.lists.head(list); slot !== NONE; slot = this.lists.head(list)) {
        touched += 1;
        this.lists.remove(slot);
        visit(slot);
      }
      this.#cursor += 1;
    }
    return touched;
  }

  /** Moves the slots of the higher buckets that begin at the cursor to lower ones. Goes on where it had to stop. */
  #cascade(slotsMax: number): number {
    let touched = 0;
    let width = BUCKETS;
    for (let level = 1; level < LEVELS && this.#cursor % width === 0; level += 1) {
      const list = level * BUCKETS + (Math.floor(this.#cursor / width) % BUCKETS);
      for (let slot = this.lists.head(list); slot !== NONE; slot = this.lists.head(list)) {
        if (touched >= slotsMax) return touched;
        touched += 1;
        this.lists.remove(slot);
        this.schedule(slot);
      }
      width *= BUCKETS;
    }
    return touched;
  }
}
