import { PASS_ALL } from "../support/client-proxy.ts";
import type { LinkRule } from "../support/proxied-link.ts";
import { PASS } from "../support/proxied-link.ts";
import type { TestCell } from "../support/cell.ts";
import type { Findings } from "../torture/findings.ts";
import type { ClockLibrary } from "../support/clocks/shifted-clocks.ts";
import type { Judge } from "./judge.ts";
import { LAWS } from "./judge.ts";
import { Worker } from "./keeper.ts";
import type { Order, WorkerOptions } from "./worker/report.ts";

export interface CagesOptions {
  readonly count: number;
  readonly seed: number;
  readonly scratch: string;
  readonly library: ClockLibrary | undefined;
  readonly cell: TestCell;
  readonly workers: Omit<WorkerOptions, "name" | "seed" | "endpoints">;
  readonly judge: Judge;
  readonly findings: Findings;
}

/** The workers, each in a place that is filled anew when it died. */
export class Cages {
  readonly #options: CagesOptions;
  readonly #workers: Worker[];
  readonly #rules = new Map<number, LinkRule>();
  #born = 0;
  #closing = false;

  constructor(options: CagesOptions) {
    this.#options = options;
    this.#workers = Array.from({ length: options.count }, () => this.#spawn());
  }

  get workers(): readonly Worker[] {
    return this.#workers;
  }

  /** Whoever is in this place; a new one where the one before died. */
  worker(place: number): Worker {
    const worker = this.#workers[place];
    if (worker === undefined) throw new RangeError(`there is no place ${String(place)}`);
    if (worker.alive) return worker;
    return (this.#workers[place] = this.#spawn());
  }

  order(order: Order): void {
    for (const worker of this.#workers) if (worker.alive) worker.order(order);
  }

  /** What becomes of the worker's connections to the cell; undefined: nothing. */
  shape(worker: Worker, rule: LinkRule | undefined): void {
    if (rule === undefined) this.#rules.delete(worker.pid);
    else this.#rules.set(worker.pid, rule);
    this.#options.cell.shapeClients(
      this.#rules.size === 0 ? PASS_ALL : (pid) => this.#rules.get(pid) ?? PASS,
    );
  }

  /** All end what is under way; whoever does not in time waits for something that does not come. */
  async finish(): Promise<void> {
    this.#closing = true;
    await Promise.all(
      this.#workers.map(async (worker) => {
        if (!worker.alive || (await worker.finish())) return;
        const { kind = "nothing" } = worker.waiting ?? {};
        this.#options.findings.violation(LAWS.waiters, `${worker.name} never ended: it waits for ${kind}`);
      }),
    );
  }

  async kill(): Promise<void> {
    this.#closing = true;
    await Promise.all(this.#workers.map((worker) => worker.kill()));
  }

  #spawn(): Worker {
    const { seed, scratch, library, cell, workers, judge, findings } = this.#options;
    this.#born += 1;
    const name = `w${String(this.#born)}`;
    const worker = new Worker({
      ...{ ...workers, name, scratch, library, endpoints: cell.endpoints },
      seed: `${String(seed)}/${name}`,
      onReport: (from, report) => judge.hear(from, report),
    });
    void worker.ended().then(() => {
      judge.ended(worker);
      if (worker.wasKilled || this.#closing) return;
      findings.violation(LAWS.clients, `${name} ended by itself: ${worker.end}`);
    });
    return worker;
  }
}
