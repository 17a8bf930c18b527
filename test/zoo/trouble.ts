import { setTimeout as sleep } from "node:timers/promises";
import type { TestCell } from "../support/cell.ts";
import type { Dice } from "../torture/dice.ts";
import type { Findings } from "../torture/findings.ts";
import { isOver, pause } from "../torture/workload/actor.ts";
import type { Cages } from "./cages.ts";
import { CELL_FAULTS } from "./cell-faults.ts";
import type { ShiftedClocks } from "../support/clocks/shifted-clocks.ts";
import { LAWS } from "./judge.ts";
import { WORKER_FAULTS } from "./worker-faults.ts";

/** Means of the time between one fault and the next. */
const WORKER_REST_MS = 1_000;
const CELL_REST_MS = 6_000;
/** How often a fault waits until its victim owns something, and how long; and how often it lets it work a little first. */
const AIMED = 0.8;
const AT_WORK = 0.5;
const AIM_MS_MAX = 3_000;

export interface TroubleOptions {
  readonly cages: Cages;
  readonly cell: TestCell;
  readonly findings: Findings;
  readonly ttlMs: number;
  /** By member; empty where clocks cannot be moved. */
  readonly memberClocks: ReadonlyMap<string, ShiftedClocks>;
}

/** Faults, drawn from dice: of each worker by itself, and of the cell. */
export class Trouble {
  readonly #options: TroubleOptions;

  constructor(options: TroubleOptions) {
    this.#options = options;
  }

  /** Resolves when the last one is undone. */
  async run(dice: Dice, stopping: AbortSignal): Promise<void> {
    const places = this.#options.cages.workers.map((_, place) =>
      this.#troubleWorker(place, dice.fork(`worker ${String(place)}`), stopping),
    );
    await Promise.all([...places, this.#troubleCell(dice.fork("cell"), stopping)]);
  }

  async #troubleWorker(place: number, dice: Dice, stopping: AbortSignal): Promise<void> {
    const { cages, ttlMs } = this.#options;
    const faults = this.#possible(WORKER_FAULTS);
    for (;;) {
      await pause(stopping, dice.exponential(WORKER_REST_MS));
      if (isOver(stopping)) return;
      const worker = cages.worker(place);
      const fault = drawn(faults, dice);
      const wait = (ms: number): Promise<void> => pause(stopping, ms);
      // Mostly at owners: whoever owns nothing has nothing to lose.
      if (dice.chance(AIMED)) {
        const aim = dice.chance(AT_WORK) ? worker.nextLook() : worker.nextOwning();
        await Promise.race([aim, wait(AIM_MS_MAX)]);
      }
      if (isOver(stopping)) return;
      const shape = cages.shape.bind(cages, worker);
      const done = await fault.run({ worker, dice, ttlMs, wait, settle: sleep, shape });
      this.#options.findings.record({ fault: fault.kind, worker: worker.name, done });
      this.#options.findings.count(`fault of a worker: ${fault.kind}`);
    }
  }

  async #troubleCell(dice: Dice, stopping: AbortSignal): Promise<void> {
    const { cell, findings, memberClocks } = this.#options;
    const faults = this.#possible(CELL_FAULTS);
    for (;;) {
      await pause(stopping, dice.exponential(CELL_REST_MS));
      if (isOver(stopping)) return;
      const fault = drawn(faults, dice);
      const wait = (ms: number): Promise<void> => pause(stopping, ms);
      try {
        const done = await fault.run({ cell, dice, wait, clocksOf: ({ name }) => memberClocks.get(name) });
        findings.say(done);
        findings.count(`fault of the cell: ${fault.kind}`);
      } catch (error) {
        findings.violation(LAWS.life, `${fault.kind}: ${String(error)}`);
      }
    }
  }

  #possible<F extends { readonly needsClocks?: boolean }>(faults: readonly F[]): readonly F[] {
    return this.#options.memberClocks.size > 0
      ? faults
      : faults.filter((fault) => fault.needsClocks !== true);
  }
}

function drawn<F extends { readonly kind: string; readonly weight: number }>(
  faults: readonly F[],
  dice: Dice,
): F {
  const kind = dice.weighted(new Map(faults.map((fault) => [fault.kind, fault.weight])));
  const found = faults.find((fault) => fault.kind === kind);
  if (found === undefined) throw new TypeError("drawn from what is there");
  return found;
}
