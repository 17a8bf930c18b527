// With OpenTelemetry's own SDK on the other side.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { DIAGNOSTICS } from "./diagnostics.ts";
import { instrument } from "./opentelemetry.ts";
import { setUp } from "./recipes/testing/set-up.ts";

const exported = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter: exported, exportIntervalMillis: 3_600_000 });
const meters = new MeterProvider({ readers: [reader] });
const spans = new InMemorySpanExporter();
const tracers = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: spans })] });

interface Point {
  readonly attributes: Record<string, unknown>;
  readonly value: number;
}

/** How often, or the sum for what is counted up and down, by attributes. */
async function measured(metric: string): Promise<Point[]> {
  exported.reset();
  await reader.forceFlush();
  const all = exported.getMetrics().flatMap((one) => one.scopeMetrics.flatMap((scope) => scope.metrics));
  const data = all.find(({ descriptor }) => descriptor.name === metric);
  return (data?.dataPoints ?? []).map(({ attributes, value }) => ({
    attributes,
    value: typeof value === "number" ? value : (value as { count: number }).count,
  }));
}

const valueOf = (points: readonly Point[], attributes: Record<string, unknown>): number =>
  points
    .filter((point) => Object.entries(attributes).every(([name, value]) => point.attributes[name] === value))
    .reduce((sum, { value }) => sum + value, 0);

describe("telemetry", () => {
  let stop: () => void;
  before(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    stop = instrument({ meter: meters.getMeter("test"), tracer: tracers.getTracer("test") });
  });
  after(async () => {
    stop();
    await meters.shutdown();
  });

  it("counts calls by operation, and failures by their code", async () => {
    const { member, client } = await setUp();
    await client.put("a", "1");
    member.judge = () => ({ kind: "fail", failure: { code: "no-space" } });
    await assert.rejects(client.put("a", "2"), { code: "no-space" });
    const calls = await measured("lockstep.client.call.duration");
    assert.equal(valueOf(calls, { operation: "put", "error.type": undefined }), 1);
    assert.equal(valueOf(calls, { operation: "put", "error.type": "no-space" }), 1);
  });

  it("tells of acquisitions with their wait, of those that failed, and of how what was held ended", async () => {
    const { member, client } = await setUp();
    const session = await client.session({ ttlMs: 10_000, owner: "first" });
    const lock = await client.lock("job", { session });
    await assert.rejects(client.lock("job", { session, waitMs: 0 }), { code: "lock-timeout" });
    await lock.release();
    const lost = await client.fairLock("queue").acquire({ session });
    const over = new Promise((resolve) => lost.held.addEventListener("abort", resolve));
    member.store.expire(session.leaseId);
    await over;
    const waits = await measured("lockstep.client.acquire.duration");
    assert.equal(valueOf(waits, { recipe: "lock", "error.type": undefined }), 1);
    assert.equal(valueOf(waits, { recipe: "lock", "error.type": "lock-timeout" }), 1);
    assert.equal(valueOf(waits, { recipe: "fair-lock" }), 1);
    const holds = await measured("lockstep.client.hold.duration");
    assert.equal(valueOf(holds, { end: "released" }), 1);
    assert.equal(valueOf(holds, { end: "session-lost" }), 1);
  });

  it("counts sessions up and down, and how they ended", async () => {
    const { member, client } = await setUp();
    const open = valueOf(await measured("lockstep.client.sessions"), {});
    const closed = await client.session({ ttlMs: 10_000 });
    const ended = await client.session({ ttlMs: 10_000 });
    assert.equal(valueOf(await measured("lockstep.client.sessions"), {}), open + 2);
    const before = await measured("lockstep.client.session.ends");
    const elsewhere = await setUp();
    // Each cell counts its leases from the same beginning.
    const namesake = await elsewhere.client.session({ ttlMs: 10_000 });
    await elsewhere.client.session({ ttlMs: 10_000 });
    assert.equal(namesake.leaseId, closed.leaseId);
    assert.equal(valueOf(await measured("lockstep.client.sessions"), {}), open + 4);
    await closed.close();
    const over = new Promise((resolve) => ended.lost.addEventListener("abort", resolve));
    member.store.expire(ended.leaseId);
    await over;
    assert.equal(valueOf(await measured("lockstep.client.sessions"), {}), open + 2);
    const ends = await measured("lockstep.client.session.ends");
    for (const end of ["closed", "ended"]) {
      assert.equal(valueOf(ends, { end }) - valueOf(before, { end }), 1, end);
    }
  });

  it("makes spans in the context of whoever called, with the token of what was acquired", async () => {
    const { client } = await setUp();
    const session = await client.session({ ttlMs: 10_000, owner: "first" });
    spans.reset();
    const parent = tracers.getTracer("program").startSpan("work");
    const { token } = await context.with(trace.setSpan(context.active(), parent), async () => {
      await client.put("a", "1");
      return client.lock("job", { session });
    });
    parent.end();
    const named = (name: string): ReturnType<typeof spans.getFinishedSpans> =>
      spans.getFinishedSpans().filter((span) => span.name === name);
    const [put] = named("lockstep put");
    const [acquired] = named("lockstep acquire lock");
    assert(put !== undefined && acquired !== undefined);
    for (const span of [put, acquired]) {
      assert.equal(span.parentSpanContext?.spanId, parent.spanContext().spanId);
    }
    assert.equal(acquired.attributes["lockstep.token"], token);
    assert.equal(acquired.attributes["lockstep.what"], 'the lock "job"');
  });

  it("is told nothing once it was stopped, and counts nothing as open", async () => {
    const { client } = await setUp();
    await client.session({ ttlMs: 10_000 });
    stop();
    assert.equal(valueOf(await measured("lockstep.client.sessions"), {}), 0);
    const { call, acquire, release, session } = DIAGNOSTICS;
    assert.ok([call, acquire, release, session].every(({ hasSubscribers }) => !hasSubscribers));
    spans.reset();
    await client.put("a", "1");
    assert.equal(spans.getFinishedSpans().length, 0);
  });
});
