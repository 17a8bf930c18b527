import type { LeaseId } from "@lockstep/gateway/coordinator";
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
 * Leases in typed arrays: a lease is a slot. About 50 bytes each, and the id once, with its place in a map. Slots are
 * reused; the arrays double when none is free.
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
  #namespaceId = new Uint32Array(CAPACITY_FIRST);
  /** undefined: the slot is free. */
  readonly #ids: (LeaseId | undefined)[] = [];
  readonly #free: number[] = [];
  readonly #slots = new Map<NamespaceId, Map<LeaseId, number>>();
  readonly #onGrow: (capacity: number) => void;
  #count = 0;

  constructor(onGrow: (capacity: number) => void) {
    this.#onGrow = onGrow;
  }

  get count(): number {
    return this.#count;
  }

  get capacity(): number {
    return this.ttlMs.length;
  }

  /** Slots ever used: the bound of a loop over all of them. */
  get slotsUsed(): number {
    return this.#ids.length;
  }

  slotsOf(namespaceId: NamespaceId): ReadonlyMap<LeaseId, number> | undefined {
    return this.#slots.get(namespaceId);
  }

  slot(namespaceId: NamespaceId, leaseId: LeaseId): number | undefined {
    return this.#slots.get(namespaceId)?.get(leaseId);
  }

  idOf(slot: number): LeaseId | undefined {
    return this.#ids[slot];
  }

  namespaceOf(slot: number): NamespaceId {
    return this.#namespaceId[slot] ?? 0;
  }

  /** @returns the slot, with checkpoint and proposal empty. */
  add(namespaceId: NamespaceId, leaseId: LeaseId, ttlMs: number): number {
    let slots = this.#slots.get(namespaceId);
    if (slots === undefined) this.#slots.set(namespaceId, (slots = new Map<LeaseId, number>()));
    assert(!slots.has(leaseId), "a lease is granted once", { namespaceId, leaseId });
    const slot = this.#free.pop() ?? this.#ids.length;
    if (slot >= this.capacity) this.#grow(this.capacity * 2);
    slots.set(leaseId, slot);
    this.#ids[slot] = leaseId;
    this.#namespaceId[slot] = namespaceId;
    this.ttlMs[slot] = ttlMs;
    this.checkpointMs[slot] = 0;
    this.proposal[slot] = PROPOSAL.none;
    this.#count += 1;
    return slot;
  }

  remove(slot: number): void {
    const leaseId = this.#ids[slot];
    const namespaceId = this.namespaceOf(slot);
    const slots = this.#slots.get(namespaceId);
    assert(leaseId !== undefined && slots !== undefined, "a removed lease is in the table", { slot });
    slots.delete(leaseId);
    if (slots.size === 0) this.#slots.delete(namespaceId);
    this.#ids[slot] = undefined;
    this.#free.push(slot);
    this.#count -= 1;
  }

  clear(): void {
    this.#slots.clear();
    this.#ids.length = 0;
    this.#free.length = 0;
    this.#count = 0;
  }

  #grow(capacity: number): void {
    this.ttlMs = grown(this.ttlMs, capacity);
    this.checkpointMs = grown(this.checkpointMs, capacity);
    this.deadlineMs = grown(this.deadlineMs, capacity);
    this.checkpointAtMs = grown(this.checkpointAtMs, capacity);
    const proposal = new Uint8Array(capacity);
    proposal.set(this.proposal);
    this.proposal = proposal;
    const namespaceId = new Uint32Array(capacity);
    namespaceId.set(this.#namespaceId);
    this.#namespaceId = namespaceId;
    this.#onGrow(capacity);
  }
}

function grown(array: Float64Array, capacity: number): Float64Array {
  const larger = new Float64Array(capacity);
  larger.set(array);
  return larger;
}
