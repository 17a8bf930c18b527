/** I10: the keys of a lease vanish with it, in one revision and in key order. */
import type { Reporter, TrueEvent, TrueRevision, Truth } from "../contract.ts";

const NO_LEASE = "0";
const LEASE_CAUSES = ["lease-expired", "lease-revoked"];

/** Follows which key hangs on which lease, by the events alone. */
export class LeaseKeyChecker {
  readonly #reporter: Reporter;
  readonly #keys = new Map<string, Set<string>>();
  readonly #ended = new Set<string>();

  constructor(truth: Truth, reporter: Reporter) {
    this.#reporter = reporter;
    truth.onRevision((revision) => this.#onRevision(revision));
    truth.onLeaseEnd((leaseId) => this.#ended.add(leaseId));
  }

  /** At the end of a history: no key of an ended lease is left. */
  finish(): void {
    for (const leaseId of this.#ended) {
      const left = this.#keys.get(leaseId);
      if (left === undefined || left.size === 0) continue;
      this.#reporter.violation(
        "I10-atomic",
        `lease ${leaseId} has ended and ${[...left].join(", ")} remained`,
      );
    }
  }

  #onRevision({ revision, events }: TrueRevision): void {
    let endedLease: string | undefined;
    let lastKey: string | undefined;
    for (const event of events) {
      this.#follow(event, revision);
      if (event.kind !== "delete" || !LEASE_CAUSES.includes(event.cause)) continue;
      const leaseId = event.previous?.leaseId ?? NO_LEASE;
      if (leaseId === NO_LEASE || (endedLease !== undefined && endedLease !== leaseId)) {
        this.#reporter.violation(
          "I10-atomic",
          `revision ${revision} deletes ${event.key} of lease ${leaseId} with cause ${event.cause}, in the revision of lease ${endedLease ?? "none"}`,
        );
      }
      if (lastKey !== undefined && event.key <= lastKey) {
        this.#reporter.violation("I10-atomic", `revision ${revision} deletes ${event.key} after ${lastKey}`);
      }
      endedLease = leaseId;
      lastKey = event.key;
    }
    if (endedLease === undefined) return;
    const left = this.#keys.get(endedLease);
    if (left === undefined || left.size === 0) return;
    this.#reporter.violation(
      "I10-atomic",
      `revision ${revision} ends lease ${endedLease} and leaves ${[...left].join(", ")}`,
    );
  }

  #follow({ key, state, previous }: TrueEvent, revision: number): void {
    if (previous !== undefined && previous.leaseId !== NO_LEASE)
      this.#keys.get(previous.leaseId)?.delete(key);
    if (state === undefined || state.leaseId === NO_LEASE) return;
    if (this.#ended.has(state.leaseId)) {
      this.#reporter.violation(
        "I10-atomic",
        `revision ${revision} hangs ${key} on lease ${state.leaseId}, which has ended`,
      );
    }
    let keys = this.#keys.get(state.leaseId);
    if (keys === undefined) {
      keys = new Set();
      this.#keys.set(state.leaseId, keys);
    }
    keys.add(key);
  }
}
