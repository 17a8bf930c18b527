import { Backoff } from "../backoff.ts";
import { LockstepError } from "../errors.ts";
import type { Runtime } from "../runtime.ts";
import type { CellInfo } from "../types.ts";
import { Link } from "./link.ts";
import type { Transport } from "./transport.ts";

/** A member that does not greet within this long is given up. */
const GREETING_MS_MAX = 3_000;
/**
 * While one dial hangs, the next endpoint is tried after this long. Not sooner: when a member takes thousands of clients
 * with it, the others are slow for a while, and each impatient client costs them one more stream.
 */
const HEDGE_MS = 1_000;
/** A replaced stream may finish its answers for this long, and for as long again while they move. */
const DRAIN_MS_MAX = 10_000;
const LEARNED_ENDPOINTS_MAX = 16;

export interface ConnectorEvents {
  frame(link: Link, frame: Buffer): void;
  drained(link: Link): void;
  /** From now on requests go here. */
  activated(link: Link): void;
  /** What was in flight on it is to be sent again. */
  lost(link: Link, reason: Error | undefined): void;
  /** Nobody could be reached in one whole round. */
  unreachable(error: LockstepError): void;
  /** There will never be any stream again. */
  gone(error: LockstepError): void;
  /** There is a member to talk to, or there is none any more. */
  connection(connected: boolean): void;
}

/** Where a channel's streams come from. */
export interface LinkSource {
  /** Requests go here. */
  readonly active: Link | undefined;
  /** There is a member to talk to. */
  readonly connected: boolean;
  start(): void;
  close(): void;
  noteInfo(link: Link, info: CellInfo): void;
  noteFrame(link: Link): void;
  noteIdle(link: Link): void;
  suspect(): void;
  fail(link: Link, reason: Error): void;
}

/**
 * Keeps one active stream, to the leader when it is known and reachable, else to any member. Endpoints are tried in
 * turn (hedged), with bounded, jittered backoff between rounds; members' hints about the leader are followed by
 * dialling it beside the active stream and moving over once it has greeted, so nothing waits for the move.
 */
export class Connector implements LinkSource {
  readonly #transport: Transport;
  readonly #runtime: Runtime;
  readonly #events: ConnectorEvents;
  readonly #seeds: readonly string[];
  readonly #learned: string[] = [];
  readonly #links = new Set<Link>();
  readonly #backoff: Backoff;
  readonly #followBackoff: Backoff;
  #active: Link | undefined;
  #leader: CellInfo["leader"];
  #leaderTerm = 0;
  #round: string[] = [];
  #failures = new Map<string, string>();
  #cancelRound: (() => void) | undefined;
  #cancelFollow: (() => void) | undefined;
  #closed = false;

  constructor(
    options: { transport: Transport; runtime: Runtime; endpoints: readonly string[] },
    events: ConnectorEvents,
  ) {
    this.#transport = options.transport;
    this.#runtime = options.runtime;
    this.#seeds = options.endpoints;
    this.#events = events;
    this.#backoff = new Backoff(options.runtime);
    this.#followBackoff = new Backoff(options.runtime);
  }

  get active(): Link | undefined {
    return this.#active;
  }

  get connected(): boolean {
    return this.#active !== undefined;
  }

  start(): void {
    this.#startRound(undefined);
  }

  close(): void {
    this.#closed = true;
    this.#cancelRound?.();
    this.#cancelFollow?.();
    for (const link of this.#links) this.#drop(link);
    this.#active = undefined;
    this.#transport.close();
  }

  /** A member said who leads and who else there is. */
  noteInfo(link: Link, info: CellInfo): void {
    link.info = info;
    for (const address of info.clientAddresses) this.#learn(address);
    const { leader } = info;
    if (leader === undefined) {
      // Older news than ours does not unseat a leader of a later term.
      if (info.term >= this.#leaderTerm) this.#leader = undefined;
    } else if (info.term >= this.#leaderTerm) {
      this.#leaderTerm = info.term;
      this.#leader = leader;
      this.#learn(leader.clientAddress);
    }
    if (link === this.#active) this.#followLeader();
  }

  /** Called after every frame; the first one is the greeting. */
  noteFrame(link: Link): void {
    link.heard(this.#runtime.now());
    if (link.ready || link.over) return;
    link.ready = true;
    link.cancelTimer?.();
    link.cancelTimer = undefined;
    this.#failures.clear();
    if (this.#active !== undefined && !this.#better(link, this.#active)) {
      this.#drop(link);
      this.#followLeader();
      return;
    }
    this.#activate(link);
  }

  /** Requests wait and the active member has been silent: ask the others whether somebody else leads by now. */
  suspect(): void {
    if (this.#cancelRound !== undefined || this.#closed || this.#active === undefined) return;
    this.#active.suspected = true;
    this.#startRound(this.#active.address);
  }

  /** The last answer on a replaced stream has come. */
  noteIdle(link: Link): void {
    if (link !== this.#active && link.ready) this.#drop(link);
  }

  #better(candidate: Link, active: Link): boolean {
    if (active.leaving) return true;
    // The member is there and its old stream says nothing, not even by now: that one is dead.
    if (candidate.info?.memberId === active.info?.memberId) {
      return active.suspected && !active.progressed(this.#runtime.now());
    }
    const leaderId = this.#leader?.memberId;
    if (leaderId === undefined) return false;
    return candidate.info?.memberId === leaderId && active.info?.memberId !== leaderId;
  }

  #activate(link: Link): void {
    const previous = this.#active;
    this.#active = link;
    this.#cancelRound?.();
    this.#cancelRound = undefined;
    this.#round = [];
    this.#backoff.reset();
    for (const other of this.#links) {
      if (other !== link && !other.ready) this.#drop(other);
    }
    this.#events.activated(link);
    if (previous === undefined) this.#events.connection(true);
    else this.#drain(previous);
    this.#followLeader();
  }

  /** Lets a replaced stream finish what it holds; what is still open at the end is sent again elsewhere. */
  #drain(link: Link): void {
    if (link.inFlight === 0) {
      this.#drop(link);
      return;
    }
    if (link.suspected) {
      this.#drop(link);
      this.#events.lost(link, undefined);
      return;
    }
    link.progressed(this.#runtime.now());
    link.cancelTimer = this.#runtime.schedule(() => {
      // On a slow line one request may be under way for longer: sent again, it would take as long again.
      if (link.progressed(this.#runtime.now())) {
        this.#drain(link);
        return;
      }
      this.#drop(link);
      this.#events.lost(link, undefined);
    }, DRAIN_MS_MAX);
  }

  /** Its peer closes it before long: move over while it still works, to whoever greets. */
  #leave(link: Link): void {
    if (link.over || link.leaving) return;
    link.leaving = true;
    if (link !== this.#active || this.#closed) return;
    this.#cancelRound?.();
    this.#startRound(undefined);
  }

  #followLeader(): void {
    const leader = this.#leader;
    const active = this.#active;
    if (leader === undefined || active === undefined || this.#closed) return;
    if (active.info?.memberId === leader.memberId) {
      this.#followBackoff.reset();
      return;
    }
    if (leader.clientAddress === "" || this.#cancelFollow !== undefined) return;
    // The first time at once; afterwards (it did not greet, or hints disagree) at a growing distance.
    const delayMs = this.#followBackoff.nextMs();
    this.#cancelFollow = this.#runtime.schedule(() => {
      this.#cancelFollow = undefined;
      const current = this.#leader;
      if (current === undefined || this.#active?.info?.memberId === current.memberId) return;
      this.#dial(current.clientAddress);
    }, delayMs);
  }

  #learn(address: string): void {
    if (address === "" || this.#seeds.includes(address) || this.#learned.includes(address)) return;
    this.#learned.unshift(address);
    if (this.#learned.length > LEARNED_ENDPOINTS_MAX) this.#learned.pop();
  }

  /** Tries every endpoint once: the leader's first, the others in random order, `last` at the end. */
  #startRound(last: string | undefined): void {
    const others = [...this.#seeds, ...this.#learned];
    for (let i = others.length - 1; i > 0; i--) {
      const j = Math.floor(this.#runtime.random() * (i + 1));
      const moved = others[i];
      const other = others[j];
      if (moved === undefined || other === undefined) continue;
      others[i] = other;
      others[j] = moved;
    }
    const leaderAddress = this.#leader?.clientAddress;
    const rank = (address: string): number => (address === last ? 2 : address === leaderAddress ? 0 : 1);
    others.sort((a, b) => rank(a) - rank(b));
    this.#round = [...new Set(others)];
    this.#nextInRound();
  }

  #nextInRound(): void {
    this.#cancelRound?.();
    this.#cancelRound = undefined;
    if (this.#closed) return;
    const address = this.#round.shift();
    if (address === undefined) {
      this.#endRound();
      return;
    }
    if (!this.#dialling(address)) this.#dial(address);
    this.#cancelRound = this.#runtime.schedule(() => this.#nextInRound(), HEDGE_MS);
  }

  /** All were tried: wait for those that still hang, then begin again after the backoff. */
  #endRound(): void {
    if (this.#active?.leaving === true) {
      this.#roundAgain();
      return;
    }
    if (this.#active !== undefined) return;
    for (const link of this.#links) if (!link.ready) return;
    const reasons = [...this.#failures].map(([address, reason]) => `${address}: ${reason}`).join("; ");
    this.#events.unreachable(
      new LockstepError("unavailable", "not-applied", `no member could be reached (${reasons})`),
    );
    this.#roundAgain();
  }

  #roundAgain(): void {
    this.#cancelRound = this.#runtime.schedule(() => {
      this.#cancelRound = undefined;
      this.#startRound(undefined);
    }, this.#backoff.nextMs());
  }

  #dialling(address: string): boolean {
    for (const link of this.#links) {
      if (link.address === address && !link.over && !link.suspected && !link.leaving) return true;
    }
    return false;
  }

  #dial(address: string): void {
    if (this.#closed) return;
    const link = new Link(address);
    this.#links.add(link);
    link.cancelTimer = this.#runtime.schedule(() => {
      this.#drop(link);
      this.#ended(link, new Error(`no greeting within ${GREETING_MS_MAX} ms`));
    }, GREETING_MS_MAX);
    link.transport = this.#transport.open(address, {
      frame: (frame) => this.#events.frame(link, frame),
      drained: () => this.#events.drained(link),
      leaving: () => this.#leave(link),
      closed: (reason) => {
        this.#forget(link);
        this.#ended(link, reason);
      },
    });
  }

  #ended(link: Link, reason: Error | undefined): void {
    if (this.#closed) return;
    if (link === this.#active) {
      this.#active = undefined;
      this.#events.lost(link, reason);
      this.#events.connection(false);
      this.#cancelRound?.();
      this.#startRound(link.address);
      return;
    }
    if (link.ready) {
      this.#events.lost(link, reason);
      return;
    }
    this.#failures.set(link.address, reason?.message ?? "closed the stream without a greeting");
    // Only the round's own dials move it on; a failed dial to a hinted leader is tried again by the hint.
    if (this.#active === undefined) this.#nextInRound();
    else this.#followLeader();
  }

  #forget(link: Link): void {
    link.over = true;
    link.cancelTimer?.();
    link.cancelTimer = undefined;
    this.#links.delete(link);
  }

  #drop(link: Link): void {
    if (link.over) return;
    this.#forget(link);
    link.transport?.destroy();
  }

  /** Gives up on a stream whose answers cannot be read. */
  fail(link: Link, reason: Error): void {
    if (link.over) return;
    this.#drop(link);
    this.#ended(link, reason);
  }
}
