/** Nobody waits for what is free: who waits learns within a bound that the turn has come. */
import type { Reporter, Scheduler, TimeUs, Truth } from "../contract.ts";
import type { ClaimLedger } from "./claims.ts";
import { describeResource } from "./resources.ts";
import type { Resource } from "./resources.ts";

/** A client finds a leader again, and with it what happened meanwhile, within this time once the cell is well. */
const TOLD_US_MAX = 30_000_000;
const LOOK_EVERY_US = 1_000_000;

export interface Waiter {
  /** All that it wants at once: more than one for several exclusive locks. */
  readonly resources: readonly Resource[];
  readonly host: string;
  readonly leaseId: string;
}

interface Waiting {
  readonly waiter: Waiter;
  /** Since when nobody stands in its way; undefined: somebody does. */
  readySinceUs: TimeUs | undefined;
}

export class WaiterLedger {
  readonly #claims: ClaimLedger;
  readonly #reporter: Reporter;
  readonly #scheduler: Scheduler;
  readonly #waiting = new Set<Waiting>();
  #healedAtUs: TimeUs | undefined;

  /** @param claims listens to the same history before this does */
  constructor(truth: Truth, claims: ClaimLedger, reporter: Reporter, scheduler: Scheduler) {
    this.#claims = claims;
    this.#reporter = reporter;
    this.#scheduler = scheduler;
    truth.onRevision(() => {
      for (const waiting of this.#waiting) this.#look(waiting);
    });
  }

  /** Before the call that waits. @returns to be called in the turn in which that returned, whatever it said */
  begin(waiter: Waiter): () => void {
    const waiting: Waiting = { waiter, readySinceUs: undefined };
    this.#waiting.add(waiting);
    this.#look(waiting);
    return () => {
      this.#judge(waiting);
      this.#waiting.delete(waiting);
    };
  }

  processKilled(host: string): void {
    for (const waiting of this.#waiting) if (waiting.waiter.host === host) this.#waiting.delete(waiting);
  }

  /** From now on there are no faults, and the cell is well. */
  healed(): void {
    this.#healedAtUs = this.#scheduler.nowUs;
    const look = (): void => {
      for (const waiting of this.#waiting) this.#judge(waiting);
      this.#scheduler.in(LOOK_EVERY_US, look);
    };
    look();
  }

  #look(waiting: Waiting): void {
    if (!this.#isReady(waiting.waiter)) {
      this.#judge(waiting);
      waiting.readySinceUs = undefined;
    } else {
      waiting.readySinceUs ??= this.#scheduler.nowUs;
    }
  }

  #isReady({ resources, leaseId }: Waiter): boolean {
    return resources.every((resource) => {
      const book = this.#claims.book(resource);
      // There is no queue for exclusive locks: whoever comes first has it.
      if (resource.recipe === "lock") return book.isFree;
      const place = book.newestOf(leaseId);
      return place !== undefined && book.mayGo(place);
    });
  }

  #judge({ waiter, readySinceUs }: Waiting): void {
    if (readySinceUs === undefined || this.#healedAtUs === undefined) return;
    const sinceUs = Math.max(readySinceUs, this.#healedAtUs);
    if (this.#scheduler.nowUs <= sinceUs + TOLD_US_MAX) return;
    const what = waiter.resources.map(describeResource).join(" and ");
    this.#reporter.violation(
      "I11-waits",
      `${waiter.host} (lease ${waiter.leaseId}) could have had ${what} since ${readySinceUs} us, the cell is well since ${this.#healedAtUs} us, and it waits at ${this.#scheduler.nowUs} us`,
    );
  }
}
