import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { etcd, mvcc } from "@lockstep/proto/etcd";
import type { EtcdBench } from "../testing/etcd-client.ts";
import { ask, bytes, op, openEtcdBench, put, refusal, remove, WatchTap } from "../testing/etcd-client.ts";

const { NOPUT, NODELETE } = etcd.WatchCreateRequest_FilterType;
const EVERYTHING = Buffer.from([0]);
const UNKNOWN_ID = 99;

const seen = (answer: etcd.WatchResponse): string =>
  answer.events
    .map(({ type, kv }) => `${type === mvcc.Event_EventType.PUT ? "+" : "-"}${String(kv?.key)}`)
    .join(" ");

describe("etcdserverpb.Watch", () => {
  let bench: EtcdBench;
  before(async () => {
    bench = await openEtcdBench({ doorLimits: { watchAnswerBytes: 4096, progressIntervalMs: 20 } });
  });
  after(() => bench.close());

  const open = (metadata: Readonly<Record<string, string>> = {}): WatchTap =>
    new WatchTap(bench.clients.watch, metadata);
  const doPut = (key: string, value = "v"): Promise<etcd.PutResponse> =>
    ask(bench.clients.kv, etcd.KVService.put, put(key, value));
  const doRemove = (key: string): Promise<etcd.DeleteRangeResponse> =>
    ask(bench.clients.kv, etcd.KVService.deleteRange, remove(key));
  const now = (): number => bench.coordinator.info().revision;

  it("A11: pipelined creations are answered in order, with ids from 0 on; an id in use is refused", async () => {
    const tap = open();
    tap.create("a11");
    tap.create("a11/", { rangeEnd: bytes("a110") });
    tap.create("a11", { watchId: 7 });
    tap.create("a11", { watchId: 7 });
    tap.create("a11", { watchId: 2 });
    tap.create("a11");
    const answers = [];
    for (let i = 0; i < 6; i += 1) answers.push(await tap.next());
    assert.deepEqual(
      answers.map(({ watchId, created, canceled }) => [watchId, created, canceled]),
      [
        [0, true, false],
        [1, true, false],
        [7, true, false],
        [-1, true, true],
        [2, true, false],
        // The counter goes round what was chosen.
        [3, true, false],
      ],
    );
    assert.equal(answers[3]?.cancelReason, "mvcc: duplicate watch ID provided on the WatchStream");
    assert.equal(answers[0]?.header?.revision, now());
    tap.stream.cancel();
  });

  it("A10: a start below 0, an empty range and a compacted start end as etcd's do, others go on", async () => {
    const tap = open();
    tap.create("a10", { startRevision: -1 });
    const negative = await tap.next();
    assert.deepEqual([negative.watchId, negative.created, negative.canceled], [-1, true, true]);
    assert.equal(negative.cancelReason, "etcdserver: mvcc: required revision has been compacted");
    tap.create("b", { rangeEnd: bytes("a") });
    const empty = await tap.next();
    assert.deepEqual([empty.watchId, empty.cancelReason], [-1, "mvcc: watcher range is empty"]);

    await doPut("a10", "1");
    const { header } = await doPut("a10", "2");
    const compactRevision = header?.revision ?? 0;
    tap.create("other");
    assert.equal((await tap.next()).created, true);
    await ask(bench.clients.kv, etcd.KVService.compact, { revision: compactRevision, physical: false });
    tap.create("a10", { startRevision: compactRevision - 1 });
    const created = await tap.next();
    assert.deepEqual([created.created, created.canceled], [true, false]);
    const ended = await tap.next();
    assert.deepEqual(
      [ended.watchId, ended.canceled, ended.compactRevision, ended.cancelReason],
      [created.watchId, true, compactRevision, ""],
    );
    tap.create("a10", { startRevision: compactRevision });
    await tap.next();
    assert.equal(seen(await tap.next()), "+a10");
    await doPut("other");
    assert.equal(seen(await tap.next()), "+other");
    tap.stream.cancel();
  });

  it("A1, A14: a revision's events come together, filters and previous values as asked", async () => {
    const tap = open();
    tap.create("", { rangeEnd: EVERYTHING });
    tap.create("a14", { filters: [NOPUT], prevKv: true });
    tap.create("a14", { filters: [NODELETE, NOPUT] });
    for (let i = 0; i < 3; i += 1) await tap.next();
    await ask(bench.clients.kv, etcd.KVService.txn, {
      compare: [],
      success: [op.put(put("a14", "1")), op.put(put("a14/b", "2"))],
      failure: [],
    });
    const both = await tap.next();
    assert.equal(seen(both), "+a14 +a14/b");
    assert.equal(both.header?.revision, both.events[1]?.kv?.modRevision);
    await doRemove("a14");
    const [all, filtered] = [await tap.next(), await tap.next()].sort((a, b) => a.watchId - b.watchId);
    assert.ok(all !== undefined && filtered !== undefined);
    assert.deepEqual([seen(all), all.events[0]?.prevKv], ["-a14", undefined]);
    assert.deepEqual([seen(filtered), String(filtered.events[0]?.prevKv?.value)], ["-a14", "1"]);
    const { key, modRevision, createRevision, version } = filtered.events[0]?.kv ?? {};
    assert.deepEqual([String(key), modRevision, createRevision, version], ["a14", now(), 0, 0]);
    assert.equal(tap.untaken.length, 0);
    tap.stream.cancel();
  });

  it("A11: a cancelled watch says so once and nothing after it; an unknown one is passed over", async () => {
    const tap = open();
    tap.create("a11c");
    tap.create("a11c");
    await tap.next();
    await tap.next();
    tap.cancel(UNKNOWN_ID);
    tap.cancel(0);
    const cancelled = await tap.next();
    assert.deepEqual([cancelled.watchId, cancelled.canceled, cancelled.cancelReason], [0, true, ""]);
    await doPut("a11c");
    const event = await tap.next();
    assert.deepEqual([event.watchId, seen(event)], [1, "+a11c"]);
    tap.stream.cancel();
  });

  it("A10: a start in the future sees nothing below it", async () => {
    const tap = open();
    const startRevision = now() + 3;
    tap.create("future", { startRevision });
    await tap.next();
    for (let i = 0; i < 3; i += 1) await doPut("future", String(i));
    const answer = await tap.next();
    assert.deepEqual([answer.events.length, answer.events[0]?.kv?.modRevision], [1, startRevision]);
    tap.stream.cancel();
  });

  it("A12: progress that is asked for comes once for all watches, behind what it covers", async () => {
    const tap = open();
    tap.progress();
    tap.create("a12", { startRevision: 1 });
    tap.create("a12");
    await doPut("a12");
    await tap.next();
    await tap.next();
    let last = 0;
    tap.progress();
    for (let answer = await tap.next(); answer.watchId !== -1; answer = await tap.next()) {
      last = Math.max(last, answer.header?.revision ?? 0);
      if (answer.events.length > 0 && answer.header?.revision === now()) last = now();
    }
    assert.ok(last <= now());
    tap.progress();
    const again = await tap.next();
    assert.deepEqual([again.watchId, again.header?.revision, again.events.length], [-1, now(), 0]);
    tap.stream.cancel();
  });

  it("progress_notify speaks when nothing else does, for that watch alone", async () => {
    const tap = open();
    tap.create("quiet", { progressNotify: true });
    tap.create("quiet");
    await tap.next();
    await tap.next();
    const told = await tap.next();
    assert.deepEqual([told.watchId, told.events.length, told.header?.revision], [0, 0, now()]);
    assert.equal((await tap.next()).watchId, 0);
    tap.stream.cancel();
  });

  it("A13: fragments only for who takes them, together, the last one said to be it", async () => {
    const value = "x".repeat(1500);
    const puts = Array.from({ length: 6 }, (_, i) => op.put(put(`a13/${i}`, value)));
    const tap = open();
    tap.create("a13/", { rangeEnd: bytes("a130") });
    tap.create("a13/", { rangeEnd: bytes("a130"), fragment: true });
    await tap.next();
    await tap.next();
    await ask(bench.clients.kv, etcd.KVService.txn, { compare: [], success: puts, failure: [] });
    const answers = [];
    for (let events = 0; events < 12;) {
      const answer = await tap.next();
      answers.push(answer);
      events += answer.events.length;
    }
    const whole = answers.filter(({ watchId }) => watchId === 0);
    assert.deepEqual([whole.length, whole[0]?.events.length, whole[0]?.fragment], [1, 6, false]);
    const parts = answers.filter(({ watchId }) => watchId === 1);
    assert.ok(parts.length > 1);
    assert.deepEqual(
      parts.map(({ fragment }) => fragment),
      parts.map((_, i) => i < parts.length - 1),
    );
    assert.equal(parts.map(seen).join(" "), seen(whole[0] as etcd.WatchResponse));
    // Nothing of another watch stands between them.
    const first = answers.indexOf(parts[0] as etcd.WatchResponse);
    assert.deepEqual(answers.slice(first, first + parts.length), parts);
    tap.stream.cancel();
  });

  it("A15: a client that has nothing more to ask is served on; one that cancels is gone", async () => {
    const tap = open();
    tap.create("a15");
    await tap.next();
    tap.stream.end();
    await doPut("a15");
    assert.equal(seen(await tap.next()), "+a15");
    const before = bench.coordinator.openWatches;
    tap.stream.cancel();
    assert.equal((await tap.ended).code, status.CANCELLED);
    // The cancellation is behind this on no other stream: ask until it has arrived.
    while (bench.coordinator.openWatches === before) await doPut("a15");
    assert.equal(bench.coordinator.openWatches, before - 1);
  });

  it("a watch that its hub cut as slow goes on where it was, unseen by its client", async () => {
    const tap = open();
    tap.create("slow");
    await tap.next();
    await doPut("slow", "1");
    await tap.next();
    bench.coordinator.endWatchesSlow();
    const { header } = await doPut("slow", "2");
    const answer = await tap.next();
    assert.deepEqual(
      [answer.watchId, answer.canceled, answer.header?.revision],
      [0, false, header?.revision],
    );
    assert.equal(String(answer.events[0]?.kv?.value), "2");
    tap.stream.cancel();
  });

  it("an unknown namespace is refused as a creation, so that the stream lives on", async () => {
    const tap = open({ "lockstep-namespace": "absent" });
    tap.create("a");
    const answer = await tap.next();
    assert.deepEqual([answer.watchId, answer.created, answer.canceled], [-1, true, true]);
    assert.match(answer.cancelReason, /there is no namespace absent/);
    tap.stream.cancel();
  });

  it("A16: who wants to know a leader is cut off without one, at the start and later", async () => {
    const leader = bench.coordinator.info().leader;
    const tap = open({ hasleader: "true" });
    const patient = open();
    for (const one of [tap, patient]) {
      one.create("a16");
      await one.next();
    }
    bench.coordinator.setLeader(undefined);
    const noLeader = { code: status.UNAVAILABLE, details: "etcdserver: no leader" };
    const { code, details } = await tap.ended;
    assert.deepEqual({ code, details }, noLeader);
    const late = open({ hasleader: "true" });
    const lateEnd = await late.ended;
    assert.deepEqual({ code: lateEnd.code, details: lateEnd.details }, noLeader);
    bench.coordinator.setLeader(leader);
    await doPut("a16");
    assert.equal(seen(await patient.next()), "+a16");
    patient.stream.cancel();
  });

  it("what is no request ends the stream, and no other", async () => {
    const other = open();
    other.create("malformed");
    await other.next();
    const tap = open();
    const { watch } = bench.clients;
    const broken = watch.makeBidiStreamRequest(
      "/etcdserverpb.Watch/Watch",
      (message: Buffer) => message,
      (message: Buffer) => message,
    );
    broken.on("error", () => undefined);
    const ended = new Promise<{ code: number }>((resolve) => broken.on("status", resolve));
    broken.write(Buffer.from([0x0a, 0x05, 0x0a]));
    assert.equal((await ended).code, status.INTERNAL);
    await doPut("malformed");
    assert.equal(seen(await other.next()), "+malformed");
    other.stream.cancel();
    tap.stream.cancel();
  });
});

describe("a client that does not read", () => {
  it("holds back its own watches, at a bound, and gets everything when it reads", async () => {
    const bench = await openEtcdBench({ doorLimits: { streamBufferBytes: 64 * 1024 } });
    const { kv, watch } = bench.clients;
    const slow = new WatchTap(watch);
    slow.create("k");
    const { header } = await slow.next();
    slow.stream.pause();
    const quick = new WatchTap(watch);
    quick.create("k");
    await quick.next();
    const value = "x".repeat(50_000);
    const count = 100;
    for (let i = 0; i < count; i += 1) {
      await ask(kv, etcd.KVService.put, put("k", value));
      await quick.next();
    }
    slow.stream.resume();
    const revisions: number[] = [];
    while (revisions.length < count) {
      const answer = await slow.next();
      revisions.push(...answer.events.map((event) => event.kv?.modRevision ?? 0));
    }
    const first = (header?.revision ?? 0) + 1;
    assert.deepEqual(
      revisions,
      Array.from({ length: count }, (_, i) => first + i),
    );
    await bench.close();
  });
});

describe("a door that closes", () => {
  it("ends streams without cancelling watches, and refuses what comes", async () => {
    const bench = await openEtcdBench();
    const tap = new WatchTap(bench.clients.watch);
    tap.create("a");
    await tap.next();
    assert.deepEqual(bench.door.stats(), { watchStreams: 1, watches: 1, unaryInFlight: 0 });
    bench.door.close();
    const { code, details } = await tap.ended;
    assert.deepEqual({ code, details }, { code: status.UNAVAILABLE, details: "etcdserver: server stopped" });
    assert.equal(tap.untaken.length, 0);
    const { kv } = bench.clients;
    assert.equal(
      (await refusal(ask(kv, etcd.KVService.put, put("a", "1")))).details,
      "etcdserver: server stopped",
    );
    assert.equal(bench.coordinator.openWatches, 0);
    await bench.close();
  });
});
