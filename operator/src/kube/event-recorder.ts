import { createHash } from "node:crypto";
import { toKubeError } from "./errors.ts";
import { microTime } from "./lease.ts";
import { NO_METRICS } from "./metrics.ts";
import type { KubeMetrics } from "./metrics.ts";
import { sleep } from "./runtime.ts";
import type { Runtime } from "./runtime.ts";
import { TokenBucket } from "./token-bucket.ts";
import type { KubeClient, KubeError, KubeObject, ResourceKind } from "./types.ts";

export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid?: string;
}

export interface KubeEvent extends KubeObject {
  readonly eventTime?: string;
  readonly type?: "Normal" | "Warning";
  readonly reason?: string;
  readonly action?: string;
  readonly note?: string;
  readonly regarding?: ObjectReference;
  readonly related?: ObjectReference;
  readonly reportingController?: string;
  readonly reportingInstance?: string;
  readonly series?: { readonly count: number; readonly lastObservedTime: string };
}

export const EVENTS: ResourceKind<KubeEvent> = {
  apiVersion: "events.k8s.io/v1",
  kind: "Event",
  plural: "events",
  namespaced: true,
};

export interface EventDetails {
  readonly type: "Normal" | "Warning";
  /** Stable CamelCase, at most 128 characters: why. */
  readonly reason: string;
  /** Stable CamelCase, at most 128 characters: what was done, or failed. */
  readonly action: string;
  /** A sentence for people; cut at 1 KiB. The same reason with another note is another event. */
  readonly note: string;
  readonly related?: KubeObject;
}

export interface EventRecorderOptions {
  readonly client: KubeClient;
  readonly runtime: Runtime;
  /** `example.com/operator`. */
  readonly controller: string;
  /** This process, e.g. the pod's name; at most 128 characters. */
  readonly instance: string;
  /** For events about objects without a namespace; default `default`, which is where kubectl looks for them. */
  readonly clusterNamespace?: string;
  /** Events that wait to be written; default 1,000. More are dropped and counted. */
  readonly pendingMax?: number;
  readonly metrics?: KubeMetrics;
  readonly report?: (message: string, error: Error) => void;
}

const PENDING_MAX = 1_000;
/** Series that are remembered; the one that was longest not seen is forgotten first. */
const SERIES_MAX = 2_000;
/** Objects whose rate is remembered. */
const BUCKETS_MAX = 2_000;
/** Without a repetition for so long, the next one is a new event. */
const SERIES_MS = 6 * 60_000;
/** A growing count is written at most so often. */
const COUNT_MS = 30_000;
const NOTE_BYTES_MAX = 1_024;
const TRIES = 3;
const RETRY_MS = 1_000;
/** New events about one object: a burst, then one in so long. */
const OBJECT_BURST = 25;
const OBJECT_MS = 60_000;

interface Series {
  readonly event: KubeEvent;
  count: number;
  lastMs: number;
  /** The count that was written, and when. */
  writtenCount: number;
  writtenMs: number;
  queued: boolean;
}

/**
 * Tells people what happened to an object, as `kubectl describe` shows it. Never throws and never waits: what cannot be
 * told is dropped. Repetitions become one event with a count.
 */
export class EventRecorder {
  private readonly options: EventRecorderOptions;
  private readonly metrics: KubeMetrics;
  private readonly series = new Map<string, Series>();
  private readonly buckets = new Map<string, TokenBucket>();
  private readonly pending: Series[] = [];
  /** Counts that will be written, and how to call that off. */
  private readonly planned = new Map<Series, () => void>();
  private readonly stopping = new AbortController();
  private writing: Promise<void> | undefined;

  constructor(options: EventRecorderOptions) {
    this.options = options;
    this.metrics = options.metrics ?? NO_METRICS;
  }

  /** Something happened to `regarding`. */
  record(regarding: KubeObject, details: EventDetails): void {
    if (this.stopping.signal.aborted) return;
    const now = this.options.runtime.monotonicMs();
    const key = seriesKey(regarding, details);
    const known = this.series.get(key);
    if (known !== undefined && now - known.lastMs < SERIES_MS) {
      known.count += 1;
      known.lastMs = now;
      this.remember(key, known);
      this.planCount(known, now);
      return;
    }
    if (this.pending.length >= (this.options.pendingMax ?? PENDING_MAX) || !this.allowed(regarding)) {
      this.metrics.event("dropped");
      return;
    }
    const event = this.eventOf(regarding, details, key);
    const series = { event, count: 1, lastMs: now, writtenCount: 0, writtenMs: now, queued: false };
    this.remember(key, series);
    this.enqueue(series);
  }

  /** Writes what waits, for at most `graceMs`; then no timer of it is left, and nothing more is recorded. */
  async stop(graceMs: number): Promise<void> {
    for (const [series, callOff] of this.planned) {
      callOff();
      series.queued = false;
      this.enqueue(series);
    }
    this.planned.clear();
    const cancel = this.options.runtime.after(graceMs, () => this.stopping.abort());
    while (this.writing !== undefined && !this.stopping.signal.aborted) {
      await Promise.race([this.writing, aborted(this.stopping.signal)]);
    }
    cancel();
    this.stopping.abort();
    this.pending.length = 0;
  }

  private allowed(regarding: KubeObject): boolean {
    const id =
      regarding.metadata.uid ??
      `${regarding.kind}/${regarding.metadata.namespace ?? ""}/${regarding.metadata.name}`;
    const bucket =
      this.buckets.get(id) ??
      new TokenBucket({ runtime: this.options.runtime, rate: 1000 / OBJECT_MS, burst: OBJECT_BURST });
    refresh(this.buckets, id, bucket, BUCKETS_MAX);
    return bucket.take(0) !== undefined;
  }

  private remember(key: string, series: Series): void {
    refresh(this.series, key, series, SERIES_MAX);
  }

  /** The first repetition is written soon, later ones together. */
  private planCount(series: Series, now: number): void {
    if (series.queued) return;
    const waitMs = series.writtenCount === 1 ? 0 : series.writtenMs + COUNT_MS - now;
    if (waitMs <= 0) {
      this.enqueue(series);
      return;
    }
    series.queued = true;
    const callOff = this.options.runtime.after(waitMs, () => {
      this.planned.delete(series);
      series.queued = false;
      this.enqueue(series);
    });
    this.planned.set(series, callOff);
  }

  private enqueue(series: Series): void {
    if (series.queued) return;
    if (this.pending.length >= (this.options.pendingMax ?? PENDING_MAX)) {
      this.metrics.event("dropped");
      return;
    }
    series.queued = true;
    this.pending.push(series);
    this.writing ??= this.writeAll().finally(() => {
      this.writing = undefined;
    });
  }

  private async writeAll(): Promise<void> {
    for (;;) {
      const series = this.pending.shift();
      if (series === undefined) return;
      series.queued = false;
      await this.write(series);
    }
  }

  private async write(series: Series): Promise<void> {
    const first = series.writtenCount === 0;
    for (let tried = 1; !this.stopping.signal.aborted; tried += 1) {
      const { count } = series;
      try {
        await this.send(series, count);
        series.writtenCount = count;
        series.writtenMs = this.options.runtime.monotonicMs();
        this.metrics.event(first ? "created" : "counted");
        return;
      } catch (thrown) {
        const error = toKubeError(thrown, "event");
        if (error.reason === "not-found" && !first) {
          // The apiserver forgets events after an hour; this one goes on as a new one.
          series.writtenCount = 0;
        } else if (tried >= TRIES || !isPassing(error)) {
          this.fail(series, error);
          return;
        }
        await sleep(
          this.options.runtime,
          Math.max(RETRY_MS * tried, error.retryAfterMs ?? 0),
          this.stopping.signal,
        );
      }
    }
  }

  private async send(series: Series, count: number): Promise<void> {
    const { client, runtime } = this.options;
    const { event } = series;
    const counted = count < 2 ? {} : { series: { count, lastObservedTime: microTime(runtime.wallMs()) } };
    if (series.writtenCount > 0) {
      await client.mergePatch(EVENTS, event.metadata, counted);
      return;
    }
    try {
      await client.create(EVENTS, { ...event, ...counted });
    } catch (thrown) {
      // An earlier try arrived, only its answer did not.
      if (toKubeError(thrown, "event").reason !== "already-exists") throw thrown;
    }
  }

  private fail(series: Series, error: KubeError): void {
    this.metrics.event("failed");
    try {
      this.options.report?.(`event ${series.event.metadata.name} not written`, error);
    } catch {
      // Whoever cannot even log must not stop the recorder.
    }
  }

  private eventOf(regarding: KubeObject, details: EventDetails, key: string): KubeEvent {
    const { runtime, controller, instance, clusterNamespace } = this.options;
    const wallMs = runtime.wallMs();
    const { name } = regarding.metadata;
    // Unique for each start of a series, the same for each try to write it.
    const mark = createHash("sha256")
      .update(`${instance}/${wallMs}/${runtime.random()}/${key}`)
      .digest("hex")
      .slice(0, 16);
    return {
      apiVersion: EVENTS.apiVersion,
      kind: EVENTS.kind,
      metadata: {
        name: `${name.slice(0, 200).replace(/[^a-z0-9]+$/, "")}.${mark}`,
        namespace: regarding.metadata.namespace ?? clusterNamespace ?? "default",
      },
      eventTime: microTime(wallMs),
      type: details.type,
      reason: details.reason.slice(0, 128),
      action: details.action.slice(0, 128),
      note: cutBytes(details.note, NOTE_BYTES_MAX),
      reportingController: controller,
      reportingInstance: instance.slice(0, 128),
      regarding: referenceTo(regarding),
      ...(details.related === undefined ? {} : { related: referenceTo(details.related) }),
    };
  }
}

function isPassing(error: KubeError): boolean {
  return error.reason === "unavailable" || error.reason === "throttled" || error.reason === "conflict";
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

function seriesKey(regarding: KubeObject, details: EventDetails): string {
  const { uid, namespace, name } = regarding.metadata;
  const { type, reason, action, note, related } = details;
  return JSON.stringify([
    regarding.kind,
    namespace,
    name,
    uid,
    type,
    reason,
    action,
    note,
    related?.metadata.uid,
  ]);
}

function referenceTo({ apiVersion, kind, metadata }: KubeObject): ObjectReference {
  return {
    apiVersion,
    kind,
    name: metadata.name,
    ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }),
    ...(metadata.uid === undefined ? {} : { uid: metadata.uid }),
  };
}

/** Cuts between characters. */
function cutBytes(text: string, bytesMax: number): string {
  if (Buffer.byteLength(text) <= bytesMax) return text;
  const cut = Buffer.from(text)
    .subarray(0, bytesMax - 3)
    .toString("utf8");
  return `${cut.replace(/\uFFFD+$/, "")}…`;
}

/** Puts it last, and drops what is then too old. */
function refresh<V>(map: Map<string, V>, key: string, value: V, sizeMax: number): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next();
  if (map.size > sizeMax && oldest.done !== true) map.delete(oldest.value);
}
