import { Tally, type Plan } from "./tally.ts";

/** A request that was sent before the end of a run and is not answered this long after it is an error. */
const STRAGGLER_MS = 11_000;
/** After an error, before the next try: a refusing server must not be asked in a tight loop. */
const PAUSE_AFTER_ERROR_MS = 5;

/** @returns false when there is nothing left to do: the slot then rests. */
export type StartOperation = () => boolean;

/** One request in flight. Its callback is made once, so that an operation costs the generator no closure. */
export interface Slot {
  readonly index: number;
  /** To be called once for each started operation, with what went wrong, if something did. */
  done(error: string | undefined, weight?: number): void;
}

export interface ClosedLoop {
  readonly plan: Plan;
  readonly slots: number;
  /** Makes the slot's operation; called once a slot. */
  readonly operationOf: (slot: Slot) => StartOperation;
}

class LoopSlot implements Slot {
  readonly index: number;
  start: StartOperation = () => false;
  resting = false;
  readonly #plan: Plan;
  readonly #tally: Tally;
  readonly #onRest: () => void;
  #beginMs = 0;

  constructor(index: number, loop: { plan: Plan; tally: Tally; onRest: () => void }) {
    this.index = index;
    this.#plan = loop.plan;
    this.#tally = loop.tally;
    this.#onRest = loop.onRest;
  }

  next(nowMs: number): void {
    this.#beginMs = nowMs;
    if (nowMs < this.#plan.untilMs && this.start()) return;
    this.resting = true;
    this.#onRest();
  }

  done(error: string | undefined, weight = 1): void {
    const nowMs = performance.now();
    if (error === undefined) {
      this.#tally.success(this.#beginMs, nowMs, weight);
      this.next(nowMs);
      return;
    }
    this.#tally.failure(error);
    setTimeout(() => this.next(performance.now()), PAUSE_AFTER_ERROR_MS);
  }
}

/** Keeps `slots` operations in flight until the plan's end, or until there is nothing left to do. */
export async function runClosedLoop({ plan, slots, operationOf }: ClosedLoop): Promise<Tally> {
  const tally = new Tally(plan);
  const { promise: finished, resolve } = Promise.withResolvers<undefined>();
  let active = slots;
  const onRest = (): void => {
    active -= 1;
    if (active === 0) resolve(undefined);
  };
  const all = Array.from({ length: slots }, (_, index) => new LoopSlot(index, { plan, tally, onRest }));
  for (const slot of all) slot.start = operationOf(slot);
  for (const slot of all) slot.next(performance.now());
  // A plan without an end is one that runs out of work.
  const straggler = Number.isFinite(plan.untilMs)
    ? setTimeout(
        () => {
          tally.failure("no answer long after the end", active);
          resolve(undefined);
        },
        plan.untilMs - performance.now() + STRAGGLER_MS,
      )
    : undefined;
  await finished;
  clearTimeout(straggler);
  return tally;
}
