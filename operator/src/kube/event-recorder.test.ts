import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createKubeClient } from "./client.ts";
import { EVENTS, EventRecorder } from "./event-recorder.ts";
import type { EventDetails, KubeEvent } from "./event-recorder.ts";
import { Rest } from "./rest.ts";
import { FakeApiServer, ManualRuntime, fakeTransport, settle } from "./testing/index.ts";
import { widget } from "./testing/widgets.ts";

interface Setting {
  readonly runtime: ManualRuntime;
  readonly server: FakeApiServer;
  readonly recorder: EventRecorder;
  readonly reports: string[];
  readonly written: () => readonly KubeEvent[];
}

function setting(): Setting {
  const runtime = new ManualRuntime();
  const server = new FakeApiServer({ runtime, kinds: [{ kind: EVENTS, status: false }] });
  const rest = new Rest({ transport: fakeTransport(server), runtime });
  const reports: string[] = [];
  const recorder = new EventRecorder({
    client: createKubeClient({ rest, fieldManager: "test" }),
    runtime,
    controller: "example.com/test",
    instance: "pod-1",
    pendingMax: 10,
    report: (message, error) => reports.push(`${message}: ${error.message}`),
  });
  return { runtime, server, recorder, reports, written: () => server.store.list(EVENTS) };
}

const details = (note: string): EventDetails => ({ type: "Normal", reason: "Sized", action: "Size", note });

describe("an event recorder", () => {
  it("writes an event in the form of events.k8s.io/v1", async () => {
    const { recorder, written } = setting();
    recorder.record({ ...widget("a") }, details("it has grown"));
    await settle();
    const [event] = written();
    assert.deepEqual(
      [event?.metadata.namespace, event?.type, event?.reason, event?.action, event?.note],
      ["shop", "Normal", "Sized", "Size", "it has grown"],
    );
    assert.deepEqual(event?.regarding, {
      apiVersion: "example.com/v1",
      kind: "Widget",
      name: "a",
      namespace: "shop",
    });
    assert.match(event.eventTime ?? "", /\.\d{6}Z$/);
    assert.deepEqual([event.reportingController, event.reportingInstance], ["example.com/test", "pod-1"]);
  });

  it("counts repetitions in one event, in few writes, and begins a new one after a pause", async () => {
    const { recorder, written, runtime, server } = setting();
    for (let times = 0; times < 100; times += 1) {
      recorder.record(widget("a"), details("again"));
      await runtime.advance(1_000);
    }
    await runtime.advance(60_000);
    assert.deepEqual(
      written().map(({ series }) => series?.count),
      [100],
    );
    assert.ok(server.calls.length <= 7, String(server.calls.length));
    await runtime.advance(6 * 60_000);
    recorder.record(widget("a"), details("again"));
    await settle();
    assert.equal(written().length, 2);
    for (let times = 0; times < 4; times += 1) {
      recorder.record(widget("a"), details("again"));
      await settle();
    }
    await recorder.stop(1_000);
    assert.deepEqual(
      written()
        .map(({ series }) => series?.count)
        .sort(),
      [100, 5],
    );
    assert.equal(runtime.pending, 0);
  });

  it("goes on with a new event when the apiserver forgot the old one", async () => {
    const { recorder, written, runtime, server } = setting();
    recorder.record(widget("a"), details("again"));
    await settle();
    const [first] = written();
    assert.ok(first !== undefined);
    server.store.delete(EVENTS, first.metadata);
    recorder.record(widget("a"), details("again"));
    await runtime.advance(10_000);
    assert.deepEqual(
      written().map(({ series }) => series?.count),
      [2],
    );
  });

  it("never throws, tries again what may pass, gives up what may not, and is bounded", async () => {
    const { recorder, written, runtime, server, reports } = setting();
    let faults = 2;
    server.fault = () => (faults-- > 0 ? { kind: "status", status: 500, acts: true } : undefined);
    recorder.record(widget("a"), details("tried again"));
    await runtime.advance(10_000);
    assert.equal(written().length, 1);
    server.fault = () => ({ kind: "status", status: 403 });
    recorder.record(widget("a"), details("refused"));
    await runtime.advance(10_000);
    assert.equal(reports.length, 1);
    server.fault = () => ({ kind: "hang" });
    for (let index = 0; index < 100; index += 1) recorder.record(widget(`w${index}`), details("many"));
    server.fault = undefined;
    await runtime.advance(60_000);
    assert.ok(written().length <= 1 + 11, String(written().length));
  });

  it("writes only a burst about one object", async () => {
    const { recorder, written, runtime } = setting();
    for (let index = 0; index < 200; index += 1) {
      recorder.record(widget("a"), details(`number ${index}`));
      await runtime.advance(10);
    }
    assert.equal(written().length, 25);
  });
});
