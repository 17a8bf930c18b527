/**
 * Metrics and traces of this process's clients, for OpenTelemetry. It brings no OpenTelemetry with it: hand in a meter and
 * a tracer of yours (`@opentelemetry/api`), or anything that looks like them.
 */
import { DIAGNOSTICS, type Span } from "./diagnostics.ts";
import type { Session } from "./session.ts";

/** What is said of a measurement or a span. */
export type TelemetryAttributes = Record<string, string | number>;

/** What describes a metric. */
export interface TelemetryMetricOptions {
  /** In UCUM, as OpenTelemetry has it: `s`. */
  readonly unit: string;
  readonly description: string;
}

/** Of OpenTelemetry's `Histogram`, what is used. */
export interface TelemetryHistogram {
  /** Takes one value. */
  record(value: number, attributes: TelemetryAttributes): void;
}

/** Of OpenTelemetry's `Counter` and `UpDownCounter`, what is used. */
export interface TelemetryCounter {
  /** Counts, down where it is negative. */
  add(value: number, attributes?: TelemetryAttributes): void;
}

/** Of OpenTelemetry's `Meter`, what is used. */
export interface TelemetryMeter {
  /** Makes a histogram with these bounds. */
  createHistogram(
    name: string,
    options: TelemetryMetricOptions & { advice: { explicitBucketBoundaries: number[] } },
  ): TelemetryHistogram;
  /** Makes a counter that only grows. */
  createCounter(name: string, options: TelemetryMetricOptions): TelemetryCounter;
  /** Makes a counter of what is there now. */
  createUpDownCounter(name: string, options: TelemetryMetricOptions): TelemetryCounter;
}

/** Of OpenTelemetry's `Span`, what is used. */
export interface TelemetrySpan {
  /** 2: it failed. */
  setStatus(status: { code: 2; message: string }): unknown;
  /** Milliseconds since the epoch. */
  end(endTime: number): void;
}

/** Of OpenTelemetry's `Tracer`, what is used. */
export interface TelemetryTracer {
  /** Begins a span, in the active context. `startTime` is in milliseconds since the epoch. */
  startSpan(name: string, options: { startTime: number; attributes: TelemetryAttributes }): TelemetrySpan;
}

/** Where it is told. Without one of the two that part is left out. */
export interface Telemetry {
  readonly meter?: TelemetryMeter;
  readonly tracer?: TelemetryTracer;
}

const ERROR_STATUS = 2;
const MS_PER_SECOND = 1_000;
/** Seconds: from a round trip in one machine to a long wait for a lock. */
const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300];

/**
 * Tells of all clients of this process, those that exist and those that come:
 *
 * | metric | |
 * |---|---|
 * | `lockstep.client.call.duration` | histogram, seconds; by `operation`, and `error.type` for failures |
 * | `lockstep.client.acquire.duration` | histogram, seconds, with the wait; by `recipe`, and `error.type` |
 * | `lockstep.client.hold.duration` | histogram, seconds; by `end`: `released`, or the code of the loss |
 * | `lockstep.client.sessions` | open sessions |
 * | `lockstep.client.session.ends` | counter; by `end`: `closed`, `ended` by the cell, or the own `deadline` |
 *
 * Spans are `lockstep OPERATION` and `lockstep acquire RECIPE`, in the context that the call was made in.
 * @returns the function that ends it
 */
export function instrument({ meter, tracer }: Telemetry): () => void {
  const ends: (() => void)[] = [];
  if (meter !== undefined) ends.push(...measure(meter));
  if (tracer !== undefined) ends.push(...trace(tracer));
  return () => {
    for (const end of ends.splice(0)) end();
  };
}

function measure(meter: TelemetryMeter): (() => void)[] {
  const histogram = (name: string, description: string): TelemetryHistogram =>
    meter.createHistogram(name, {
      ...{ unit: "s", description },
      advice: { explicitBucketBoundaries: SECONDS },
    });
  const calls = histogram("lockstep.client.call.duration", "Calls of the cell, with their repetitions.");
  const waits = histogram("lockstep.client.acquire.duration", "Acquisitions of locks and the like.");
  const holds = histogram("lockstep.client.hold.duration", "How long locks and the like were held.");
  const sessions = meter.createUpDownCounter("lockstep.client.sessions", {
    ...{ unit: "{session}", description: "Open sessions." },
  });
  const ends = meter.createCounter("lockstep.client.session.ends", {
    ...{ unit: "{session}", description: "Sessions that have ended." },
  });
  const open = new Set<Session>();
  return [
    DIAGNOSTICS.call.subscribe(({ operation, durationMs, error }) =>
      calls.record(durationMs / MS_PER_SECOND, { operation, ...errorType(error) }),
    ),
    DIAGNOSTICS.acquire.subscribe(({ recipe, durationMs, error }) =>
      waits.record(durationMs / MS_PER_SECOND, { recipe, ...errorType(error) }),
    ),
    DIAGNOSTICS.release.subscribe(({ durationMs, reason, released }) =>
      holds.record(durationMs / MS_PER_SECOND, { end: released ? "released" : codeOf(reason) }),
    ),
    DIAGNOSTICS.session.subscribe(({ session, end }) => {
      if (end === undefined) {
        if (!open.has(session)) sessions.add(1);
        open.add(session);
        return;
      }
      // Those that were there before are not counted down.
      if (open.delete(session)) sessions.add(-1);
      ends.add(1, { end });
    }),
    () => sessions.add(-open.size),
  ];
}

function trace(tracer: TelemetryTracer): (() => void)[] {
  const span = (name: string, { startedAtMs, durationMs }: Span, rest: SpanRest): void => {
    const made = tracer.startSpan(name, { startTime: startedAtMs, attributes: rest.attributes });
    if (rest.error !== undefined) made.setStatus({ code: ERROR_STATUS, message: messageOf(rest.error) });
    made.end(startedAtMs + durationMs);
  };
  return [
    DIAGNOSTICS.call.subscribe((call) =>
      span(`lockstep ${call.operation}`, call, {
        attributes: { "lockstep.operation": call.operation, ...errorType(call.error) },
        error: call.error,
      }),
    ),
    DIAGNOSTICS.acquire.subscribe((acquisition) => {
      const { recipe, what, token, error } = acquisition;
      span(`lockstep acquire ${recipe}`, acquisition, {
        attributes: {
          ...{ "lockstep.recipe": recipe, "lockstep.what": what },
          ...(token === undefined ? {} : { "lockstep.token": token }),
          ...errorType(error),
        },
        error,
      });
    }),
  ];
}

interface SpanRest {
  readonly attributes: TelemetryAttributes;
  readonly error: unknown;
}

/** As OpenTelemetry's conventions name it. */
function errorType(error: unknown): { readonly "error.type"?: string } {
  return error === undefined ? {} : { "error.type": codeOf(error) };
}

/** By its name: another copy of this package has a class of its own. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error) || error.name !== "LockstepError") return "other";
  return "code" in error && typeof error.code === "string" ? error.code : "other";
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
