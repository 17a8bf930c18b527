import { LeaseSlots, type LeaseId } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { NamespaceId } from "../machine/types.ts";

const CAPACITY_FIRST = 1024;

/** What of a lease is on its way through the log; at most one thing at a time. */
export const PROPOSAL = {
  none: 0,
  expire: 1,
  /** An expiry of unknown outcome: it may stand in the log, so a later refusal proves nothing. */
  expireDoubtful: 5,
  checkpoint: 2,
  /** Waits for the next tick to be proposed. */
  clearQueued: 3,
  clear: 4,
} as const;

/**
 * Leases in typed arrays: a lease is a slot, about 80 bytes with its place in the timing wheel. Slots are reused; the
 * arrays double when none is free.
 */
export class LeaseTable {
  ttlMs: Float64Array = new Float64Array(CAPACITY_FIRST);
  /** Replicated remaining-time checkpoint; 0: none. */
  checkpointMs: Float64Array = new Float64Array(CAPACITY_FIRST);
  /** Leader only: when it may be expired. */
  deadlineMs: Float64Array = new Float64Array(CAPACITY_FIRST);
  /** Leader only: when it will have gone unrenewed for a checkpoint interval. */
  checkpointAtMs: Float64Array = new Float64Array(CAPACITY_FIRST);
  /** Leader only: one of {@link PROPOSAL}. */
  proposal: Uint8Array = new Uint8Array(CAPACITY_FIRST);
  readonly #slots: LeaseSlots;
  readonly #onGrow: (capacity: number) => void;

  /** @param hashSeed any number that clients do not know */
  constructor(hashSeed: number, onGrow: (capacity: number) => void) {
    this.#slots = new LeaseSlots(hashSeed, (capacity) => this.#grow(capacity));
    this.#onGrow = onGrow;
  }

  get count(): number {
    return this.#slots.count;
  }

  get capacity(): number {
    return this.ttlMs.length;
  }

  /** Slots ever used: the bound of a loop over all of them. */
  get slotsUsed(): number {
    return this.#slots.slotsUsed;
  }

  slot(namespaceId: NamespaceId, leaseId: LeaseId): number | undefined {
    return this.#slots.slot(namespaceId, leaseId);
  }

  /** Whether the slot holds a lease. */
  has(slot: number): boolean {
    return this.#slots.has(slot);
  }

  /** A text made anew each time; undefined: the slot is free. */
  idOf(slot: number): LeaseId | undefined {
    return this.#slots.idOf(slot);
  }

  namespaceOf(slot: number): NamespaceId {
    return this.#slots.scopeOf(slot);
  }

  /** At most `max` slots of the namespace's leases, from slot `from` on. */
  slotsOf(namespaceId: NamespaceId, from: number, max: number): number[] {
    const slots = this.#slots;
    const some: number[] = [];
    const wanted = Math.min(max, slots.countOf(namespaceId));
    for (let slot = from; slot < slots.slotsUsed && some.length < wanted; slot += 1) {
      if (slots.scopeOf(slot) === namespaceId && slots.has(slot)) some.push(slot);
    }
    return some;
  }

  /** @returns the slot, with checkpoint and proposal empty. */
  add(namespaceId: NamespaceId, leaseId: LeaseId, ttlMs: number): number {
    assert(this.slot(namespaceId, leaseId) === undefined, "a lease is granted once", {
      namespaceId,
      leaseId,
    });
    const slot = this.#slots.add(namespaceId, leaseId);
    this.ttlMs[slot] = ttlMs;
    this.checkpointMs[slot] = 0;
    this.proposal[slot] = PROPOSAL.none;
    return slot;
  }

  remove(slot: number): void {
    assert(this.has(slot), "a removed lease is in the table", { slot });
    this.#slots.remove(slot);
  }

  clear(): void {
    this.#slots.clear();
  }

  #grow(capacity: number): void {
    this.ttlMs = grown(this.ttlMs, capacity);
    this.checkpointMs = grown(this.checkpointMs, capacity);
    this.deadlineMs = grown(this.deadlineMs, capacity);
    this.checkpointAtMs = grown(this.checkpointAtMs, capacity);
    const proposal = new Uint8Array(capacity);
    proposal.set(this.proposal);
    this.proposal = proposal;
    this.#onGrow(capacity);
  }
}

function grown(array: Float64Array, capacity: number): Float64Array {
  const larger = new Float64Array(capacity);
  larger.set(array);
  return larger;
}
