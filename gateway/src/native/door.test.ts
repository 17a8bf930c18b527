import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, describe, it } from "node:test";
import type { ServiceError } from "@grpc/grpc-js";
import { credentials, status } from "@grpc/grpc-js";
import { coordination as proto } from "@lockstep/proto";
import type { Revision } from "../coordinator/index.ts";
import type { RunningGrpcServer } from "../grpc/server.ts";
import { startGrpcServer } from "../grpc/server.ts";
import { MemoryCoordinator, ManualClock } from "../testing/memory-coordinator.ts";
import {
  EMPTY_FRAME,
  RawClient,
  Reader,
  operationBytes,
  putOf,
  rangeOf,
  request,
  resultOf,
  watchOf,
} from "../testing/native-client.ts";
import type { NativeDoor } from "./door.ts";
import { createNativeDoor } from "./door.ts";
import type { NativeDoorLimits } from "./limits.ts";

describe("the native door", { timeout: 20_000 }, () => {
  let coordinator: MemoryCoordinator;
  let clock: ManualClock;
  let door: NativeDoor;
  let server: RunningGrpcServer;
  let client: RawClient;

  async function open(doorLimits: Partial<NativeDoorLimits> = {}): Promise<void> {
    clock = new ManualClock();
    coordinator = new MemoryCoordinator({ clock, namespaces: ["default", "team"] });
    door = createNativeDoor({ coordinator, doorLimits });
    server = await startGrpcServer({ host: "127.0.0.1", port: 0, services: [door] });
    client = new RawClient(`127.0.0.1:${server.address.port}`, credentials.createInsecure(), {
      "grpc.max_receive_message_length": 16 * 1024 * 1024,
      "grpc.use_local_subchannel_pool": 1,
    });
  }

  async function shut(): Promise<void> {
    client.close();
    door.close();
    await server.close(100);
  }

  async function reopen(doorLimits: Partial<NativeDoorLimits>): Promise<void> {
    await shut();
    await open(doorLimits);
  }

  beforeEach(() => open());
  afterEach(() => shut());

  it("sends Info first, and again with every change of leader", async () => {
    const reader = new Reader(client.channel());
    const first = await reader.until((frames) => frames[0]);
    assert.equal(first.info?.cellId, "cell-in-memory");
    assert.equal(first.info.leader?.memberId, 1);
    coordinator.setLeader(undefined);
    const second = await reader.until((frames) => frames[1]);
    assert.ok(second.info);
    assert.equal(second.info.leader, undefined);
  });

  it("answers everything that one frame asked in one frame, with fencing tokens", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    await reader.until((frames) => frames[0]);
    stream.write({
      ...EMPTY_FRAME,
      requests: [
        request(1, putOf("/a", "1")),
        request(2, putOf("/b", "2")),
        request(3, putOf("/a", "3")),
        request(4, rangeOf("/a")),
      ],
    });
    await reader.response(4);
    assert.equal(reader.frames.length, 2);
    const responses = reader.frames[1]!.responses;
    assert.deepEqual(
      responses.map((response) => response.id),
      [1, 2, 3, 4],
    );
    const third = resultOf(responses[2]!);
    assert.ok(third.$case === "put");
    assert.deepEqual(
      {
        revision: third.value.revision,
        createRevision: third.value.createRevision,
        version: third.value.version,
      },
      { revision: 4, createRevision: 2, version: 2 },
    );
    const range = resultOf(responses[3]!);
    assert.ok(range.$case === "range");
    assert.equal(range.value.kvs[0]?.value.toString(), "3");
  });

  it("answers a malformed operation alone, and the rest of its frame", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({
      ...EMPTY_FRAME,
      requests: [
        request(1, Buffer.from([0x0a, 0x7f, 1])),
        request(2, Buffer.alloc(0)),
        request(3, putOf("", "empty key")),
        request(4, putOf("/fine", "")),
      ],
    });
    assert.equal(resultOf(await reader.response(4)).$case, "put");
    for (const id of [1, 2, 3]) {
      const { failure } = await reader.response(id);
      assert.equal(failure?.code, "invalid-argument");
      assert.equal(failure.outcome, proto.Outcome.NOT_APPLIED);
    }
  });

  it("ends a stream whose frame is malformed with INVALID_ARGUMENT", async () => {
    const stream = client.rawChannel();
    stream.resume();
    stream.write(Buffer.from([0x1a, 0x7f]));
    const [error] = (await once(stream, "error")) as [ServiceError];
    assert.equal(error.code, status.INVALID_ARGUMENT);
    assert.match(error.details, /malformed frame/);
  });

  it("replays the first outcome of a registered client's retry and marks it", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({
      ...EMPTY_FRAME,
      requests: [request(1, operationBytes({ $case: "registerClient", value: {} }))],
    });
    const registered = resultOf(await reader.response(1));
    assert.ok(registered.$case === "registerClient");
    const identity = { clientId: registered.value.clientId, sequence: 1, acknowledgedBelow: 1 };
    stream.write({ ...EMPTY_FRAME, requests: [request(2, putOf("/k", "v"), identity)] });
    stream.write({ ...EMPTY_FRAME, requests: [request(3, putOf("/k", "v"), identity)] });
    const [first, retry] = [await reader.response(2), await reader.response(3)];
    assert.equal(first.replayed, false);
    assert.equal(retry.replayed, true);
    assert.deepEqual(retry.result, first.result);
  });

  it("refuses requests above the bound in flight with overloaded, not applied, and a time to come back", async () => {
    await reopen({ requestsInFlightMax: 2, overloadRetryAfterMs: 70 });
    const stream = client.channel();
    const reader = new Reader(stream);
    coordinator.hold();
    stream.write({
      ...EMPTY_FRAME,
      requests: [1, 2, 3].map((id) => request(id, putOf(`/k${id}`, ""))),
      renew: { id: 9, leaseIds: ["81"] },
    });
    const { failure } = await reader.response(3);
    assert.deepEqual(
      { code: failure?.code, outcome: failure?.outcome, retryAfterMs: failure?.retryAfterMs },
      { code: "overloaded", outcome: proto.Outcome.NOT_APPLIED, retryAfterMs: 70 },
    );
    coordinator.release();
    // Its own load must not cost a client its sessions: renewals pass by.
    const ack = await reader.until((frames) => frames.find((frame) => frame.renewAck)?.renewAck);
    assert.equal(ack.failure, undefined);
    assert.equal(resultOf(await reader.response(2)).$case, "put");
    stream.write({ ...EMPTY_FRAME, requests: [request(4, rangeOf("/k3"))] });
    const after = resultOf(await reader.response(4));
    assert.ok(after.$case === "range");
    assert.equal(after.value.count, 0, "the refused put was applied");
  });

  it("refuses one stream too many with too-many-streams, and takes it when another ended", async () => {
    await reopen({ streamsMax: 1 });
    const first = client.channel();
    await new Reader(first).until((frames) => frames[0]);
    const refused = await new Reader(client.channel()).ended;
    assert.equal(refused?.code, status.RESOURCE_EXHAUSTED);
    assert.deepEqual(refused.metadata.get("lockstep-code"), ["too-many-streams"]);
    first.end();
    await once(first, "status");
    const again = new Reader(client.channel());
    assert.ok(await again.until((frames) => frames[0]?.info));
  });

  it("grants, renews, and pushes the end of a lease to the streams that hold it, with its cause", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    const bystander = new Reader(client.channel());
    const grant = operationBytes({ $case: "leaseGrant", value: { leaseId: "0", ttlMs: 5000, owner: "w" } });
    stream.write({ ...EMPTY_FRAME, requests: [request(1, grant)] });
    const granted = resultOf(await reader.response(1));
    assert.ok(granted.$case === "leaseGrant");
    const { leaseId } = granted.value;
    stream.write({ ...EMPTY_FRAME, renew: { id: 5, leaseIds: [leaseId, "77"] } });
    const ack = await reader.until((frames) => frames.find((frame) => frame.renewAck)?.renewAck);
    assert.deepEqual({ id: ack.id, remainingMs: ack.remainingMs }, { id: 5, remainingMs: [5000, 0] });

    const renewer = client.channel();
    const second = new Reader(renewer);
    renewer.write({ ...EMPTY_FRAME, renew: { id: 1, leaseIds: [leaseId] } });
    await second.until((frames) => frames.find((frame) => frame.renewAck));
    clock.advance(5001);
    coordinator.expireDue();
    for (const told of [reader, second]) {
      const [ended] = await told.until(
        (frames) => frames.find((frame) => frame.leaseEnded.length > 0)?.leaseEnded,
      );
      assert.deepEqual(ended, { leaseId, cause: proto.Cause.LEASE_EXPIRED, revision: 1 });
    }
    assert.ok(bystander.frames.every((frame) => frame.leaseEnded.length === 0));
    assert.equal(door.stats().leaseInterests, 0);
  });

  it("carries two renewals of one turn in two frames", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    coordinator.hold();
    stream.write({ ...EMPTY_FRAME, renew: { id: 1, leaseIds: ["5"] } });
    stream.write({
      ...EMPTY_FRAME,
      renew: { id: 2, leaseIds: ["6"] },
      requests: [request(1, putOf("", ""))],
    });
    await reader.response(1);
    coordinator.release();
    const ids = await reader.until((frames) => {
      const acks = frames.flatMap((frame) => frame.renewAck?.id ?? []);
      return acks.length === 2 ? acks : undefined;
    });
    assert.deepEqual(ids, [1, 2]);
  });

  it("delivers a watch: created, events by revision, progress on request, nothing after cancel", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(7, "/w", { returnPrevious: true })] });
    const [created] = await reader.until(
      (frames) => frames.find((f) => f.watchCreated.length > 0)?.watchCreated,
    );
    assert.deepEqual(created, { watchId: 7, revision: 1 });
    stream.write({ ...EMPTY_FRAME, requests: [request(1, putOf("/w", "1")), request(2, putOf("/w", "2"))] });
    const events = await reader.until((frames) => {
      const all = frames.flatMap((frame) => frame.watchEvents);
      return all.length === 2 ? all : undefined;
    });
    assert.deepEqual(
      events.map(({ watchId, revision, events: [event] }) => [
        watchId,
        revision,
        event?.kv?.value.toString(),
        event?.previous?.value.toString(),
      ]),
      [
        [7, 2, "1", undefined],
        [7, 3, "2", "1"],
      ],
    );
    stream.write({ ...EMPTY_FRAME, watchProgress: [7] });
    const [progress] = await reader.until(
      (frames) => frames.find((f) => f.watchProgress.length > 0)?.watchProgress,
    );
    assert.deepEqual(progress, { watchId: 7, revision: 3 });
    const before = reader.frames.length;
    stream.write({ ...EMPTY_FRAME, watchCancels: [7], requests: [request(3, putOf("/w", "3"))] });
    await reader.response(3);
    assert.ok(reader.frames.slice(before).every((frame) => frame.watchEvents.length === 0));
    assert.equal(coordinator.openWatches, 0);
  });

  it("tells watches of one stream that see the same their events in one piece, and a cancelled one none", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    const watchCreates = [watchOf(1, "/w"), watchOf(2, "/w"), watchOf(3, "/other"), watchOf(4, "/w")];
    stream.write({ ...EMPTY_FRAME, watchCreates });
    await reader.until((frames) => frames.flatMap((frame) => frame.watchCreated)[3]);
    stream.write({ ...EMPTY_FRAME, requests: [request(1, putOf("/w", "1"))] });
    const told = await reader.until((frames) => frames.flatMap((frame) => frame.watchEvents)[0]);
    assert.deepEqual([told.watchId, ...told.alsoWatchIds], [1, 2, 4]);
    assert.deepEqual([told.revision, told.events[0]?.kv?.value.toString()], [2, "1"]);
    const before = reader.frames.length;
    stream.write({ ...EMPTY_FRAME, watchCancels: [1], requests: [request(2, putOf("/w", "2"))] });
    await reader.response(2);
    const events = reader.frames.slice(before).flatMap((frame) => frame.watchEvents);
    assert.deepEqual(
      events.map(({ watchId, alsoWatchIds }) => [watchId, ...alsoWatchIds]),
      [[2, 4]],
    );
  });

  it("ends a watch that cannot start, is compacted, or is one too many, each with its reason", async () => {
    await reopen({ watchesPerStreamMax: 1 });
    const stream = client.channel();
    const reader = new Reader(stream);
    const compact = operationBytes({ $case: "compact", value: { revision: 2 } });
    stream.write({ ...EMPTY_FRAME, requests: [request(1, putOf("/w", "1")), request(2, compact)] });
    await reader.response(2);
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(1, "/w", { omitPuts: true, omitDeletes: true })] });
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(2, "/w", { startRevision: 1 })] });
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(3, "/w"), watchOf(4, "/w")] });
    stream.write({
      ...EMPTY_FRAME,
      namespace: "nowhere",
      watchCancels: [3],
      watchCreates: [watchOf(5, "/w")],
    });
    const ended = await reader.until((frames) => {
      const all = frames.flatMap((frame) => frame.watchEnded);
      return all.length === 4 ? new Map(all.map((end) => [end.watchId, end.reason])) : undefined;
    });
    const code = (id: number): string | undefined => {
      const reason = ended.get(id);
      return reason?.$case === "failure" ? reason.value.code : undefined;
    };
    assert.equal(code(1), "invalid-argument");
    assert.deepEqual(ended.get(2), { $case: "compactRevision", value: 2 });
    assert.equal(code(4), "too-many-watches");
    assert.equal(code(5), "namespace-not-found");
  });

  it("ends the stream of a client that uses a watch id twice", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(1, "/a"), watchOf(1, "/b")] });
    assert.equal((await reader.ended)?.code, status.INVALID_ARGUMENT);
    assert.equal(coordinator.openWatches, 0);
  });

  it("holds a watch back while its client does not read, then delivers everything in order", async () => {
    await reopen({ unflushedBytesMax: 64 * 1024, frameTargetBytes: 32 * 1024 });
    const stream = client.channel();
    let last = 0;
    stream.once("data", () => stream.pause());
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(1, "/w")] });
    await once(stream, "data");
    const value = "x".repeat(16 * 1024);
    const writes = 400;
    for (let i = 0; i < writes; i += 1) {
      await new Promise<void>((resolve) => {
        const operation = { kind: "put" as const, key: Buffer.from("/w"), value: Buffer.from(value) };
        coordinator.mutate({ namespace: "default", epoch: 0, identity: { kind: "none" }, operation }, () =>
          resolve(),
        );
      });
    }
    const done = new Promise<void>((resolve) => {
      stream.on("data", (frame: proto.ServerFrame) => {
        for (const { revision } of frame.watchEvents) {
          assert.ok(revision > last, "events out of order");
          last = revision;
        }
        if (last === writes + 1) resolve();
      });
    });
    stream.resume();
    await done;
  });

  it("ends some of too many watches that fire at once as slow consumers, and keeps the stream", async () => {
    await reopen({ unflushedBytesMax: 64 * 1024, frameTargetBytes: 32 * 1024, pendingBytesMax: 512 * 1024 });
    const stream = client.channel();
    const reader = new Reader(stream);
    const ids = Array.from({ length: 100 }, (_, i) => i + 1);
    // Each another key: watches that see the same would share one copy.
    stream.write({ ...EMPTY_FRAME, watchCreates: ids.map((id) => watchOf(id, `/w/${id}`)) });
    const value = "x".repeat(8 * 1024);
    stream.write({ ...EMPTY_FRAME, requests: ids.map((id) => request(id, putOf(`/w/${id}`, value))) });
    const ended = await reader.until((frames) => {
      const seen = frames.flatMap((frame) => frame.watchEvents.map((events) => events.watchId));
      const cut = frames.flatMap((frame) => frame.watchEnded);
      return seen.length + cut.length === 100 ? cut : undefined;
    });
    assert.ok(ended.length > 0 && ended.length < 100, `${ended.length} ended`);
    for (const { watchId, reason } of ended) {
      assert.deepEqual(reason, { $case: "resumeRevision", value: watchId + 1 });
    }
    stream.write({ ...EMPTY_FRAME, requests: [request(101, rangeOf("/w/1", { keysOnly: true }))] });
    assert.equal(resultOf(await reader.response(101)).$case, "range");
  });

  it("refuses big reads while answers pile up, and cuts a client that still does not read at the bound", async () => {
    await reopen({ unflushedBytesMax: 64 * 1024, frameTargetBytes: 64 * 1024, pendingBytesMax: 1024 * 1024 });
    const stream = client.channel();
    const reader = new Reader(stream);
    await reader.until((frames) => frames[0]);
    await client.execute({ operation: proto.Operation.decode(putOf("/big", "x".repeat(128 * 1024))) });
    const reads = Array.from({ length: 16 }, (_, id) => request(id, rangeOf("/big")));
    stream.write({ ...EMPTY_FRAME, requests: reads });
    const refused = await reader.until((frames) => {
      const all = frames.flatMap((frame) => frame.responses);
      return all.length === 16 ? all.filter((response) => response.failure !== undefined) : undefined;
    });
    assert.ok(refused.length > 0 && refused.length < 16, `${refused.length} refused`);
    assert.ok(refused.every(({ failure }) => failure?.code === "overloaded" && failure.outcome === 1));

    const write: proto.PutOperation = {
      key: Buffer.from("/big"),
      value: Buffer.alloc(128 * 1024),
      leaseId: "0",
      sequential: false,
      returnPrevious: true,
    };
    const operation = operationBytes({ $case: "put", value: write });
    stream.pause();
    stream.write({ ...EMPTY_FRAME, requests: Array.from({ length: 16 }, (_, id) => request(id, operation)) });
    await client.execute({});
    stream.resume();
    assert.equal((await reader.ended)?.code, status.RESOURCE_EXHAUSTED);
  });

  it("finishes the answers of a client that half-closed, then ends the stream with OK", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    coordinator.hold();
    stream.write({
      ...EMPTY_FRAME,
      requests: [request(1, putOf("/k", "v"))],
      watchCreates: [watchOf(1, "/k")],
    });
    stream.end();
    while (coordinator.openWatches === 0 && door.stats().streams === 0) await client.execute({});
    coordinator.release();
    assert.equal(resultOf(await reader.response(1)).$case, "put");
    assert.equal(await reader.ended, undefined);
    assert.equal(coordinator.openWatches, 0);
  });

  it("cancels the watches of a client that went away", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({ ...EMPTY_FRAME, watchCreates: [watchOf(1, "/k")] });
    await reader.until((frames) => frames.find((frame) => frame.watchCreated.length > 0));
    stream.cancel();
    await reader.ended;
    while (coordinator.openWatches > 0) await client.execute({});
    assert.deepEqual(door.stats(), { streams: 0, watches: 0, leaseInterests: 0, unaryInFlight: 0 });
  });

  it("serves unary clients on the same path: results, refusals, tokens, renewals", async () => {
    const put: proto.Operation = {
      operation: {
        $case: "put",
        value: {
          key: Buffer.from("/u"),
          value: Buffer.from("1"),
          leaseId: "0",
          sequential: false,
          returnPrevious: false,
        },
      },
    };
    const first = await client.execute({ operation: put, requestToken: "token-1", namespace: "team" });
    assert.equal(first.result?.result?.$case, "put");
    const retry = await client.execute({ operation: put, requestToken: "token-1", namespace: "team" });
    assert.equal(retry.replayed, true);
    assert.deepEqual(retry.result, first.result);
    const both = await client.execute({ operation: put, requestToken: "t", clientId: 1, sequence: 1 });
    assert.equal(both.failure?.code, "invalid-argument");
    assert.equal((await client.execute({})).failure?.code, "invalid-argument");
    assert.equal(
      (await client.execute({ operation: put, namespace: "No Such" })).failure?.code,
      "invalid-argument",
    );
    const renewal = await client.execute({
      operation: { operation: { $case: "leaseRenew", value: { leaseIds: ["5"] } } },
    });
    assert.deepEqual(renewal.result?.result, {
      $case: "leaseRenew",
      value: { revision: 2, remainingMs: [0] },
    });
  });

  it("waits for the minimum revision of a serializable read", async () => {
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({
      ...EMPTY_FRAME,
      requests: [request(1, rangeOf("/k", { minRevision: 2, consistency: 2 }))],
    });
    stream.write({ ...EMPTY_FRAME, requests: [request(2, putOf("/k", "v"))] });
    const range = resultOf(await reader.response(1));
    assert.ok(range.$case === "range");
    assert.equal(range.value.kvs.length, 1);
  });

  it("answers Info, and UNIMPLEMENTED to services it does not have", async () => {
    const info = proto.InfoResponse.decode(
      await client.unary(proto.CoordinationService.info.path, Buffer.alloc(0)),
    );
    assert.equal(info.memberId, 1);
    await assert.rejects(client.unary("/etcdserverpb.KV/Range", Buffer.alloc(0)), {
      code: status.UNIMPLEMENTED,
    });
    await assert.rejects(client.unary(proto.CoordinationService.execute.path, Buffer.from([0x0a, 0x7f])), {
      code: status.INVALID_ARGUMENT,
    });
  });

  it("tells open channels that it shuts down", async () => {
    const reader = new Reader(client.channel());
    await reader.until((frames) => frames[0]);
    door.close();
    const error = await reader.ended;
    assert.equal(error?.code, status.UNAVAILABLE);
    assert.deepEqual(error.metadata.get("lockstep-code"), ["shutting-down"]);
  });

  it("refuses to listen beyond loopback without TLS", async () => {
    await assert.rejects(startGrpcServer({ host: "0.0.0.0", port: 0, services: [door] }), /without TLS/);
  });

  it("sends one answer above a frame's bound as a failure that says it was applied", async () => {
    await reopen({ serverFrameBytesMax: 1000 });
    const stream = client.channel();
    const reader = new Reader(stream);
    stream.write({
      ...EMPTY_FRAME,
      requests: [request(1, putOf("/k", "v".repeat(2000))), request(2, rangeOf("/k"))],
    });
    assert.equal((await reader.response(2)).failure?.code, "request-too-large");
    assert.equal(resultOf(await reader.response(1)).$case, "put");
    const revision: Revision = coordinator.info().revision;
    assert.equal(revision, 2);
  });
});
