/** R46, R47: a linearizable read covers all that anybody knew to be committed when it was asked for. */
import type { PendingRead } from "../../../cell/src/replica/reads.ts";
import type { Replica } from "../../../cell/src/replica/replica.ts";
import type { Reporter } from "../contract.ts";
import type { Ledger } from "./ledger.ts";
import { nameOf } from "./life.ts";
import type { Life } from "./life.ts";

/**
 * Stronger than linearizability asks, and true of the read-index protocol: whoever leads once the read is asked for has
 * every entry that was committed before in its commit index when the round begins.
 */
export class ReadLaw {
  readonly #reporter: Reporter;
  readonly #ledger: Ledger;

  constructor(reporter: Reporter, ledger: Ledger) {
    this.#reporter = reporter;
    this.#ledger = ledger;
  }

  instrument(life: Life, replica: Replica): void {
    const read = replica.read.bind(replica);
    replica.read = (asked) => read(this.#watched(life, asked));
  }

  #watched(life: Life, asked: PendingRead): PendingRead {
    const due = this.#ledger.highestCommit;
    return {
      fail: (failure) => asked.fail(failure),
      deadlineMs: asked.deadlineMs,
      serve: () => {
        const { appliedIndex } = life.state;
        if (life.alive && appliedIndex < due) {
          this.#reporter.violation(
            "I8-read-index",
            `${nameOf(life)} serves a linearizable read at ${String(appliedIndex)}; ${String(due)} was committed when it was asked for`,
          );
        }
        asked.serve();
      },
    };
  }
}
