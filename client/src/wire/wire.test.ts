import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import * as coordination from "@lockstep/proto/coordination";
import { LockstepError } from "../errors.ts";
import { KeyValue } from "../types.ts";
import { emptyServerFrame, readServerFrame } from "./frames.ts";
import { mapResult } from "./mapping.ts";
import { writeGet, writePut, writeRaw } from "./requests.ts";
import { readResult } from "./results.ts";
import type { ReceivedEvents } from "./watch-events.ts";
import { Writer } from "./writer.ts";

const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array));
const text = fc.string({ unit: "binary", maxLength: 150 });
const safe = fc.oneof(fc.nat(300), fc.maxSafeNat());
const leaseId = fc.oneof(fc.constant("0"), fc.bigInt(1n, 2n ** 63n - 1n).map(String), fc.nat(9).map(String));
const keyValue = fc.record({
  key: bytes,
  value: bytes,
  createRevision: safe,
  modRevision: safe,
  version: safe,
  leaseId,
});
const header = fc.record({
  id: safe,
  clientId: fc.oneof(fc.constant(0), safe),
  sequence: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
  acknowledgedBelow: safe,
  deadlineMs: fc.nat(),
});

function decodeOnly(writer: Writer): coordination.Request {
  const frame = coordination.ClientFrame.decode(writer.take());
  assert.equal(frame.requests.length, 1);
  return frame.requests[0]!;
}

function expectHeader(
  request: coordination.Request,
  sent: typeof header extends fc.Arbitrary<infer T> ? T : never,
) {
  assert.equal(request.id, sent.id);
  assert.equal(request.clientId, sent.clientId);
  assert.equal(request.sequence, sent.clientId === 0 ? 0 : sent.sequence);
  assert.equal(request.acknowledgedBelow, sent.clientId === 0 ? 0 : sent.acknowledgedBelow);
  assert.equal(request.deadlineMs, sent.deadlineMs);
}

test("a hand-written put reads back through the generated code, whatever its key, value and options", () => {
  const writer = new Writer();
  fc.assert(
    fc.property(
      header,
      fc.oneof(bytes, text),
      fc.oneof(bytes, text),
      fc.record({ leaseId, sequential: fc.boolean(), returnPrevious: fc.boolean() }),
      (head, key, value, options) => {
        writePut(writer, head, { key, value, ...options });
        const request = decodeOnly(writer);
        expectHeader(request, head);
        assert.deepEqual(coordination.Operation.decode(request.operation).operation, {
          $case: "put",
          value: { key: Buffer.from(key as string), value: Buffer.from(value as string), ...options },
        });
      },
    ),
  );
});

test("a hand-written get reads back through the generated code", () => {
  const writer = new Writer();
  fc.assert(
    fc.property(header, fc.oneof(bytes, text), fc.boolean(), (head, key, serializable) => {
      writeGet(writer, head, key, serializable);
      const request = decodeOnly(writer);
      expectHeader(request, head);
      assert.deepEqual(coordination.Operation.decode(request.operation).operation, {
        $case: "range",
        value: {
          range: { key: Buffer.from(key as string), rangeEnd: undefined },
          revision: 0,
          limit: 0,
          keysOnly: false,
          countOnly: false,
          reverse: false,
          consistency: serializable ? coordination.Consistency.SERIALIZABLE : 0,
          minRevision: 0,
        },
      });
    }),
  );
});

test("requests of one frame follow each other, and a serialized operation is passed on as it is", () => {
  const writer = new Writer();
  fc.assert(
    fc.property(fc.array(fc.tuple(header, bytes), { maxLength: 20 }), (requests) => {
      for (const [head, operation] of requests) writeRaw(writer, head, operation);
      const frame = coordination.ClientFrame.decode(writer.take());
      assert.equal(frame.requests.length, requests.length);
      frame.requests.forEach((request, index) => {
        expectHeader(request, requests[index]![0]);
        assert.deepEqual(request.operation, requests[index]![1]);
      });
    }),
  );
});

const putResult = fc.record({
  $case: fc.constant("put" as const),
  value: fc.record({
    revision: safe,
    key: bytes,
    createRevision: safe,
    version: safe,
    previous: fc.option(keyValue, { nil: undefined }),
  }),
});
const rangeResult = fc.record({
  $case: fc.constant("range" as const),
  value: fc.record({ revision: safe, kvs: fc.array(keyValue), count: safe, more: fc.boolean() }),
});
const deleteResult = fc.record({
  $case: fc.constant("delete" as const),
  value: fc.record({ revision: safe, deleted: safe, previous: fc.array(keyValue) }),
});
const step = fc.record({ result: fc.oneof(putResult, rangeResult, deleteResult) });
const txnResult = fc.record({
  $case: fc.constant("txn" as const),
  value: fc.record({
    succeeded: fc.boolean(),
    revision: safe,
    responses: fc.array(step, { maxLength: 5 }),
    failures: fc.array(fc.record({ index: fc.nat(), actual: fc.option(keyValue, { nil: undefined }) }), {
      maxLength: 3,
    }),
  }),
});
const anyResult = fc.oneof(putResult, rangeResult, deleteResult, txnResult);

test("a result read by hand is the one that the generated code reads", () => {
  fc.assert(
    fc.property(anyResult, bytes, (result, before) => {
      const encoded = coordination.Result.encode({ result }).finish();
      const frame = Buffer.concat([before, encoded]);
      assert.deepEqual(readResult(frame, before.length, frame.length), mapResult(result));
    }),
  );
});

test("a transaction's step of a kind that this client does not know is refused, not left out", () => {
  const nested = {
    $case: "txn" as const,
    value: { succeeded: true, revision: 3, responses: [], failures: [] },
  };
  for (const result of [nested, undefined]) {
    const value = { succeeded: true, revision: 3, responses: [{ result }], failures: [] };
    const frame = Buffer.from(coordination.Result.encode({ result: { $case: "txn", value } }).finish());
    assert.throws(() => readResult(frame, 0, frame.length), { code: "protocol-error", outcome: "applied" });
  }
});

const watchEvent = fc.record({
  kind: fc.constantFrom(coordination.WatchEvent_Kind.PUT, coordination.WatchEvent_Kind.DELETE),
  kv: keyValue,
  previous: fc.option(keyValue, { nil: undefined }),
  cause: fc.constantFrom(
    ...[coordination.Cause.CLIENT, coordination.Cause.LEASE_EXPIRED, coordination.Cause.LEASE_REVOKED],
    ...[coordination.Cause.FORCED, coordination.Cause.MOVED],
  ),
});
const CAUSES = ["client", "lease-expired", "lease-revoked", "forced", "moved"] as const;

/** What the client makes of events. */
function received({ watchId, alsoWatchIds, events, revision }: coordination.WatchEvents): ReceivedEvents {
  return {
    watchIds: [watchId, ...alsoWatchIds],
    batch: {
      revision,
      events: events.map(({ kind, kv, previous, cause }) => ({
        kind: kind === coordination.WatchEvent_Kind.DELETE ? "delete" : "put",
        kv: new KeyValue(kv!),
        ...(previous === undefined ? {} : { previous: new KeyValue(previous) }),
        cause: CAUSES[cause - 1]!,
      })),
    },
  };
}

test("a server frame read by hand has the responses and the other parts that were sent", () => {
  const response = fc.record({
    id: safe,
    result: fc.option(bytes, { nil: undefined }),
    failure: fc.option(
      fc.record({
        code: text,
        outcome: fc.constant<coordination.Outcome>(coordination.Outcome.UNKNOWN),
        message: text,
        compactRevision: safe,
        retryAfterMs: fc.nat(),
      }),
      { nil: undefined },
    ),
    replayed: fc.boolean(),
  });
  const parts = fc.record({
    responses: fc.array(response, { maxLength: 8 }),
    renewAck: fc.option(
      fc.record({
        id: safe,
        revision: safe,
        remainingMs: fc.array(fc.nat()),
        failure: fc.constant(undefined),
      }),
      { nil: undefined },
    ),
    watchCreated: fc.array(fc.record({ watchId: safe, revision: safe }), { maxLength: 3 }),
    watchEvents: fc.array(
      fc.record({
        watchId: safe,
        alsoWatchIds: fc.array(safe, { maxLength: 3 }),
        events: fc.array(watchEvent, { maxLength: 3 }),
        revision: safe,
      }),
      { maxLength: 3 },
    ),
    watchProgress: fc.array(fc.record({ watchId: safe, revision: safe }), { maxLength: 3 }),
    watchEnded: fc.array(
      fc.record({ watchId: safe, reason: fc.constant({ $case: "compactRevision" as const, value: 7 }) }),
      { maxLength: 3 },
    ),
    leaseEnded: fc.array(
      fc.record({
        leaseId,
        cause: fc.constant<coordination.Cause>(coordination.Cause.FORCED),
        revision: safe,
      }),
      { maxLength: 3 },
    ),
    info: fc.constant(undefined),
  });
  fc.assert(
    fc.property(parts, (sent) => {
      const frame = Buffer.from(coordination.ServerFrame.encode(sent).finish());
      const got = emptyServerFrame();
      const events: ReceivedEvents[] = [];
      readServerFrame(frame, {
        response: (id, start, end, failure) =>
          got.responses.push({
            id,
            result: start < 0 ? undefined : frame.subarray(start, end),
            failure,
            replayed: sent.responses[got.responses.length]!.replayed,
          }),
        renewAck: (ack) => (got.renewAck = ack),
        watchCreated: (created) => got.watchCreated.push(created),
        watchEvents: (one) => events.push(one),
        watchProgress: (progress) => got.watchProgress.push(progress),
        watchEnded: (ended) => got.watchEnded.push(ended),
        leaseEnded: (ended) => got.leaseEnded.push(ended),
        info: (info) => (got.info = info),
      });
      const { watchEvents, ...others } = coordination.ServerFrame.decode(frame);
      assert.deepEqual(got, { ...others, watchEvents: [] });
      assert.deepEqual(events, watchEvents.map(received));
    }),
  );
});

test("a frame that is cut anywhere is refused or read short, never read past its end", () => {
  const whole = Buffer.from(
    coordination.ServerFrame.encode({
      responses: [{ id: 70_000, result: Buffer.alloc(40, 1), failure: undefined, replayed: true }],
      renewAck: undefined,
      watchCreated: [],
      watchEvents: [],
      watchProgress: [],
      watchEnded: [],
      leaseEnded: [],
      info: undefined,
    }).finish(),
  );
  for (let length = 1; length < whole.length; length++) {
    assert.throws(
      () =>
        readServerFrame(whole.subarray(0, length), {
          response: () => assert.fail("a cut response was delivered"),
          renewAck: () => undefined,
          watchCreated: () => undefined,
          watchEvents: () => undefined,
          watchProgress: () => undefined,
          watchEnded: () => undefined,
          leaseEnded: () => undefined,
          info: () => undefined,
        }),
      LockstepError,
    );
  }
});
