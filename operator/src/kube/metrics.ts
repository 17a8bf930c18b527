import { Counter, Gauge, Histogram } from "prom-client";
import type { Registry } from "prom-client";

export interface RequestSample {
  readonly verb: string;
  /** Plural of the kind. */
  readonly resource: string;
  /** HTTP status, or the KubeError's reason when there was no answer. */
  readonly outcome: string;
  readonly durationMs: number;
}

/** Where this runtime tells what happens. Every method is cheap and never throws. */
export interface KubeMetrics {
  request(sample: RequestSample): void;
  /** A call waited for its turn in the client's own rate limit. */
  throttled(waitMs: number): void;
  /** `outcome`: ok, stale (from a lagging apiserver, refused) or a KubeError's reason. */
  listed(resource: string, outcome: string, durationMs: number): void;
  /** `why`: ended (by the server, on time), idle, relist, or a KubeError's reason. */
  watchEnded(resource: string, why: string): void;
  /** `type`: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, stale (older than what was seen) or malformed. */
  watchEvent(resource: string, type: string): void;
  handlerFailed(resource: string): void;
  /** The age of an informer's knowledge is read when somebody asks for it. @returns takes it off again */
  watchAge(resource: string, ageMs: () => number): () => void;
  queueDepth(queue: string, keys: number): void;
  /** How long a key waited since it was due. */
  queueWaited(queue: string, waitMs: number): void;
  queueWorked(queue: string, outcome: "ok" | "failed", durationMs: number): void;
  queueRetried(queue: string): void;
  /** A key did not fit. */
  queueDropped(queue: string): void;
  leading(lease: string, leads: boolean): void;
  leaseRenewed(lease: string, outcome: string): void;
  /** `outcome`: created, counted, dropped or failed. */
  event(outcome: string): void;
}

const nothing = (): void => undefined;

export const NO_METRICS: KubeMetrics = {
  request: nothing,
  throttled: nothing,
  listed: nothing,
  watchEnded: nothing,
  watchEvent: nothing,
  handlerFailed: nothing,
  watchAge: () => nothing,
  queueDepth: nothing,
  queueWaited: nothing,
  queueWorked: nothing,
  queueRetried: nothing,
  queueDropped: nothing,
  leading: nothing,
  leaseRenewed: nothing,
  event: nothing,
};

const CALL_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const WORK_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

interface Factory {
  counter<L extends string>(name: string, help: string, labelNames: readonly L[]): Counter<L>;
  gauge<L extends string>(name: string, help: string, labelNames: readonly L[]): Gauge<L>;
  histogram<L extends string>(
    what: { name: string; help: string; buckets: number[] },
    labelNames: readonly L[],
  ): Histogram<L>;
}

/** The same, in a registry. `prefix` starts every name, as in `operator_`. */
export function createPrometheusMetrics(registry: Registry, prefix: string): KubeMetrics {
  const registers = [registry];
  const make: Factory = {
    counter: (name, help, labelNames) => new Counter({ name: prefix + name, help, labelNames, registers }),
    gauge: (name, help, labelNames) => new Gauge({ name: prefix + name, help, labelNames, registers }),
    histogram: ({ name, help, buckets }, labelNames) =>
      new Histogram({ name: prefix + name, help, buckets, labelNames, registers }),
  };
  return {
    ...apiMetrics(make),
    ...informerMetrics(make, registry, prefix),
    ...queueMetrics(make),
    ...leaseMetrics(make),
  };
}

type ApiMetrics = Pick<KubeMetrics, "request" | "throttled">;

function apiMetrics(make: Factory): ApiMetrics {
  const requests = make.histogram(
    {
      name: "api_request_seconds",
      help: "Requests to the apiserver, to the last byte",
      buckets: CALL_SECONDS,
    },
    ["verb", "resource", "outcome"],
  );
  const throttled = make.histogram(
    {
      name: "api_throttle_wait_seconds",
      help: "Waits for the client's own rate limit",
      buckets: CALL_SECONDS,
    },
    [],
  );
  return {
    request: ({ verb, resource, outcome, durationMs }) =>
      requests.observe({ verb, resource, outcome }, durationMs / 1000),
    throttled: (waitMs) => throttled.observe(waitMs / 1000),
  };
}

type InformerMetrics = Pick<
  KubeMetrics,
  "listed" | "watchEnded" | "watchEvent" | "handlerFailed" | "watchAge"
>;

function informerMetrics(make: Factory, registry: Registry, prefix: string): InformerMetrics {
  const lists = make.histogram(
    { name: "informer_list_seconds", help: "Whole lists of a kind, all pages", buckets: WORK_SECONDS },
    ["resource", "outcome"],
  );
  const ends = make.counter("informer_watch_ends_total", "Watches that ended, by why", ["resource", "why"]);
  const events = make.counter("informer_events_total", "Lines of watches", ["resource", "type"]);
  const failures = make.counter("informer_handler_failures_total", "Handlers that threw", ["resource"]);
  const ages = new Map<string, Set<() => number>>();
  new Gauge({
    name: `${prefix}informer_age_seconds`,
    help: "Time since the apiserver last said anything on a watch; the oldest of a kind",
    labelNames: ["resource"],
    registers: [registry],
    collect() {
      this.reset();
      for (const [resource, all] of ages) {
        this.set({ resource }, Math.max(0, ...[...all].map((age) => age() / 1000)));
      }
    },
  });
  return {
    listed: (resource, outcome, durationMs) => lists.observe({ resource, outcome }, durationMs / 1000),
    watchEnded: (resource, why) => ends.inc({ resource, why }),
    watchEvent: (resource, type) => events.inc({ resource, type }),
    handlerFailed: (resource) => failures.inc({ resource }),
    watchAge(resource, ageMs) {
      const all = ages.get(resource) ?? new Set();
      ages.set(resource, all.add(ageMs));
      return () => {
        all.delete(ageMs);
        if (all.size === 0) ages.delete(resource);
      };
    },
  };
}

type QueueMetrics = Pick<
  KubeMetrics,
  "queueDepth" | "queueWaited" | "queueWorked" | "queueRetried" | "queueDropped"
>;

function queueMetrics(make: Factory): QueueMetrics {
  const depth = make.gauge("queue_keys", "Keys that are due and wait", ["queue"]);
  const waits = make.histogram(
    { name: "queue_wait_seconds", help: "From due to begun", buckets: WORK_SECONDS },
    ["queue"],
  );
  const work = make.histogram({ name: "queue_work_seconds", help: "Passes", buckets: WORK_SECONDS }, [
    "queue",
    "outcome",
  ]);
  const retries = make.counter("queue_retries_total", "Passes that will be tried again", ["queue"]);
  const dropped = make.counter("queue_dropped_total", "Keys that did not fit", ["queue"]);
  return {
    queueDepth: (queue, keys) => depth.set({ queue }, keys),
    queueWaited: (queue, waitMs) => waits.observe({ queue }, waitMs / 1000),
    queueWorked: (queue, outcome, durationMs) => work.observe({ queue, outcome }, durationMs / 1000),
    queueRetried: (queue) => retries.inc({ queue }),
    queueDropped: (queue) => dropped.inc({ queue }),
  };
}

type LeaseMetrics = Pick<KubeMetrics, "leading" | "leaseRenewed" | "event">;

function leaseMetrics(make: Factory): LeaseMetrics {
  const leads = make.gauge("leading", "1 while this process holds the lease", ["lease"]);
  const renewals = make.counter("lease_attempts_total", "Attempts to take or renew the lease", [
    "lease",
    "outcome",
  ]);
  const events = make.counter("events_total", "Kubernetes events, by what became of them", ["outcome"]);
  return {
    leading: (lease, yes) => leads.set({ lease }, yes ? 1 : 0),
    leaseRenewed: (lease, outcome) => renewals.inc({ lease, outcome }),
    event: (outcome) => events.inc({ outcome }),
  };
}
