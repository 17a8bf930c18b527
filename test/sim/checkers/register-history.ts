/** I8: what clients asked the registers and were told, for the check of linearizability at the end. */
import type { Operation } from "../../linearizability/operation.ts";
import type { KeyInput, KeyOutput } from "../../linearizability/words.ts";
import type { Scheduler } from "../contract.ts";

export type RecordedOperation = Operation<KeyInput, KeyOutput>;

/** One operation that was begun; ends with the first of its calls. */
export interface OpenOperation {
  ok(output: KeyOutput): void;
  failed(outcome: "not-applied" | "unknown"): void;
}

interface Row {
  readonly process: string;
  readonly input: KeyInput;
  readonly invokedAt: number;
  outcome: RecordedOperation["outcome"];
  took: boolean;
}

/** Operations in the order of their beginnings; one whose answer never comes stays unknown. */
export class RegisterHistory {
  readonly #scheduler: Pick<Scheduler, "nowUs">;
  readonly #rows: Row[] = [];

  constructor(scheduler: Pick<Scheduler, "nowUs">) {
    this.#scheduler = scheduler;
  }

  begin(process: string, input: KeyInput): OpenOperation {
    const row: Row = {
      process,
      input,
      invokedAt: this.#scheduler.nowUs,
      outcome: { kind: "unknown" },
      took: true,
    };
    this.#rows.push(row);
    return {
      ok: (output) => {
        row.outcome = { kind: "ok", output, returnedAt: this.#scheduler.nowUs };
      },
      failed: (outcome) => {
        row.took = outcome === "unknown";
      },
    };
  }

  /** What was not applied has no part in it. */
  get operations(): readonly RecordedOperation[] {
    return this.#rows.filter(({ took }) => took);
  }
}
