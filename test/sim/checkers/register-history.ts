/** I8: what clients asked the registers and were told, and the check of linearizability at the end. */
import { checkHistory } from "../../linearizability/check-history.ts";
import { History } from "../../linearizability/history.ts";
import type { KeyInput, KeyOutput } from "../../linearizability/words.ts";
import type { Reporter, Scheduler } from "../contract.ts";

/** One operation that was begun. Neither is called when its process dies: the outcome is unknown then. */
export interface OpenOperation {
  ok(output: KeyOutput): void;
  failed(outcome: "not-applied" | "unknown"): void;
}

export class RegisterHistory {
  readonly history: History = new History();
  readonly #scheduler: Pick<Scheduler, "nowUs">;
  readonly #reporter: Reporter;

  constructor(scheduler: Pick<Scheduler, "nowUs">, reporter: Reporter) {
    this.#scheduler = scheduler;
    this.#reporter = reporter;
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

  /** Judges by the answers alone: it knows nothing of the true history. */
  check(): void {
    if (this.history.size === 0) return;
    const verdict = checkHistory(this.history);
    this.#reporter.count("linearizability checks");
    if (verdict.kind === "linearizable") return;
    this.#reporter.violation(
      verdict.kind === "violation" ? `I8-${verdict.law}` : "I8-undecided",
      verdict.text,
    );
  }
}
