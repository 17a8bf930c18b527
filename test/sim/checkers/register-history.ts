/** I8: what clients asked the registers and were told, and the check of linearizability at the end. */
import { checkHistory } from "../../linearizability/check-history.ts";
import { check, DEFAULT_STEPS_MAX } from "../../linearizability/checker.ts";
import { History } from "../../linearizability/history.ts";
import { keyModel } from "../../linearizability/model.ts";
import { valuesOf, type KeyInput, type KeyOutput } from "../../linearizability/words.ts";
import type { Reporter, Scheduler, Truth } from "../contract.ts";

/** One operation that was begun. Neither is called when its process dies: the outcome is unknown then. */
export interface OpenOperation {
  ok(output: KeyOutput): void;
  failed(outcome: "not-applied" | "unknown"): void;
}

export interface RegisterHistoryOptions {
  readonly scheduler: Pick<Scheduler, "nowUs">;
  readonly reporter: Reporter;
  readonly truth: Pick<Truth, "onRevision">;
  /** How much is tried to find an order. Default: what the checker of linearizability does by itself. */
  readonly stepsMax?: number;
}

export class RegisterHistory {
  readonly history: History = new History();
  readonly #scheduler: Pick<Scheduler, "nowUs">;
  readonly #reporter: Reporter;
  readonly #stepsMax: number;
  /** Every value that ever was there. */
  readonly #written = new Set<string>();

  constructor({ scheduler, reporter, truth, stepsMax = DEFAULT_STEPS_MAX }: RegisterHistoryOptions) {
    this.#scheduler = scheduler;
    this.#reporter = reporter;
    this.#stepsMax = stepsMax;
    truth.onRevision(({ events }) => {
      for (const { state } of events) if (state !== undefined) this.#written.add(state.value);
    });
  }

  begin(process: string, input: KeyInput): OpenOperation {
    const { history } = this;
    const id = history.begin(process, input, this.#scheduler.nowUs);
    return {
      ok: (output) => history.ok(id, output, this.#scheduler.nowUs),
      failed: (outcome) => {
        if (outcome === "unknown") history.unknown(id);
        else history.notApplied(id);
      },
    };
  }

  /** Judges by the answers alone: the true history helps to find an order faster, and cannot make a wrong one right. */
  check(): void {
    if (this.history.size === 0) return;
    const verdict = checkHistory(this.history, { stepsMax: this.#stepsMax });
    this.#reporter.count("linearizability checks");
    if (verdict.kind === "linearizable") return;
    if (verdict.kind === "budget-exhausted" && this.#hasOrderOfTheSeen()) return;
    this.#reporter.violation(
      verdict.kind === "violation" ? `I8-${verdict.law}` : "I8-undecided",
      verdict.text,
    );
  }

  /**
   * An unknown outcome need not be placed, so an order without some of them is an order of all. Those whose values
   * nobody ever could read are left out: there may be dozens, and the search goes through their combinations.
   */
  #hasOrderOfTheSeen(): boolean {
    const seen = this.history.operations().filter(({ input, outcome }) => {
      const values = valuesOf(input);
      return outcome.kind === "ok" || values.length === 0 || values.some((value) => this.#written.has(value));
    });
    const { kind } = check(keyModel, seen, { stepsMax: this.#stepsMax, minimise: false });
    return kind === "linearizable";
  }
}
