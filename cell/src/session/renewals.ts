import type { LeaseId } from "@lockstep/gateway/coordinator";
import type { NamespaceId } from "../machine/types.ts";
import type { RenewalAnswer } from "./types.ts";

export interface RenewalRequest {
  readonly namespaceId: NamespaceId;
  readonly leaseIds: readonly LeaseId[];
}

/** A renewal request of which at least one lease had to wait. Answered once, when no lease waits any more. */
export class Renewal {
  readonly request: RenewalRequest;
  readonly #remainingMs: number[];
  #waiting: number;
  #deliver: ((answer: RenewalAnswer | undefined) => void) | undefined;

  /** @param remainingMs answers known already; a negative one waits */
  constructor(
    request: RenewalRequest,
    remainingMs: number[],
    deliver: (answer: RenewalAnswer | undefined) => void,
  ) {
    this.request = request;
    this.#remainingMs = remainingMs;
    this.#waiting = remainingMs.reduce((waiting, each) => waiting + (each < 0 ? 1 : 0), 0);
    this.#deliver = deliver;
  }

  /** @param present remaining time of a lease at this moment; undefined: it is gone */
  settle(at: number, remainingMs: number, present: (leaseId: LeaseId) => number | undefined): void {
    this.#remainingMs[at] = remainingMs;
    this.#waiting -= 1;
    if (this.#waiting > 0) return;
    // What was renewed at first may have ended while others waited: nothing positive is said about it (B21).
    const answers = this.#remainingMs.map((each, index) => {
      const leaseId = this.request.leaseIds[index];
      const now = each === 0 || leaseId === undefined ? undefined : present(leaseId);
      // 0 is kept for "gone": a lease past its deadline is still there until its expiry is applied.
      return now === undefined ? 0 : Math.max(1, Math.min(each, now));
    });
    this.#answer({ remainingMs: answers });
  }

  /** Leadership was lost. */
  abandon(): void {
    this.#answer(undefined);
  }

  #answer(answer: RenewalAnswer | undefined): void {
    const deliver = this.#deliver;
    this.#deliver = undefined;
    deliver?.(answer);
  }
}

/** One lease of a renewal that waits. */
export interface Part {
  readonly renewal: Renewal;
  readonly at: number;
}

/** Everything that waits: for what is proposed about a lease, or for leadership to be certain. */
export class WaitingRenewals {
  readonly #bySlot = new Map<number, Part[]>();
  #held: Part[] = [];
  #count = 0;

  get count(): number {
    return this.#count;
  }

  get anyHeld(): boolean {
    return this.#held.length > 0;
  }

  hold(part: Part): void {
    this.#held.push(part);
    this.#count += 1;
  }

  takeHeld(): Part[] {
    const held = this.#held;
    this.#held = [];
    this.#count -= held.length;
    return held;
  }

  waitFor(slot: number, part: Part): void {
    const parts = this.#bySlot.get(slot);
    if (parts === undefined) this.#bySlot.set(slot, [part]);
    else parts.push(part);
    this.#count += 1;
  }

  waitsFor(slot: number): boolean {
    return this.#bySlot.has(slot);
  }

  takeFor(slot: number): readonly Part[] {
    const parts = this.#bySlot.get(slot);
    if (parts === undefined) return [];
    this.#bySlot.delete(slot);
    this.#count -= parts.length;
    return parts;
  }

  takeAll(): Set<Renewal> {
    const renewals = new Set<Renewal>();
    for (const { renewal } of this.#held) renewals.add(renewal);
    for (const parts of this.#bySlot.values()) for (const { renewal } of parts) renewals.add(renewal);
    this.#held = [];
    this.#bySlot.clear();
    this.#count = 0;
    return renewals;
  }
}
