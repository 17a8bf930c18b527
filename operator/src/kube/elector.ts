import { createKubeClient } from "./client.ts";
import { toKubeError } from "./errors.ts";
import { Fence } from "./fence.ts";
import type { WriteGate } from "./gate.ts";
import { LEASES, microTime } from "./lease.ts";
import type { Lease, LeaseSpec } from "./lease.ts";
import { NO_METRICS } from "./metrics.ts";
import type { KubeMetrics } from "./metrics.ts";
import { Rest } from "./rest.ts";
import { sleep } from "./runtime.ts";
import type { Runtime } from "./runtime.ts";
import type { Transport } from "./transport.ts";
import type { KubeClient } from "./types.ts";

export interface LeaseDurations {
  /** Others may take the lease when they saw no renewal for so long; default 15 s. */
  readonly leaseMs: number;
  /** Without a renewal for so long, this process stops writing; default 10 s. The difference is for writes under way. */
  readonly renewDeadlineMs: number;
  /** Between attempts; default 2 s. */
  readonly retryMs: number;
}

export const LEASE_DURATIONS: LeaseDurations = { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2_000 };

export interface ElectorOptions {
  /** Renewals pass by every rate limit and gate, on connections of their own. */
  readonly transport: Transport;
  readonly fieldManager: string;
  readonly runtime: Runtime;
  readonly namespace: string;
  /** The Lease's name. */
  readonly name: string;
  /** Unique for each process, for ever: `pod name _ random UUID`. */
  readonly identity: string;
  readonly durations?: Partial<LeaseDurations>;
  /** A term begins: the gate is open. `signal` is aborted when the term ends, for whatever reason. */
  readonly onStarted: (signal: AbortSignal) => void;
  /** The term ended without {@link Elector.stop}: most programs exit here. */
  readonly onLost: () => void;
  readonly metrics?: KubeMetrics;
  /** Failed attempts and who holds the lease, for logs. */
  readonly report?: (message: string, error?: Error) => void;
}

interface Seen {
  readonly lease: Lease;
  /** This process's clock when this state of the lease was first seen. */
  readonly sinceMs: number;
}

/** The lease as this process holds it. */
interface Held {
  readonly lease: Lease;
  /** Before it was asked for: others see a renewal later than this, so they wait longer than we write. */
  readonly sent: { readonly monotonicMs: number; readonly wallMs: number };
}

/**
 * One holder at a time of a Lease. Trusts no other machine's clock: a lease is over when this process saw it unchanged for
 * its whole duration. A process that could not renew stops itself, well before others may take over.
 */
export class Elector {
  /** Every write of this process passes it; closed unless this process holds the lease. */
  readonly gate: WriteGate;
  private readonly options: ElectorOptions;
  private readonly client: KubeClient;
  private readonly durations: LeaseDurations;
  private readonly metrics: KubeMetrics;
  private readonly fence: Fence;
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  private seen: Seen | undefined;
  private term: AbortController | undefined;
  private heldState: Lease | undefined;
  private reported: string | undefined;

  constructor(options: ElectorOptions) {
    const durations = { ...LEASE_DURATIONS, ...options.durations };
    const { leaseMs, renewDeadlineMs, retryMs } = durations;
    if (!(leaseMs > renewDeadlineMs && renewDeadlineMs > retryMs * 1.2 && retryMs > 0)) {
      throw new TypeError("lease > renew deadline > 1.2 retry > 0");
    }
    if (leaseMs % 1000 !== 0) throw new TypeError("a lease lasts whole seconds");
    this.options = options;
    this.durations = durations;
    this.metrics = options.metrics ?? NO_METRICS;
    const { transport, runtime, fieldManager } = options;
    // Two attempts fit into the deadline, one of them after a connection that hung.
    const timeoutMs = Math.floor((renewDeadlineMs - retryMs) / 2);
    const rest = new Rest({ transport, runtime, lane: "urgent", timeoutMs, metrics: this.metrics });
    this.client = createKubeClient({ rest, fieldManager });
    this.fence = new Fence(options.runtime, () => this.lost());
    this.gate = this.fence;
  }

  /** True while this process may write. */
  get leading(): boolean {
    return this.fence.holds;
  }

  /** Who holds the lease, as last seen; undefined: nobody, or not seen yet. */
  get holder(): string | undefined {
    return holderOf(this.seen?.lease);
  }

  start(): void {
    this.running ??= this.run();
  }

  /**
   * Ends the term, waits for the writes under way and gives the lease back, so that another process need not wait. When
   * writes are still under way at the end of the term, the lease is left to run out.
   */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.endTerm();
    const clean = await this.fence.close();
    await this.running;
    this.metrics.leading(this.options.name, false);
    if (clean) await this.release();
  }

  private async run(): Promise<void> {
    const { runtime } = this.options;
    const { retryMs } = this.durations;
    while (!this.stopping.signal.aborted) {
      await this.attempt();
      // Electors that failed together must not meet again and again.
      await sleep(runtime, retryMs * (1 + 0.2 * runtime.random()), this.stopping.signal);
    }
  }

  private async attempt(): Promise<void> {
    const { name } = this.options;
    this.fence.expire();
    try {
      const held = await this.renewOrTake();
      this.heldState = held?.lease;
      if (this.stopping.signal.aborted) return;
      if (held === undefined) {
        this.metrics.leaseRenewed(name, "held-by-other");
        return;
      }
      this.metrics.leaseRenewed(name, "ok");
      this.fence.expire();
      this.fence.extend(held.sent, this.durations.renewDeadlineMs);
      if (this.fence.holds) this.startTerm();
      else this.fence.expire();
    } catch (thrown) {
      const error = toKubeError(thrown, `lease ${name}`);
      this.metrics.leaseRenewed(name, error.reason);
      this.say(`lease ${name}: attempt failed: ${error.message}`, error);
    }
  }

  /** @returns undefined: another holds it */
  private async renewOrTake(): Promise<Held | undefined> {
    const { namespace, name, identity } = this.options;
    // A renewal needs no look: if anybody else touched the lease, it is refused.
    if (this.heldState !== undefined && this.fence.holds) {
      const held = this.heldState;
      this.heldState = undefined;
      return await this.write(held);
    }
    this.heldState = undefined;
    const lease = await this.client.get(LEASES, { namespace, name });
    if (lease === undefined) {
      const sent = this.now();
      return { sent, lease: await this.client.create(LEASES, this.newLease()) };
    }
    this.observe(lease);
    const holder = holderOf(lease);
    // Somebody took it by hand: the right is theirs from now on, whatever our time says.
    if (holder !== identity) this.fence.revoke();
    if (holder !== undefined && holder !== identity && !this.isOver(lease)) {
      this.say(`lease ${name}: held by ${holder}`);
      return undefined;
    }
    return await this.write(lease);
  }

  private observe(lease: Lease): void {
    const same =
      this.seen?.lease.metadata.uid === lease.metadata.uid &&
      this.seen?.lease.metadata.resourceVersion === lease.metadata.resourceVersion;
    if (!same) this.seen = { lease, sinceMs: this.options.runtime.monotonicMs() };
  }

  private isOver(lease: Lease): boolean {
    if (this.seen === undefined) return false;
    // The holder's own duration, if it is longer than ours: it stops by that one.
    const theirMs = (lease.spec?.leaseDurationSeconds ?? 0) * 1000;
    return (
      this.options.runtime.monotonicMs() - this.seen.sinceMs >= Math.max(theirMs, this.durations.leaseMs)
    );
  }

  /** Takes or renews it, if it is still as `state` says. */
  private async write(state: Lease): Promise<Held> {
    const { namespace, name, identity, runtime } = this.options;
    const now = microTime(runtime.wallMs());
    const mine = state.spec?.holderIdentity === identity;
    const spec: LeaseSpec = {
      holderIdentity: identity,
      leaseDurationSeconds: this.durations.leaseMs / 1000,
      renewTime: now,
      ...(mine ? {} : { acquireTime: now, leaseTransitions: (state.spec?.leaseTransitions ?? 0) + 1 }),
    };
    const sent = this.now();
    const lease = await this.client.mergePatch(LEASES, { namespace, name }, { spec }, versionOf(state));
    this.observe(lease);
    return { sent, lease };
  }

  private now(): Held["sent"] {
    const { runtime } = this.options;
    return { monotonicMs: runtime.monotonicMs(), wallMs: runtime.wallMs() };
  }

  private newLease(): Lease {
    const { namespace, name, identity, runtime } = this.options;
    const now = microTime(runtime.wallMs());
    return {
      apiVersion: LEASES.apiVersion,
      kind: LEASES.kind,
      metadata: { namespace, name },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: this.durations.leaseMs / 1000,
        acquireTime: now,
        renewTime: now,
        leaseTransitions: 0,
      },
    };
  }

  private async release(): Promise<void> {
    const { namespace, name, identity, runtime } = this.options;
    const spec = { holderIdentity: "", leaseDurationSeconds: 1, renewTime: microTime(runtime.wallMs()) };
    try {
      const held = this.heldState ?? (await this.client.get(LEASES, { namespace, name }));
      if (held?.spec?.holderIdentity !== identity) return;
      await this.client.mergePatch(LEASES, { namespace, name }, { spec }, versionOf(held));
    } catch (thrown) {
      this.say(`lease ${name}: not given back; it runs out by itself`, toKubeError(thrown, name));
    }
  }

  private startTerm(): void {
    if (this.term !== undefined) return;
    this.term = new AbortController();
    this.metrics.leading(this.options.name, true);
    this.say(`lease ${this.options.name}: taken`);
    this.options.onStarted(this.term.signal);
  }

  private endTerm(): void {
    this.term?.abort(new Error("the term is over"));
    this.term = undefined;
  }

  private lost(): void {
    if (this.term === undefined) return;
    this.endTerm();
    this.metrics.leading(this.options.name, false);
    this.say(`lease ${this.options.name}: lost`);
    this.options.onLost();
  }

  /** Repetitions are left out: attempts come every two seconds. */
  private say(message: string, error?: Error): void {
    if (message === this.reported) return;
    this.reported = message;
    this.options.report?.(message, error);
  }
}

function holderOf(lease: Lease | undefined): string | undefined {
  const holder = lease?.spec?.holderIdentity;
  return holder === "" ? undefined : holder;
}

function versionOf(lease: Lease): { resourceVersion?: string } {
  const { resourceVersion } = lease.metadata;
  return resourceVersion === undefined ? {} : { resourceVersion };
}
