/**
 * Leader-side deadlines of leases (architecture: sessions). Renewals are not log entries. The keeper holds every
 * lease of the cell on every member (so that a new leader starts at once) in typed arrays; only a leader runs
 * deadlines. Pure of I/O: time is passed in, what must happen is returned.
 */
import type { LeaseId } from "@lockstep/gateway/coordinator";
import type { LeaseChange, LeaseRecord, NamespaceId } from "../machine/types.ts";
import type { Term } from "../raft/types.ts";

export interface SessionOptions {
  readonly electionTimeoutMs: number;
  /** A lease unrenewed for this long gets a remaining-time checkpoint. Default 5 min. */
  readonly checkpointIntervalMs: number;
  /** Leases named by one expiry command; up to two of these are on their way at a time. Default 32. */
  readonly expireBatchMax: number;
  /** A tick later than this after the last is late: leadership must be proved before anything expires or renews. */
  readonly lateTickMs: number;
  /** Any number that clients do not know: where leases stand in memory must not follow from the ids they choose. Default 0. */
  readonly hashSeed?: number;
}

/** What the keeper wants from its host, all batched and bounded. */
export interface SessionWork {
  /** Propose these as `expire` commands, in order; the host calls `expiryFailed` if a proposal is refused or lost. */
  readonly expire: readonly { readonly namespaceId: NamespaceId; readonly leaseIds: readonly LeaseId[] }[];
  /**
   * Propose these as `checkpoint` commands (also the clearing ones, remainingMs 0), once and in order; the host calls
   * `checkpointFailed` if a proposal is refused.
   */
  readonly checkpoint: readonly {
    readonly namespaceId: NamespaceId;
    readonly leases: readonly { readonly leaseId: LeaseId; readonly remainingMs: number }[];
  }[];
  /** Leadership must be proved (a read-index round that starts now or later), then call `leadershipProved`. */
  readonly proveLeadership: boolean;
}

export interface RenewalAnswer {
  /** One for each asked lease; 0: there is no such lease. */
  readonly remainingMs: readonly number[];
}

export interface SessionKeeper {
  /** Every committed change, in apply order, on every member. A grant's deadline is counted from `nowMs`. */
  applied(change: LeaseChange, nowMs: number): void;
  /** At start and after a snapshot install, never while leading: replaces everything. */
  load(leases: Iterable<LeaseRecord>): void;
  readonly count: number;
  has(namespaceId: NamespaceId, leaseId: LeaseId): boolean;
  /**
   * A deleted namespace's leases are gone, at most `max` of them with this call; renewals that wait for them are answered
   * with 0. No {@link SessionKeeper.applied} may name them afterwards. @returns which; fewer than `max`: it has no more.
   */
  forget(namespaceId: NamespaceId, max: number): readonly LeaseId[];

  /**
   * This member leads `term` and its first own-term entry has been applied at `nowMs`. Deadline of each lease =
   * now + (checkpoint, or the full TTL) + one election timeout, spread to avoid a storm: later by up to a tenth of
   * the time counted from, and at most 1 s for every 10,000 leases.
   */
  lead(term: Term, nowMs: number): void;
  /**
   * No longer leader: all deadlines are void, and waiting renewals are answered undefined. Must be called before
   * anything that a later leader committed is `applied`.
   */
  follow(): void;

  /**
   * Renews. The answer may come later: a lease whose expiry is proposed waits for the outcome (then: 0, or, if the
   * expiry was refused, its renewal); a checkpointed lease waits until an entry has cleared the checkpoint; all wait
   * while leadership is to be proved, and unless `quorumContactMs` (when the last heartbeat round that a quorum
   * answered was *sent*) lies within one election timeout of `nowMs`.
   * `deliver` is called exactly once, perhaps during the call. It gets undefined when this member does not lead or
   * lost leadership meanwhile, or when too many renewals wait (more than twice the leases): ask again, anywhere.
   */
  renew(
    request: { readonly namespaceId: NamespaceId; readonly leaseIds: readonly LeaseId[] },
    nowMs: number,
    deliver: (answer: RenewalAnswer | undefined) => void,
  ): void;
  /**
   * Remaining time as the leader counts it, 0 to the TTL; undefined: no such lease. On another member: the checkpoint,
   * or the full TTL.
   */
  remainingMs(namespaceId: NamespaceId, leaseId: LeaseId, nowMs: number): number | undefined;

  /**
   * A fresher `quorumContactMs` between two ticks: when the newest heartbeat round that a quorum has answered was sent.
   * Renewals that waited for it are answered at once. An older value than known changes nothing.
   */
  quorumContact(contactMs: number, nowMs: number): void;

  /** Call about every 100 ms, and after every wake-up. */
  tick(nowMs: number, quorumContactMs: number): SessionWork;
  /**
   * Call when expiries were applied: those that follow, so that many leases which ended together go in small steps, one
   * after the other, and not in a large one with each tick. Nothing while a tick would not expire anything either.
   */
  expireMore(nowMs: number): SessionWork["expire"];
  /**
   * A quorum confirmed leadership in a round that was started at `startedMs`: at or after the tick that asked for it,
   * or it proves nothing and is ignored.
   */
  leadershipProved(startedMs: number, nowMs: number): void;
  /**
   * `refused`: certainly not in the log; these leases are due again, and a renewal that waits for one is granted.
   * `unknown`: perhaps in the log; due again, and waiting renewals go on waiting.
   */
  expiryFailed(namespaceId: NamespaceId, leaseIds: readonly LeaseId[], outcome: "refused" | "unknown"): void;
  /**
   * This checkpoint proposal was refused: certainly not in the log. It is proposed again later. A proposal of unknown
   * outcome needs no call: it is applied, or leadership is lost.
   */
  checkpointFailed(namespaceId: NamespaceId, leaseIds: readonly LeaseId[]): void;
}
