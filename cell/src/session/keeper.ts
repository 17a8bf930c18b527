/**
 * Deadlines of leases (architecture, section 6). What makes an early expiry impossible:
 *
 * - A renewal is acknowledged at time `a` only if a quorum answered a heartbeat sent at `h >= a - electionTimeout`. A
 *   later leader is elected after `h` (the quorums meet), so it leads from `l >= h`, and its deadline
 *   `l + ttl + electionTimeout` is not before `a + ttl`.
 * - A checkpoint replaces the TTL in that sum, so no renewal is acknowledged while one is set or may become set: what
 *   is proposed about a lease is one thing at a time, and renewals of it wait for the outcome.
 * - Whoever was paused does not know whether it still leads: after a late tick nothing expires and nothing is
 *   acknowledged until leadership is proved (B3). An expiry that a deposed leader proposed names its term and is
 *   ignored when applied.
 */
import type { LeaseId } from "@lockstep/gateway/coordinator";
import { assert, assertNever } from "../invariant.ts";
import type { LeaseChange, LeaseRecord, NamespaceId } from "../machine/types.ts";
import type { Term } from "../raft/types.ts";
import { orderByDeadline } from "./deadline-order.ts";
import { LeaseTable, PROPOSAL } from "./lease-table.ts";
import { NamespaceBatches } from "./namespace-batches.ts";
import { Renewal, WaitingRenewals, type Part, type RenewalRequest } from "./renewals.ts";
import { NONE } from "./slot-lists.ts";
import { READY, TimingWheel, WHEEL_TICK_MS } from "./timing-wheel.ts";
import type { RenewalAnswer, SessionKeeper, SessionOptions, SessionWork } from "./types.ts";

/**
 * Expiries on their way through the log, in batches of `expireBatchMax`. They may all stand in one entry, and the clients'
 * requests wait while it is applied: with a thousand, for as long as makes the others elect another leader.
 */
const EXPIRE_BATCHES_OUTSTANDING_MAX = 2;
/** 100,000 sessions that end together are gone within 8 s, and the processor is left to the others for half of that. */
const EXPIRIES_PER_MS_MAX = 13;
/** What a pause may save up: the next follow each other as fast as they are committed until it is used. */
const EXPIRIES_SAVED_MAX = 650;
/** Leases named by the checkpoint commands of one tick. */
const CHECKPOINTS_PER_TICK_MAX = 4096;
const CHECKPOINT_BATCH_MAX = 512;
/** Slots of the wheel touched in one tick: a few milliseconds. */
const WHEEL_SLOTS_PER_TICK_MAX = 65_536;
/** Spread of deadlines after an election. */
const SPREAD_SHARE = 0.1;
const SPREAD_MS_PER_LEASES = 1000;
const SPREAD_LEASES = 10_000;
/** Renewals of single leases that may wait, at least; else twice the leases. */
const WAITING_MAX_AT_LEAST = 65_536;
/** In place of remaining time: must wait. */
const WAITS = -1;

const NO_WORK: SessionWork = { expire: [], checkpoint: [], proveLeadership: false };
const PROVE_LEADERSHIP: SessionWork = { expire: [], checkpoint: [], proveLeadership: true };

type CheckpointBatch = SessionWork["checkpoint"][number];

export function createSessionKeeper(options: SessionOptions): SessionKeeper {
  return new Keeper(options);
}

class Keeper implements SessionKeeper {
  readonly #options: SessionOptions;
  readonly #table: LeaseTable;
  readonly #wheel: TimingWheel;
  readonly #waiting = new WaitingRenewals();
  #leading = false;
  #term = 0;
  /** Latest time seen. */
  #nowMs = -Infinity;
  #lastTickMs = -Infinity;
  #contactMs = -Infinity;
  /** Leadership must be proved by a round started at this time or later; undefined: it need not be. */
  #proveSinceMs: number | undefined;
  #expiring = 0;
  /** Expiries that may be proposed now: see {@link EXPIRIES_PER_MS_MAX}. */
  #expiriesAllowed = EXPIRIES_SAVED_MAX;
  #allowedMs = -Infinity;
  /** Slots to clear a checkpoint of, in order; stale ones are skipped by their proposal state. */
  #clearQueue: number[] = [];
  /** Deleted namespaces whose leases are not all gone from here yet, and the slot that the rest stand behind. */
  readonly #forgetting = new Map<NamespaceId, number>();

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#table = new LeaseTable(options.hashSeed ?? 0, (capacity) => this.#wheel.lists.grow(capacity));
    this.#wheel = new TimingWheel(this.#table.capacity, (slot) => this.#dueMs(slot));
  }

  get count(): number {
    return this.#table.count;
  }

  applied(change: LeaseChange, nowMs: number): void {
    this.#see(nowMs);
    switch (change.kind) {
      case "granted":
        this.#granted(this.#table.add(change.namespaceId, change.leaseId, change.ttlMs));
        return;
      case "ended":
        this.#ended(this.#slotOf(change));
        return;
      case "checkpointed":
        this.#checkpointed(this.#slotOf(change), change.remainingMs);
        return;
      default:
        assertNever(change);
    }
  }

  has(namespaceId: NamespaceId, leaseId: LeaseId): boolean {
    return this.#table.slot(namespaceId, leaseId) !== undefined;
  }

  forget(namespaceId: NamespaceId, max: number): readonly LeaseId[] {
    const from = this.#forgetting.get(namespaceId) ?? 0;
    const slots = this.#table.slotsOf(namespaceId, from, max);
    const some = slots.map((slot) => this.#idOf(slot));
    // Nothing positive is said about the others either, which are there until the next call. None is granted any more,
    // so that all of them stand behind those that are gone.
    this.#forgetting.set(namespaceId, slots.at(-1) ?? from);
    for (const slot of slots) this.#ended(slot);
    if (some.length < max) this.#forgetting.delete(namespaceId);
    return some;
  }

  load(leases: Iterable<LeaseRecord>): void {
    assert(!this.#leading, "a leader's leases are not replaced");
    this.#table.clear();
    this.#forgetting.clear();
    this.#wheel.reset(0);
    for (const { namespaceId, leaseId, ttlMs, checkpointMs } of leases) {
      const slot = this.#table.add(namespaceId, leaseId, ttlMs);
      this.#table.checkpointMs[slot] = checkpointMs;
    }
  }

  lead(term: Term, nowMs: number): void {
    assert(term > this.#term, "a member leads each term once", { term, last: this.#term });
    if (this.#leading) this.follow();
    this.#see(nowMs);
    this.#leading = true;
    this.#term = term;
    this.#lastTickMs = nowMs;
    this.#contactMs = -Infinity;
    this.#proveSinceMs = undefined;
    this.#wheel.reset(nowMs);
    const table = this.#table;
    const spreadMsMax = SPREAD_MS_PER_LEASES * Math.ceil(table.count / SPREAD_LEASES);
    for (let slot = 0; slot < table.slotsUsed; slot += 1) {
      if (!table.has(slot)) continue;
      const checkpointMs = table.checkpointMs[slot] ?? 0;
      const countedMs = checkpointMs > 0 ? checkpointMs : (table.ttlMs[slot] ?? 0);
      const spreadMs = Math.min(countedMs * SPREAD_SHARE, spreadMsMax) * fractionOf(slot);
      table.deadlineMs[slot] = nowMs + countedMs + this.#options.electionTimeoutMs + spreadMs;
      table.checkpointAtMs[slot] = nowMs + this.#options.checkpointIntervalMs;
      this.#wheel.schedule(slot);
    }
  }

  follow(): void {
    this.#leading = false;
    this.#proveSinceMs = undefined;
    this.#expiring = 0;
    this.#clearQueue = [];
    this.#table.proposal.fill(PROPOSAL.none);
    this.#wheel.reset(0);
    for (const renewal of this.#waiting.takeAll()) renewal.abandon();
  }

  renew(request: RenewalRequest, nowMs: number, deliver: (answer: RenewalAnswer | undefined) => void): void {
    this.#see(nowMs);
    if (!this.#leading) {
      deliver(undefined);
      return;
    }
    const { leaseIds } = request;
    const remainingMs = new Array<number>(leaseIds.length);
    let anyWaits = false;
    if (this.#mayAcknowledge(nowMs)) {
      const { namespaceId } = request;
      for (let at = 0; at < leaseIds.length; at += 1) {
        const leaseId = leaseIds[at];
        const slot = leaseId === undefined ? undefined : this.#table.slot(namespaceId, leaseId);
        const remaining = slot === undefined ? 0 : this.#renewSlot(slot, nowMs);
        remainingMs[at] = remaining;
        if (remaining < 0) anyWaits = true;
      }
    } else {
      remainingMs.fill(WAITS);
      anyWaits = leaseIds.length > 0;
    }
    if (anyWaits) this.#wait(request, remainingMs, deliver);
    else deliver({ remainingMs });
  }

  remainingMs(namespaceId: NamespaceId, leaseId: LeaseId, nowMs: number): number | undefined {
    const slot = this.#table.slot(namespaceId, leaseId);
    if (slot === undefined || this.#forgetting.has(namespaceId)) return undefined;
    const ttlMs = this.#table.ttlMs[slot] ?? 0;
    const checkpointMs = this.#table.checkpointMs[slot] ?? 0;
    if (!this.#leading) return checkpointMs > 0 ? checkpointMs : ttlMs;
    return Math.max(0, Math.min(ttlMs, (this.#table.deadlineMs[slot] ?? 0) - nowMs));
  }

  quorumContact(contactMs: number, nowMs: number): void {
    this.#see(nowMs);
    if (contactMs > this.#contactMs) this.#contactMs = contactMs;
    this.#releaseHeld(nowMs);
  }

  tick(nowMs: number, quorumContactMs: number): SessionWork {
    this.#see(nowMs);
    if (!this.#leading) return NO_WORK;
    if (quorumContactMs > this.#contactMs) this.#contactMs = quorumContactMs;
    if (nowMs - this.#lastTickMs > this.#options.lateTickMs) this.#proveSinceMs = nowMs;
    this.#lastTickMs = nowMs;
    if (this.#proveSinceMs !== undefined) return PROVE_LEADERSHIP;
    // Without a quorum nothing could be committed, and renewals wait that may save what is due.
    if (!this.#mayAcknowledge(nowMs)) return NO_WORK;
    this.#releaseHeld(nowMs);
    const checkpoints = this.#collectDue(nowMs);
    const expire = this.#proposeExpiries(nowMs);
    const checkpoint = this.#proposeCheckpoints(checkpoints, nowMs);
    if (expire.length === 0 && checkpoint.length === 0) return NO_WORK;
    return { expire, checkpoint, proveLeadership: false };
  }

  expireMore(nowMs: number): SessionWork["expire"] {
    this.#see(nowMs);
    if (!this.#leading || this.#wheel.lists.head(READY) === NONE || !this.#mayAcknowledge(nowMs)) return [];
    return this.#proposeExpiries(nowMs);
  }

  leadershipProved(startedMs: number, nowMs: number): void {
    this.#see(nowMs);
    if (!this.#leading || this.#proveSinceMs === undefined || startedMs < this.#proveSinceMs) return;
    // Paused again since the last tick: that tick will ask anew.
    if (nowMs - this.#lastTickMs > this.#options.lateTickMs) return;
    this.#proveSinceMs = undefined;
    // The confirming round was answered by a quorum: it is a contact, too.
    if (startedMs > this.#contactMs) this.#contactMs = startedMs;
    this.#releaseHeld(nowMs);
  }

  expiryFailed(namespaceId: NamespaceId, leaseIds: readonly LeaseId[], outcome: "refused" | "unknown"): void {
    // They come before everything else that is due, in their order.
    for (const leaseId of leaseIds.toReversed()) {
      const certain = this.#proposed(namespaceId, leaseId, PROPOSAL.expire);
      const slot = certain ?? this.#proposed(namespaceId, leaseId, PROPOSAL.expireDoubtful);
      if (slot === undefined || this.#wheel.lists.listOf(slot) !== NONE) continue;
      this.#expiring -= 1;
      const refused = outcome === "refused" && certain !== undefined;
      // Perhaps it will be applied: no renewal may pass before another expiry, which stands later in the log.
      this.#table.proposal[slot] = refused ? PROPOSAL.none : PROPOSAL.expireDoubtful;
      if (refused && this.#waiting.waitsFor(slot)) this.#settle(slot);
      else this.#wheel.lists.pushFront(READY, slot);
    }
  }

  checkpointFailed(namespaceId: NamespaceId, leaseIds: readonly LeaseId[]): void {
    for (const leaseId of leaseIds) {
      const checkpoint = this.#proposed(namespaceId, leaseId, PROPOSAL.checkpoint);
      const slot = checkpoint ?? this.#proposed(namespaceId, leaseId, PROPOSAL.clear);
      if (slot === undefined) continue;
      this.#table.proposal[slot] = PROPOSAL.none;
      if (checkpoint !== undefined) this.#table.checkpointAtMs[slot] = this.#nowMs + WHEEL_TICK_MS;
      this.#settle(slot);
    }
  }

  #see(nowMs: number): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs;
  }

  #dueMs(slot: number): number {
    return Math.min(this.#table.deadlineMs[slot] ?? 0, this.#table.checkpointAtMs[slot] ?? 0);
  }

  /** A pause shows here before the next tick: what was queued meanwhile is handled first. */
  #mayAcknowledge(nowMs: number): boolean {
    return (
      this.#proveSinceMs === undefined &&
      nowMs - this.#lastTickMs <= this.#options.lateTickMs &&
      nowMs - this.#contactMs <= this.#options.electionTimeoutMs
    );
  }

  #slotOf({
    namespaceId,
    leaseId,
  }: {
    readonly namespaceId: NamespaceId;
    readonly leaseId: LeaseId;
  }): number {
    const slot = this.#table.slot(namespaceId, leaseId);
    assert(slot !== undefined, "a lease that changes was granted", { namespaceId, leaseId });
    return slot;
  }

  #idOf(slot: number): LeaseId {
    const leaseId = this.#table.idOf(slot);
    assert(leaseId !== undefined, "the slot holds a lease", { slot });
    return leaseId;
  }

  #proposed(namespaceId: NamespaceId, leaseId: LeaseId, proposal: number): number | undefined {
    const slot = this.#table.slot(namespaceId, leaseId);
    return slot !== undefined && this.#table.proposal[slot] === proposal ? slot : undefined;
  }

  #granted(slot: number): void {
    if (!this.#leading) return;
    this.#table.deadlineMs[slot] = this.#nowMs + (this.#table.ttlMs[slot] ?? 0);
    this.#table.checkpointAtMs[slot] = this.#nowMs + this.#options.checkpointIntervalMs;
    this.#wheel.schedule(slot);
  }

  #ended(slot: number): void {
    const proposal = this.#table.proposal[slot];
    const expiring = proposal === PROPOSAL.expire || proposal === PROPOSAL.expireDoubtful;
    // In the ready list its proposal is no longer, or not yet again, on its way.
    if (expiring && this.#wheel.lists.listOf(slot) === NONE) this.#expiring -= 1;
    this.#wheel.lists.remove(slot);
    this.#table.remove(slot);
    for (const part of this.#waiting.takeFor(slot)) this.#answer(part, 0);
  }

  #checkpointed(slot: number, remainingMs: number): void {
    const table = this.#table;
    table.checkpointMs[slot] = remainingMs;
    const expected = remainingMs > 0 ? PROPOSAL.checkpoint : PROPOSAL.clear;
    if (!this.#leading || table.proposal[slot] !== expected) return;
    table.proposal[slot] = PROPOSAL.none;
    this.#settle(slot);
  }

  /** @returns the remaining time, or {@link WAITS}. */
  #renewSlot(slot: number, nowMs: number): number {
    const table = this.#table;
    if (table.proposal[slot] !== PROPOSAL.none) return WAITS;
    if ((table.checkpointMs[slot] ?? 0) > 0) {
      this.#queueClear(slot);
      return WAITS;
    }
    const ttlMs = table.ttlMs[slot] ?? 0;
    // Never earlier: the deadline since the election may cover what the old leader acknowledged a moment later.
    if (nowMs + ttlMs > (table.deadlineMs[slot] ?? 0)) table.deadlineMs[slot] = nowMs + ttlMs;
    table.checkpointAtMs[slot] = nowMs + this.#options.checkpointIntervalMs;
    return ttlMs;
  }

  #queueClear(slot: number): void {
    this.#table.proposal[slot] = PROPOSAL.clearQueued;
    this.#clearQueue.push(slot);
  }

  #wait(
    request: RenewalRequest,
    remainingMs: number[],
    deliver: (answer: RenewalAnswer | undefined) => void,
  ): void {
    if (this.#waiting.count >= Math.max(WAITING_MAX_AT_LEAST, 2 * this.#table.count)) {
      deliver(undefined);
      return;
    }
    const renewal = new Renewal(request, remainingMs, deliver);
    const waits = remainingMs.flatMap((remaining, at) => (remaining < 0 ? [at] : []));
    const held = !this.#mayAcknowledge(this.#nowMs);
    for (const at of waits) {
      const leaseId = request.leaseIds[at];
      const slot = leaseId === undefined || held ? undefined : this.#table.slot(request.namespaceId, leaseId);
      if (slot === undefined) this.#waiting.hold({ renewal, at });
      else this.#waiting.waitFor(slot, { renewal, at });
    }
  }

  #releaseHeld(nowMs: number): void {
    if (!this.#leading || !this.#waiting.anyHeld || !this.#mayAcknowledge(nowMs)) return;
    for (const part of this.#waiting.takeHeld()) this.#retry(part, nowMs);
  }

  #retry(part: Part, nowMs: number): void {
    const { renewal, at } = part;
    const { namespaceId, leaseIds } = renewal.request;
    const leaseId = leaseIds[at];
    const slot = leaseId === undefined ? undefined : this.#table.slot(namespaceId, leaseId);
    const remainingMs = slot === undefined ? 0 : this.#renewSlot(slot, nowMs);
    if (remainingMs >= 0) this.#answer(part, remainingMs);
    else if (slot !== undefined) this.#waiting.waitFor(slot, part);
  }

  #answer({ renewal, at }: Part, remainingMs: number): void {
    const { namespaceId } = renewal.request;
    renewal.settle(at, remainingMs, (leaseId) => this.remainingMs(namespaceId, leaseId, this.#nowMs));
  }

  /** Nothing is proposed about the lease any more: what waited goes on, and it counts again. */
  #settle(slot: number): void {
    if (this.#waiting.waitsFor(slot)) {
      if ((this.#table.checkpointMs[slot] ?? 0) > 0) {
        this.#queueClear(slot);
        return;
      }
      const parts = this.#waiting.takeFor(slot);
      const now = this.#nowMs;
      if (this.#mayAcknowledge(now)) {
        const remainingMs = this.#renewSlot(slot, now);
        if (this.#wheel.lists.listOf(slot) === NONE) this.#wheel.schedule(slot);
        for (const part of parts) this.#answer(part, remainingMs);
        return;
      }
      for (const part of parts) this.#waiting.hold(part);
    }
    if (this.#wheel.lists.listOf(slot) === NONE) this.#wheel.schedule(slot);
  }

  /** Moves what is past its deadline to the ready list. @returns slots that want a checkpoint. */
  #collectDue(nowMs: number): readonly number[] {
    const table = this.#table;
    const expired: number[] = [];
    const checkpoints: number[] = [];
    this.#wheel.advance(nowMs, WHEEL_SLOTS_PER_TICK_MAX, (slot) => {
      // Comes back when its proposal is settled.
      if (table.proposal[slot] !== PROPOSAL.none) return;
      if ((table.deadlineMs[slot] ?? 0) <= nowMs) expired.push(slot);
      else if ((table.checkpointAtMs[slot] ?? 0) > nowMs) this.#wheel.schedule(slot);
      else if (checkpoints.length < CHECKPOINTS_PER_TICK_MAX) checkpoints.push(slot);
      else {
        table.checkpointAtMs[slot] = nowMs + WHEEL_TICK_MS;
        this.#wheel.schedule(slot);
      }
    });
    for (const slot of orderByDeadline(expired, table.deadlineMs)) this.#wheel.lists.pushBack(READY, slot);
    return checkpoints;
  }

  #proposeExpiries(nowMs: number): SessionWork["expire"] {
    const { expireBatchMax } = this.#options;
    const table = this.#table;
    const lists = this.#wheel.lists;
    const batches = new NamespaceBatches<LeaseId>(expireBatchMax);
    const outstandingMax = EXPIRE_BATCHES_OUTSTANDING_MAX * expireBatchMax;
    this.#allowExpiries(nowMs);
    for (let slot = lists.head(READY); slot !== NONE; slot = lists.head(READY)) {
      if (this.#expiring >= outstandingMax || this.#expiriesAllowed < 1) break;
      lists.remove(slot);
      const again = table.proposal[slot] === PROPOSAL.expireDoubtful;
      // A checkpoint being cleared for a renewal: comes back when that is settled.
      if (!again && table.proposal[slot] !== PROPOSAL.none) continue;
      if (!again && (table.deadlineMs[slot] ?? 0) > nowMs) {
        this.#wheel.schedule(slot);
        continue;
      }
      if (!again) table.proposal[slot] = PROPOSAL.expire;
      this.#expiring += 1;
      this.#expiriesAllowed -= 1;
      batches.add(table.namespaceOf(slot), this.#idOf(slot));
    }
    return batches.map((namespaceId, leaseIds) => ({ namespaceId, leaseIds }));
  }

  #allowExpiries(nowMs: number): void {
    const more = (nowMs - this.#allowedMs) * EXPIRIES_PER_MS_MAX;
    this.#expiriesAllowed = Math.min(EXPIRIES_SAVED_MAX, this.#expiriesAllowed + Math.max(0, more));
    this.#allowedMs = Math.max(this.#allowedMs, nowMs);
  }

  #proposeCheckpoints(slots: readonly number[], nowMs: number): readonly CheckpointBatch[] {
    const batches = new NamespaceBatches<CheckpointBatch["leases"][number]>(CHECKPOINT_BATCH_MAX);
    const table = this.#table;
    const add = (slot: number, proposal: number, remainingMs: number): void => {
      table.proposal[slot] = proposal;
      batches.add(table.namespaceOf(slot), { leaseId: this.#idOf(slot), remainingMs });
    };
    const clear = this.#clearQueue.splice(0, CHECKPOINTS_PER_TICK_MAX);
    for (const slot of clear) {
      if (table.has(slot) && table.proposal[slot] === PROPOSAL.clearQueued) {
        add(slot, PROPOSAL.clear, 0);
      }
    }
    for (const slot of slots) {
      table.checkpointAtMs[slot] = nowMs + this.#options.checkpointIntervalMs;
      // Rounded up: never less than promised. 0 would mean "cleared".
      const remainingMs = Math.max(1, Math.ceil((table.deadlineMs[slot] ?? 0) - nowMs));
      add(slot, PROPOSAL.checkpoint, remainingMs);
    }
    return batches.map((namespaceId, leases) => ({ namespaceId, leases }));
  }
}

/** In [0, 1), the same for a slot every time, evenly spread over neighbouring slots (golden ratio hashing). */
function fractionOf(slot: number): number {
  return (Math.imul(slot + 1, 0x9e3779b1) >>> 0) / 2 ** 32;
}
