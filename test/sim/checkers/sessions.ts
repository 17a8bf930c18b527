/** I10: leases, as their holders were promised. */
import type { Reporter, TimeUs, Truth } from "../contract.ts";

/** A lease that some process counts on. */
export interface Claim {
  readonly leaseId: string;
  /** The host of the process. */
  readonly host: string;
  readonly ttlMs: number;
  /** What is certainly left of it, by the clock of its process, without a margin for drift. */
  remainingMs(): number;
}

interface ClaimRecord {
  readonly claim: Claim;
  /** Its holder has asked for the end, or the outcome of such a call is open. */
  revoking: boolean;
  /** Since when nobody renews it. */
  abandonedAtUs: TimeUs | undefined;
}

interface LeaseEnd {
  /** Among all ends, in order. */
  readonly ordinal: number;
  readonly cause: string;
  readonly atUs: TimeUs;
}

/**
 * Knows which process counts on which lease. When a lease ends by expiry, nobody may count on it any more; a lease
 * that nobody renews must end; and what was told to be gone is gone.
 */
export class SessionLedger {
  readonly #reporter: Reporter;
  /** How fast or slow any clock may run against another, as a fraction. */
  readonly #driftMax: number;
  readonly #records = new Map<string, ClaimRecord>();
  readonly #ended = new Map<string, LeaseEnd>();

  constructor(truth: Truth, reporter: Reporter, driftMax: number) {
    this.#reporter = reporter;
    this.#driftMax = driftMax;
    truth.onLeaseEnd((leaseId, cause, atUs) => {
      this.#onLeaseEnd(leaseId, { ordinal: this.#ended.size, cause, atUs });
    });
  }

  /** What a clock at the edge of the stated drift may be wrong by over one TTL, and a rounding. */
  allowanceMs(ttlMs: number): number {
    return ttlMs * this.#driftMax + 1;
  }

  /** In the turn in which its process learns of the grant. */
  opened(claim: Claim): void {
    const record = { claim, revoking: false, abandonedAtUs: undefined };
    this.#records.set(claim.leaseId, record);
    const end = this.#ended.get(claim.leaseId);
    if (end !== undefined) this.#judgeEnd(record, end);
  }

  /** Before its own holder asks for its end. */
  revoking(leaseId: string): void {
    const record = this.#records.get(leaseId);
    if (record !== undefined) record.revoking = true;
  }

  /** From now on its holder neither renews it nor counts on it. */
  abandoned(leaseId: string, atUs: TimeUs): void {
    const record = this.#records.get(leaseId);
    if (record !== undefined) record.abandonedAtUs ??= atUs;
  }

  /** Its holder has stopped counting on it. @param told whether the cell has said that it is gone */
  lost(leaseId: string, atUs: TimeUs, told: boolean): void {
    if (told && !this.#ended.has(leaseId)) {
      this.#reporter.violation(
        "I10-answer",
        `the holder of lease ${leaseId} is told of its end, and it has not ended`,
      );
    }
    this.abandoned(leaseId, atUs);
  }

  processKilled(host: string, atUs: TimeUs): void {
    for (const record of this.#records.values()) {
      if (record.claim.host === host) record.abandonedAtUs ??= atUs;
    }
  }

  /** A living process renews it. */
  isCountedOn(leaseId: string): boolean {
    const record = this.#records.get(leaseId);
    return record !== undefined && record.abandonedAtUs === undefined;
  }

  hasEnded(leaseId: string): boolean {
    return this.#ended.has(leaseId);
  }

  /** How many leases have ended: a point in time for {@link listed}. */
  get endedCount(): number {
    return this.#ended.size;
  }

  /** @param endedBefore what {@link endedCount} was when the list was asked for */
  listed(leaseIds: readonly string[], endedBefore: number): void {
    for (const leaseId of leaseIds) {
      const end = this.#ended.get(leaseId);
      if (end === undefined || end.ordinal >= endedBefore) continue;
      this.#reporter.violation("I10-answer", `lease ${leaseId} is listed after its end`);
    }
  }

  /**
   * A linearizable answer about a lease.
   * @param endedBefore whether the lease had ended before the question was sent
   */
  answered(leaseId: string, remainingMs: number, endedBefore: boolean): void {
    if (remainingMs > 0 && endedBefore) {
      this.#reporter.violation("I10-answer", `lease ${leaseId} has ${remainingMs} ms left after its end`);
    }
    if (remainingMs < 0 && !this.#ended.has(leaseId)) {
      this.#reporter.violation("I10-answer", `lease ${leaseId} is said to be gone, and has not ended`);
    }
  }

  /**
   * For the end of a history: the cell was healthy since `healedAtUs`, so leases that nobody renews have ended
   * within their TTL and `boundMs` after that.
   */
  expectNoOrphans(nowUs: TimeUs, healedAtUs: TimeUs, boundMs: number): void {
    for (const [leaseId, { claim, abandonedAtUs }] of this.#records) {
      if (abandonedAtUs === undefined) continue;
      const dueUs =
        Math.max(abandonedAtUs, healedAtUs) + (claim.ttlMs * (1 + this.#driftMax) + boundMs) * 1000;
      if (nowUs <= dueUs) continue;
      this.#reporter.violation(
        "I10-late",
        `lease ${leaseId} (TTL ${claim.ttlMs} ms, of ${claim.host}) was abandoned at ${abandonedAtUs} us, the cell is healthy since ${healedAtUs} us, and it lives at ${nowUs} us`,
      );
    }
  }

  #onLeaseEnd(leaseId: string, end: LeaseEnd): void {
    const before = this.#ended.get(leaseId);
    if (before !== undefined) {
      this.#reporter.violation(
        "I10-once",
        `lease ${leaseId} ended twice: ${before.cause}, then ${end.cause}`,
      );
    }
    this.#ended.set(leaseId, end);
    const record = this.#records.get(leaseId);
    if (record !== undefined) this.#judgeEnd(record, end);
  }

  #judgeEnd(record: ClaimRecord, { cause, atUs }: LeaseEnd): void {
    const { claim } = record;
    this.#records.delete(claim.leaseId);
    if (record.abandonedAtUs !== undefined || record.revoking) return;
    const leftMs = claim.remainingMs();
    if (leftMs <= this.allowanceMs(claim.ttlMs)) return;
    this.#reporter.violation(
      "I10-early",
      `lease ${claim.leaseId} (TTL ${claim.ttlMs} ms) ended by ${cause} at ${atUs} us while ${claim.host} could count on ${leftMs.toFixed(1)} ms more`,
    );
  }
}
