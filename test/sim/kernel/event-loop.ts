import type { Scheduler, TimeUs } from "../contract.ts";

interface Event {
  readonly atUs: TimeUs;
  readonly order: number;
  task: (() => void) | undefined;
}

/** Events between two looks at whether to go on. */
const BATCH = 64;

/**
 * True time, and what is due when: a binary heap by time and then by order of scheduling. It runs one event after the
 * other and lets all promises settle in between, as the event loop of Node does; that is what makes production code with
 * promises a function of the seed.
 */
export class EventLoop implements Scheduler {
  nowUs: TimeUs = 0;
  /** Events that ran. */
  steps = 0;
  readonly #heap: Event[] = [];
  #order = 0;

  in(delayUs: number, task: () => void): () => void {
    const event: Event = { atUs: this.nowUs + Math.max(0, Math.round(delayUs)), order: this.#order, task };
    this.#order += 1;
    this.#push(event);
    return () => {
      event.task = undefined;
    };
  }

  /**
   * Runs events until `over()` says so (asked after each of them, once everything has settled) or nothing is left.
   * Rejects with what an event throws.
   */
  run(over: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      let left = 0;
      let ended = false;
      const end = (finish: () => void): void => {
        ended = true;
        finish();
      };
      // Node runs all microtasks between two immediates; a batch of them costs one round of its event loop.
      const turn = (): void => {
        left -= 1;
        if (ended) return;
        try {
          if (over() || !this.#step()) return end(resolve);
        } catch (error) {
          return end(() => reject(error instanceof Error ? error : new Error(String(error))));
        }
        if (left === 0) more();
      };
      const more = (): void => {
        left = BATCH;
        for (let at = 0; at < BATCH; at += 1) setImmediate(turn);
      };
      more();
    });
  }

  #step(): boolean {
    for (let event = this.#pop(); event !== undefined; event = this.#pop()) {
      if (event.task === undefined) continue;
      this.nowUs = event.atUs;
      this.steps += 1;
      event.task();
      return true;
    }
    return false;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      const above = heap[parent] as Event;
      if (!isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): Event | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event)) child += 1;
      if (!isBefore(heap[child] as Event, last)) break;
      heap[at] = heap[child] as Event;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.atUs < other.atUs || (one.atUs === other.atUs && one.order < other.order);
}
