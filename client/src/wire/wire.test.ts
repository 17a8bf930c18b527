import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import * as coordination from "@lockstep/proto/coordination";
import { LockstepError } from "../errors.ts";
import { emptyServerFrame, readServerFrame } from "./frames.ts";
import { mapResult } from "./mapping.ts";
import { writeGet, writePut, writeRaw } from "./requests.ts";
import { readResult } from "./results.ts";
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
const anyResult = fc.oneof(putResult, rangeResult, deleteResult);

test("a result read by hand is the one that the generated code reads", () => {
  fc.assert(
    fc.property(anyResult, bytes, (result, before) => {
      const encoded = coordination.Result.encode({ result }).finish();
      const frame = Buffer.concat([before, encoded]);
      assert.deepEqual(readResult(frame, before.length, frame.length), mapResult(result));
    }),
  );
});

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
        events: fc.constant<coordination.WatchEvent[]>([]),
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
        watchEvents: (events) => got.watchEvents.push(events),
        watchProgress: (progress) => got.watchProgress.push(progress),
        watchEnded: (ended) => got.watchEnded.push(ended),
        leaseEnded: (ended) => got.leaseEnded.push(ended),
        info: (info) => (got.info = info),
      });
      assert.deepEqual(got, coordination.ServerFrame.decode(frame));
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
