import type { Runtime } from "../runtime.ts";
import type { Cause } from "../types.ts";

/** Why a lease is kept alive no more. */
export interface LeaseEndReason {
  readonly kind: "ended" | "local-deadline" | "closed";
  readonly cause: Cause;
  readonly revision: number;
}

/** The clock reading that a deadline counts from. */
export interface SendTime {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

/**
 * A lease that this client keeps alive. The deadline counts from when the last acknowledged renewal was *sent*: the
 * cell counts from when it arrived, which is later, so this side always gives up first.
 */
export class HeldLease {
  readonly leaseId: string;
  readonly ttlMs: number;
  readonly marginMs: number;
  /** Told once. */
  readonly onEnd: (reason: LeaseEndReason) => void;
  /** Asked before each renewal. */
  readonly mayRenew: () => boolean;
  /** Told of each acknowledged renewal. */
  readonly onRenewed: () => void;
  /** In a thread of its own, renewals stop when the main loop has not turned for longer than this. Default: one TTL. */
  readonly stallMsMax: number;
  /** Where somebody else renews the lease: how long it certainly lasts. */
  reading: (() => number) | undefined = undefined;
  lastSent: SendTime;
  /** Promised at the last acknowledgement. */
  remainingMs: number;
  renewAt = 0;
  over = false;
  readonly #runtime: Runtime;

  constructor(
    runtime: Runtime,
    fields: Pick<HeldLease, "leaseId" | "ttlMs" | "marginMs" | "onEnd"> &
      Partial<Pick<HeldLease, "mayRenew" | "onRenewed" | "stallMsMax">> & { readonly sent: SendTime },
  ) {
    this.#runtime = runtime;
    this.leaseId = fields.leaseId;
    this.ttlMs = fields.ttlMs;
    this.marginMs = fields.marginMs;
    this.onEnd = fields.onEnd;
    this.mayRenew = fields.mayRenew ?? always;
    this.onRenewed = fields.onRenewed ?? nothing;
    this.stallMsMax = fields.stallMsMax ?? fields.ttlMs;
    this.lastSent = fields.sent;
    this.remainingMs = fields.ttlMs;
  }

  /**
   * Milliseconds that are certainly left, read now. The larger of the two clocks' elapsed times counts: the
   * monotonic one stands still in a suspended machine, and a wall clock that jumps forward only makes us cautious.
   */
  leftMs(): number {
    if (this.over) return 0;
    if (this.reading !== undefined) return this.reading();
    const monotonic = this.#runtime.now() - this.lastSent.monotonicMs;
    const wall = this.#runtime.wallNow() - this.lastSent.wallMs;
    return Math.max(0, this.remainingMs - this.marginMs - Math.max(monotonic, wall));
  }
}

const always = (): boolean => true;
const nothing = (): void => undefined;

/** Who keeps leases alive. */
export interface LeaseBook {
  readonly size: number;
  /** Renews it from now on. */
  hold(lease: HeldLease): void;
  /** Stops renewing without a word to the cell. */
  drop(lease: HeldLease): void;
  /** The client is closed. */
  endAll(): void;
}
