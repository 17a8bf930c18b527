import type { TorturedCell } from "../cell/cell.ts";
import type { TorturedMember } from "../cell/member.ts";
import type { Dice } from "../dice.ts";
import type { Findings } from "../findings.ts";
import { isOver, pause } from "../workload/actor.ts";
import { DISK_FAULTS } from "./disk-faults.ts";
import { Scene } from "./fault.ts";
import type { Fault, Lane } from "./fault.ts";
import { MEMBERSHIP_FAULTS } from "./membership-faults.ts";
import { NETWORK_FAULTS } from "./network-faults.ts";
import { PROCESS_FAULTS } from "./process-faults.ts";

export const FAULTS: readonly Fault[] = [
  ...PROCESS_FAULTS,
  ...NETWORK_FAULTS,
  ...DISK_FAULTS,
  ...MEMBERSHIP_FAULTS,
];

/** Each draws its own sequence of faults; two troubles may meet, and a change of the membership may meet both. */
const LANES: readonly { readonly name: string; readonly lane: Lane; readonly restMs: number }[] = [
  { name: "first", lane: "trouble", restMs: 2_500 },
  { name: "second", lane: "trouble", restMs: 9_000 },
  { name: "membership", lane: "membership", restMs: 6_000 },
];

export interface NemesisOptions {
  readonly cell: TorturedCell;
  readonly dice: Dice;
  readonly findings: Findings;
  /** Kinds that may happen. */
  readonly kinds: ReadonlySet<string>;
}

/** Draws faults from the seed and lets them happen, until it is stopped. */
export class Nemesis {
  readonly #options: NemesisOptions;
  readonly #claims = new Set<TorturedMember>();

  constructor(options: NemesisOptions) {
    this.#options = options;
  }

  /** Resolves when the last fault is undone. */
  async run(stopping: AbortSignal): Promise<void> {
    await Promise.all(LANES.map((lane) => this.#runLane(lane, stopping)));
  }

  async #runLane({ name, lane, restMs }: (typeof LANES)[number], stopping: AbortSignal): Promise<void> {
    const { dice: seeded, kinds } = this.#options;
    const dice = seeded.fork(`lane ${name}`);
    const weights = new Map(
      FAULTS.filter((fault) => fault.lane === lane && kinds.has(fault.kind)).map(({ kind, weight }) => [
        kind,
        weight,
      ]),
    );
    if (weights.size === 0) return;
    for (let number = 1; !stopping.aborted; number += 1) {
      // Of its own for each fault: what one draws at run time does not move the next.
      const own = dice.fork(`fault ${String(number)}`);
      const kind = dice.weighted(weights);
      await pause(stopping, dice.exponential(restMs));
      const fault = FAULTS.find((one) => one.kind === kind);
      if (fault !== undefined && !isOver(stopping)) await this.#happen(fault, own, stopping);
    }
  }

  async #happen(fault: Fault, dice: Dice, stopping: AbortSignal): Promise<void> {
    const { cell, findings } = this.#options;
    const scene = new Scene({ cell, dice, findings, stopping, kind: fault.kind, claims: this.#claims });
    try {
      await fault.run(scene);
    } catch (error) {
      findings.violation(
        "faults are survived",
        `${fault.kind}: ${error instanceof Error ? error.message : String(error)}`,
      );
      findings.record({
        kind: "fault failed",
        fault: fault.kind,
        stack: error instanceof Error ? error.stack : "",
      });
    } finally {
      scene.end();
    }
  }
}
