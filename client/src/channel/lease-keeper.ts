import type * as coordination from "@lockstep/proto/coordination";
import { Backoff } from "../backoff.ts";
import type { Runtime } from "../runtime.ts";
import { causeFromWire } from "../wire/mapping.ts";
import type { HeldLease, LeaseBook, LeaseEndReason, SendTime } from "./leases.ts";

const LEASES_PER_FRAME_MAX = 10_000;
/** Renewals that fall due within this part of a TTL leave together. */
const COALESCE_FRACTION = 1 / 20;
/** An answer that does not come within this part of a TTL is asked for again. */
const RETRY_FRACTION = 1 / 6;
/** Suspend and clock jumps are noticed at the latest after this long. */
const WATCHDOG_MS = 1_000;

interface SentRenewal {
  readonly sent: SendTime;
  readonly leases: readonly HeldLease[];
}

export interface LeaseHost {
  isConnected(): boolean;
  /** The member cannot renew now: another one may lead. */
  suspect(): void;
  flushSoon(): void;
}

/** Renews all leases of a channel, many in one frame, and tells each its end: the cell's word or the local deadline. */
export class LeaseKeeper implements LeaseBook {
  readonly #runtime: Runtime;
  readonly #host: LeaseHost;
  readonly #leases = new Map<string, HeldLease>();
  readonly #sent = new Map<number, SentRenewal>();
  readonly #backoff: Backoff;
  #outbox: coordination.Renew | undefined;
  #nextId = 1;
  #connectedAt = -Infinity;
  #cancelTimer: (() => void) | undefined;

  constructor(runtime: Runtime, host: LeaseHost) {
    this.#runtime = runtime;
    this.#host = host;
    this.#backoff = new Backoff(runtime);
  }

  get size(): number {
    return this.#leases.size;
  }

  hold(lease: HeldLease): void {
    this.#leases.set(lease.leaseId, lease);
    // Granted over a stream that was replaced meanwhile: the member of the new one tells the lease's end only to
    // whoever renewed it there.
    const elsewhere = lease.lastSent.monotonicMs <= this.#connectedAt;
    lease.renewAt = elsewhere ? this.#runtime.now() : lease.lastSent.monotonicMs + this.#interval(lease);
    this.#arm();
  }

  /** Stops renewing without a word to the cell. */
  drop(lease: HeldLease): void {
    lease.over = true;
    if (this.#leases.get(lease.leaseId) === lease) this.#leases.delete(lease.leaseId);
    if (this.#leases.size === 0) {
      this.#sent.clear();
      this.#cancelTimer?.();
      this.#cancelTimer = undefined;
    }
  }

  /** A new stream: what the old one did not acknowledge is asked again at once. */
  connected(): void {
    this.#sent.clear();
    this.#outbox = undefined;
    const now = this.#runtime.now();
    this.#connectedAt = now;
    for (const lease of this.#leases.values()) lease.renewAt = now;
    if (this.#leases.size > 0) this.#tick();
  }

  /** Default: the client is closed. */
  endAll(reason: LeaseEndReason = { kind: "closed", cause: "client", revision: 0 }): void {
    for (const lease of [...this.#leases.values()]) this.#end(lease, reason);
  }

  /** The newest renewal has no answer yet. */
  get awaitsAck(): boolean {
    return this.#sent.has(this.#nextId - 1);
  }

  takeOutbox(): coordination.Renew | undefined {
    const outbox = this.#outbox;
    this.#outbox = undefined;
    return outbox;
  }

  onAck(ack: coordination.RenewAck): void {
    const renewal = this.#sent.get(ack.id);
    if (renewal === undefined) return;
    this.#sent.delete(ack.id);
    if (ack.failure?.code === "namespace-not-found") {
      // Deleted with all that was in it, while the end of the leases was told to a stream that this one replaced.
      for (const lease of renewal.leases) {
        this.#end(lease, { kind: "ended", cause: "forced", revision: ack.revision });
      }
      return;
    }
    if (ack.failure !== undefined) {
      // The promise of the last acknowledged renewal still stands; ask again while it lasts.
      const at = this.#runtime.now() + this.#backoff.nextMs(ack.failure.retryAfterMs);
      for (const lease of renewal.leases) lease.renewAt = Math.min(lease.renewAt, at);
      this.#host.suspect();
      this.#arm();
      return;
    }
    this.#backoff.reset();
    renewal.leases.forEach((lease, index) => {
      // Answers come in the order in which the cell could give them: a later question may have been answered before.
      if (lease.over || renewal.sent.monotonicMs < lease.lastSent.monotonicMs) return;
      const remainingMs = ack.remainingMs[index] ?? 0;
      if (remainingMs <= 0) {
        this.#end(lease, { kind: "ended", cause: "unknown", revision: ack.revision });
        return;
      }
      lease.lastSent = renewal.sent;
      lease.remainingMs = Math.min(remainingMs, lease.ttlMs);
      lease.renewAt = renewal.sent.monotonicMs + this.#interval(lease);
      lease.onRenewed();
    });
    this.#arm();
  }

  onLeaseEnded(ended: coordination.LeaseEnded): void {
    const lease = this.#leases.get(ended.leaseId);
    if (lease === undefined) return;
    this.#end(lease, { kind: "ended", cause: causeFromWire(ended.cause), revision: ended.revision });
  }

  #end(lease: HeldLease, reason: LeaseEndReason): void {
    if (lease.over) return;
    this.drop(lease);
    lease.onEnd(reason);
  }

  /**
   * A third of the promised time, and no more than half of what this side counts on; less up to a tenth of it, so that
   * many clients do not fall in step.
   */
  #interval({ remainingMs, marginMs }: HeldLease): number {
    return Math.min(remainingMs / 3, (remainingMs - marginMs) / 2) * (1 - this.#runtime.random() / 10);
  }

  #tick(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (const lease of [...this.#leases.values()]) {
      if (lease.leftMs() <= 0) this.#end(lease, { kind: "local-deadline", cause: "unknown", revision: 0 });
    }
    this.#sendDue();
    this.#arm();
  }

  #sendDue(): void {
    if (!this.#host.isConnected() || this.#outbox !== undefined) return;
    const now = this.#runtime.now();
    let due = false;
    for (const lease of this.#leases.values()) {
      if (lease.renewAt > now) continue;
      if (lease.mayRenew()) due = true;
      else lease.renewAt = now + lease.ttlMs * COALESCE_FRACTION;
    }
    if (!due) return;
    const leases: HeldLease[] = [];
    for (const lease of this.#leases.values()) {
      if (lease.renewAt > now + lease.ttlMs * COALESCE_FRACTION || !lease.mayRenew()) continue;
      if (leases.length >= LEASES_PER_FRAME_MAX) break;
      lease.renewAt = now + lease.ttlMs * RETRY_FRACTION;
      leases.push(lease);
    }
    const id = this.#nextId++;
    // Read before the frame is made: earlier than the true send, so the deadline errs on the safe side.
    this.#sent.set(id, { sent: { monotonicMs: now, wallMs: this.#runtime.wallNow() }, leases });
    // Unanswered renewals of a silent stream pile up slowly; only the newest matter.
    if (this.#sent.size > 64) this.#sent.delete(this.#sent.keys().next().value ?? 0);
    this.#outbox = { id, leaseIds: leases.map((lease) => lease.leaseId) };
    this.#host.flushSoon();
  }

  /** One timer for all: the next renewal, the next deadline, or the watchdog. */
  #arm(): void {
    if (this.#leases.size === 0) return;
    const now = this.#runtime.now();
    let delayMs = WATCHDOG_MS;
    for (const lease of this.#leases.values()) {
      delayMs = Math.min(delayMs, lease.leftMs());
      if (this.#host.isConnected()) delayMs = Math.min(delayMs, lease.renewAt - now);
    }
    this.#cancelTimer?.();
    this.#cancelTimer = this.#runtime.schedule(() => this.#tick(), Math.max(1, delayMs));
  }
}
