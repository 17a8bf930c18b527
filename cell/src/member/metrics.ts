import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";
import type { Measure } from "../replica/environment.ts";
import type { Replica } from "../replica/replica.ts";
import { EventLoopDelay } from "./event-loop-delay.ts";

/** Seconds. */
const LATENCY_BUCKETS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
];

/** Of the default metrics. */
const SAMPLED_LAGS = ["min", "max", "mean", "stddev", "p50", "p90", "p99"];

export interface MetricsSources {
  readonly replica: Replica;
  readonly leases: () => number;
  readonly watches: () => number;
  readonly slowConsumerCuts: () => number;
}

/** What `/metrics` shows. Gauges are read when scraped; only latencies and counts are kept on the way. */
export class MemberMetrics {
  readonly registry: Registry;
  readonly proposalSeconds: Histogram;
  readonly readSeconds: Histogram;
  readonly fsyncSeconds: Histogram;
  readonly applySeconds: Histogram;
  readonly renewals: Counter;
  readonly expirations: Counter;
  readonly leaderChanges: Counter;
  readonly #eventLoop = new EventLoopDelay();

  constructor() {
    const registry = new Registry();
    this.registry = registry;
    collectDefaultMetrics({ register: registry });
    // They hold the sampling of Node's monitor: those of our own do not.
    for (const name of SAMPLED_LAGS) registry.removeSingleMetric(`nodejs_eventloop_lag_${name}_seconds`);
    this.proposalSeconds = histogram(
      registry,
      "lockstep_proposal_duration_seconds",
      "From a command's arrival at the leader to its outcome.",
    );
    this.readSeconds = histogram(
      registry,
      "lockstep_linearizable_read_duration_seconds",
      "From a linearizable read's arrival to its answer.",
    );
    this.fsyncSeconds = histogram(
      registry,
      "lockstep_wal_fsync_duration_seconds",
      "One group commit of the write-ahead log.",
    );
    this.applySeconds = histogram(
      registry,
      "lockstep_apply_duration_seconds",
      "Applying one slice of committed entries.",
    );
    this.renewals = counter(
      registry,
      "lockstep_lease_renewals_total",
      "Renewals of leases acknowledged by this member as leader.",
    );
    this.expirations = counter(registry, "lockstep_lease_expirations_total", "Leases that ended by expiry.");
    this.leaderChanges = counter(
      registry,
      "lockstep_leader_changes_total",
      "Changes of leader seen by this member.",
    );
    this.#observeEventLoop();
  }

  /** What the replica tells on its way. */
  measure(): Measure {
    return {
      proposal: (durationMs) => this.proposalSeconds.observe(durationMs / 1000),
      read: (durationMs) => this.readSeconds.observe(durationMs / 1000),
      apply: (durationMs) => this.applySeconds.observe(durationMs / 1000),
      renewed: (leases) => this.renewals.inc(leases),
    };
  }

  /** Registers what is read from the running member, and what it tells as it happens. */
  observe(sources: MetricsSources): void {
    const { replica } = sources;
    replica.listen({
      leaderChanged: (leader) => {
        if (leader !== undefined) this.leaderChanges.inc();
      },
      applied: ({ leaseChanges }) => {
        for (const change of leaseChanges) {
          if (change.kind === "ended" && change.cause === "lease-expired") this.expirations.inc();
        }
      },
    });
    this.#observeReplica(replica);
    const gauge = this.#gauge.bind(this);
    gauge("lockstep_leases", "Leases of the cell.", sources.leases);
    gauge("lockstep_watches", "Watches served by this member.", sources.watches);
    gauge(
      "lockstep_watch_slow_consumer_cuts_total",
      "Watches cut because they did not drain.",
      sources.slowConsumerCuts,
    );
  }

  /** The last of them, the maximum, begins anew what all of them are about. */
  #observeEventLoop(): void {
    const delay = this.#eventLoop;
    const gauge = this.#gauge.bind(this);
    const help = (what: string): string =>
      `By how much timers were late since the last scrape, ${what}; the monitor's 10 ms of sampling are taken away.`;
    gauge("lockstep_event_loop_delay_p99_seconds", help("99th percentile"), () => delay.percentile(99));
    gauge("lockstep_event_loop_delay_p9999_seconds", help("99.99th percentile"), () =>
      delay.percentile(99.99),
    );
    gauge("lockstep_event_loop_delay_max_seconds", help("maximum"), () => {
      const seconds = delay.max;
      delay.reset();
      return seconds;
    });
  }

  #observeReplica(replica: Replica): void {
    const { raft, state, wal, space } = replica.parts;
    const gauge = this.#gauge.bind(this);
    gauge("lockstep_raft_term", "The term.", () => raft.term);
    gauge("lockstep_raft_is_leader", "1 while this member leads.", () => Number(replica.isLeader));
    gauge("lockstep_raft_has_leader", "1 while this member knows a leader.", () =>
      Number(replica.leaderId !== 0),
    );
    gauge("lockstep_raft_commit_index", "The commit index.", () => raft.commit);
    gauge("lockstep_raft_applied_index", "The applied index.", () => state.appliedIndex);
    gauge("lockstep_apply_lag_entries", "Committed and not yet applied.", () =>
      Math.max(0, raft.commit - state.appliedIndex),
    );
    gauge(
      "lockstep_barrier_index",
      "The applied index that survives a power cut.",
      () => replica.logKeeper.barrierIndex,
    );
    gauge("lockstep_revision", "The cell's revision as this member sees it.", () => state.machine.revision);
    gauge(
      "lockstep_proposals_pending",
      "Commands taken in and not answered.",
      () => replica.proposals.pending,
    );
    gauge("lockstep_reads_pending", "Linearizable reads not answered.", () => replica.reads.pending);
    gauge("lockstep_database_bytes", "Bytes of the store on disk.", () => state.store.statistics().bytes);
    gauge(
      "lockstep_history_bytes",
      "Bytes of live and retained history (what the quota counts).",
      () => state.logicalBytes,
    );
    gauge("lockstep_log_bytes", "Bytes of the write-ahead log on disk.", () => wal.bytes);
    gauge("lockstep_free_bytes", "Free bytes of the data volume.", () =>
      Number.isFinite(space.freeBytes) ? space.freeBytes : -1,
    );
  }

  #gauge(name: string, help: string, read: () => number): void {
    const metric: Gauge = new Gauge({
      name,
      help,
      registers: [this.registry],
      collect: (): void => metric.set(read()),
    });
  }

  close(): void {
    this.#eventLoop.close();
    this.registry.clear();
  }
}

function histogram(registry: Registry, name: string, help: string): Histogram {
  return new Histogram({ name, help, buckets: LATENCY_BUCKETS, registers: [registry] });
}

function counter(registry: Registry, name: string, help: string): Counter {
  return new Counter({ name, help, registers: [registry] });
}
