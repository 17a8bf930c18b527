import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { coordination as proto } from "@lockstep/proto";
import fc from "fast-check";
import type {
  KeyValue,
  LeaseId,
  Revision,
  TxnOperationResult,
  TxnResult,
  WatchEvent,
} from "../coordinator/index.ts";
import { FrameDecoder } from "./decode-frame.ts";
import type { DecodedOperation } from "./decode-operation.ts";
import { OperationDecoder } from "./decode-operation.ts";
import type { EncodableResult } from "./encode-result.ts";
import { resultBytes, writeResultField } from "./encode-result.ts";
import { EventEncoder } from "./event-encoder.ts";
import { Outbox } from "./outbox.ts";
import { MalformedError, ProtoReader } from "./reader.ts";
import { ReverseWriter } from "./writer.ts";

const bytes = fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array));
const safe = fc.oneof(fc.maxSafeNat(), fc.nat(300));
const leaseId = fc.oneof(
  fc.constant("0"),
  fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }).map(String),
  fc.nat().map(String),
) as fc.Arbitrary<LeaseId>;
const range: fc.Arbitrary<proto.KeyRange> = fc.record({
  key: bytes,
  rangeEnd: fc.option(bytes, { nil: undefined }),
});

const put: fc.Arbitrary<proto.PutOperation> = fc.record({
  key: bytes,
  value: bytes,
  leaseId,
  sequential: fc.boolean(),
  returnPrevious: fc.boolean(),
});
const remove: fc.Arbitrary<proto.DeleteOperation> = fc.record({ range, returnPrevious: fc.boolean() });
const rangeOperation: fc.Arbitrary<proto.RangeOperation> = fc.record({
  range,
  revision: safe,
  limit: fc.nat(),
  keysOnly: fc.boolean(),
  countOnly: fc.boolean(),
  reverse: fc.boolean(),
  consistency: fc.constantFrom(0, 1, 2),
  minRevision: safe,
});
const compare: fc.Arbitrary<proto.Compare> = fc.record({
  key: bytes,
  target: fc.constantFrom(1, 2, 3, 4, 5),
  operator: fc.constantFrom(1, 2, 3, 4),
  number: safe,
  value: bytes,
  leaseId,
});
const few = { maxLength: 4 };
const plainStep: fc.Arbitrary<proto.TxnStep> = fc.oneof(
  put.map((value) => ({ step: { $case: "put" as const, value } })),
  remove.map((value) => ({ step: { $case: "delete" as const, value } })),
  rangeOperation.map((value) => ({ step: { $case: "range" as const, value } })),
);
const txnOf = (steps: fc.Arbitrary<proto.TxnStep>): fc.Arbitrary<proto.TxnOperation> =>
  fc.record({
    compares: fc.array(compare, few),
    success: fc.array(steps, few),
    failure: fc.array(steps, few),
  });
const step: fc.Arbitrary<proto.TxnStep> = fc.oneof(
  { weight: 4, arbitrary: plainStep },
  {
    weight: 1,
    arbitrary: txnOf(plainStep).map((value) => ({ step: { $case: "txn" as const, value } })),
  },
);
const operation: fc.Arbitrary<NonNullable<proto.Operation["operation"]>> = fc.oneof(
  put.map((value) => ({ $case: "put" as const, value })),
  remove.map((value) => ({ $case: "delete" as const, value })),
  rangeOperation.map((value) => ({ $case: "range" as const, value })),
  txnOf(step).map((value) => ({ $case: "txn" as const, value })),
  fc
    .record({ leaseId, ttlMs: safe, owner: fc.string() })
    .map((value) => ({ $case: "leaseGrant" as const, value })),
  leaseId.map((id) => ({ $case: "leaseRevoke" as const, value: { leaseId: id } })),
  safe.map((revision) => ({ $case: "compact" as const, value: { revision } })),
  fc.constant({ $case: "registerClient" as const, value: {} }),
  fc.record({ leaseId, keys: fc.boolean() }).map((value) => ({ $case: "leaseTimeToLive" as const, value })),
  fc.record({ after: leaseId, limit: fc.nat() }).map((value) => ({ $case: "leaseList" as const, value })),
  fc.array(leaseId, few).map((leaseIds) => ({ $case: "leaseRenew" as const, value: { leaseIds } })),
);

/** What the hand-written decoder must produce, told from the generated message. */
function expectedRange(message: proto.KeyRange | undefined): unknown {
  const key = message?.key ?? Buffer.alloc(0);
  return message?.rangeEnd === undefined ? { key } : { key, rangeEnd: message.rangeEnd };
}

function expectedPut(message: proto.PutOperation): unknown {
  const { key, value, sequential, returnPrevious } = message;
  const lease = message.leaseId === "0" ? {} : { leaseId: message.leaseId };
  return { kind: "put", key, value, ...lease, sequential, returnPrevious };
}

function expectedRangeOperation(message: proto.RangeOperation): unknown {
  const { limit, keysOnly, countOnly, reverse, revision } = message;
  const at = revision === 0 ? {} : { revision };
  return { kind: "range", range: expectedRange(message.range), ...at, limit, keysOnly, countOnly, reverse };
}

function expectedDelete(message: proto.DeleteOperation): unknown {
  return { kind: "delete", range: expectedRange(message.range), returnPrevious: message.returnPrevious };
}

function expectedStep({ step: entry }: proto.TxnStep): unknown {
  assert.ok(entry);
  if (entry.$case === "put") return expectedPut(entry.value);
  if (entry.$case === "txn") return expectedTxn(entry.value);
  return entry.$case === "delete" ? expectedDelete(entry.value) : expectedRangeOperation(entry.value);
}

function expectedTxn(message: proto.TxnOperation): unknown {
  return {
    kind: "txn",
    compares: message.compares.map(expectedCompare),
    success: message.success.map(expectedStep),
    failure: message.failure.map(expectedStep),
  };
}

const TARGETS = ["", "version", "create-revision", "mod-revision", "value", "lease"];
const OPERATORS = ["", "=", "!=", "<", ">"];

function expectedCompare(message: proto.Compare): unknown {
  const { key, value, number } = message;
  const operand = message.target === 4 ? value : message.target === 5 ? message.leaseId : number;
  return { key, target: TARGETS[message.target], operator: OPERATORS[message.operator], operand };
}

function expectedOperation(message: NonNullable<proto.Operation["operation"]>): unknown {
  const { value } = message;
  switch (message.$case) {
    case "put":
      return expectedPut(message.value);
    case "delete":
      return expectedDelete(message.value);
    case "range":
      return expectedRangeOperation(message.value);
    case "txn":
      return expectedTxn(message.value);
    case "leaseGrant": {
      const { ttlMs, owner } = message.value;
      const lease = message.value.leaseId === "0" ? {} : { leaseId: message.value.leaseId };
      return { kind: "lease-grant", ...lease, ttlMs, owner };
    }
    case "leaseList": {
      const after = message.value.after === "0" ? {} : { after: message.value.after };
      return { kind: "lease-list", ...after, limit: message.value.limit };
    }
    case "leaseRevoke":
      return { kind: "lease-revoke", ...value };
    case "compact":
      return { kind: "compact", ...value };
    case "registerClient":
      return { kind: "register-client" };
    case "leaseTimeToLive":
      return { kind: "lease-time-to-live", ...value };
    case "leaseRenew":
      return { kind: "lease-renew", ...value };
  }
}

/** Views of different buffers must compare by content. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, plain(entry)]));
}

function decode(buffer: Buffer): DecodedOperation {
  return new OperationDecoder(new ProtoReader(), 128).decode(buffer, 0, buffer.length);
}

const keyValue: fc.Arbitrary<KeyValue> = fc.record({
  key: bytes,
  value: bytes,
  createRevision: safe as fc.Arbitrary<Revision>,
  modRevision: safe as fc.Arbitrary<Revision>,
  version: safe,
  leaseId,
});
const revision = safe as fc.Arbitrary<Revision>;
const putResult = fc.record(
  {
    kind: fc.constant("put" as const),
    revision,
    key: bytes,
    createRevision: revision,
    version: safe,
    previous: keyValue,
  },
  { requiredKeys: ["kind", "revision", "key", "createRevision", "version"] },
);
const deleteResult = fc.record({
  kind: fc.constant("delete" as const),
  revision,
  deleted: safe,
  previous: fc.array(keyValue, few),
});
const rangeResult = fc.record({
  kind: fc.constant("range" as const),
  revision,
  kvs: fc.array(keyValue, few),
  count: safe,
  more: fc.boolean(),
});
const plainResponse = fc.oneof(putResult, deleteResult, rangeResult) as fc.Arbitrary<TxnOperationResult>;
const txnResponse = fc.oneof(
  { weight: 4, arbitrary: plainResponse },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("txn" as const),
      succeeded: fc.boolean(),
      revision,
      responses: fc.array(plainResponse, few),
      failures: fc.constant([]),
    }),
  },
);
const result = fc.oneof(
  putResult,
  deleteResult,
  rangeResult,
  fc.record({
    kind: fc.constant("txn" as const),
    succeeded: fc.boolean(),
    revision,
    responses: fc.array(txnResponse, few),
    failures: fc.array(fc.record({ index: fc.nat(), actual: keyValue }, { requiredKeys: ["index"] }), few),
  }),
  fc.record({ kind: fc.constant("lease-grant" as const), leaseId, ttlMs: safe, revision }),
  fc.record({ kind: fc.constant("lease-revoke" as const), revision, deleted: safe }),
  fc.record({ kind: fc.constant("compact" as const), revision }),
  fc.record({ kind: fc.constant("register-client" as const), clientId: safe, revision }),
  fc.record({
    kind: fc.constant("lease-time-to-live" as const),
    revision,
    leaseId,
    remainingMs: fc.oneof(safe, fc.constant(-1)),
    ttlMs: safe,
    owner: fc.string({ unit: "binary" }),
    keys: fc.array(bytes, few),
  }),
  fc.record({
    kind: fc.constant("lease-list" as const),
    revision,
    leases: fc.array(fc.record({ leaseId, ttlMs: safe, owner: fc.string() }), few),
    more: fc.boolean(),
  }),
  fc.record({ kind: fc.constant("lease-renew" as const), revision, remainingMs: fc.array(safe, few) }),
) as fc.Arbitrary<EncodableResult>;

/** The generated message of a result, built field by field. */
function message(entry: EncodableResult): proto.Result {
  const previous = (kv: KeyValue | undefined): proto.KeyValue | undefined =>
    kv === undefined ? undefined : { ...kv, key: Buffer.from(kv.key), value: Buffer.from(kv.value) };
  const small = (part: TxnOperationResult): NonNullable<proto.TxnStepResult["result"]> => {
    switch (part.kind) {
      case "put":
        return {
          $case: "put",
          value: { ...part, key: Buffer.from(part.key), previous: previous(part.previous) },
        };
      case "delete":
        return { $case: "delete", value: { ...part, previous: part.previous.map((kv) => previous(kv)!) } };
      case "range":
        return { $case: "range", value: { ...part, kvs: part.kvs.map((kv) => previous(kv)!) } };
      case "txn":
        return { $case: "txn", value: txn(part) };
    }
  };
  const txn = (part: TxnResult): proto.TxnResult => ({
    ...part,
    responses: part.responses.map((inner) => ({ result: small(inner) })),
    failures: part.failures.map(({ index, actual }) => ({ index, actual: previous(actual) })),
  });
  switch (entry.kind) {
    case "put":
    case "delete":
    case "range":
      return { result: small(entry) };
    case "txn":
      return {
        result: {
          $case: "txn",
          value: txn(entry),
        },
      };
    case "lease-grant":
      return { result: { $case: "leaseGrant", value: entry } };
    case "lease-revoke":
      return { result: { $case: "leaseRevoke", value: entry } };
    case "compact":
      return { result: { $case: "compact", value: entry } };
    case "register-client":
      return { result: { $case: "registerClient", value: entry } };
    case "lease-time-to-live":
      return {
        result: {
          $case: "leaseTimeToLive",
          value: { ...entry, keys: entry.keys.map((key) => Buffer.from(key)) },
        },
      };
    case "lease-list":
      return { result: { $case: "leaseList", value: { ...entry, leases: [...entry.leases] } } };
    case "lease-renew":
      return { result: { $case: "leaseRenew", value: { ...entry, remainingMs: [...entry.remainingMs] } } };
  }
}

describe("the native codec", () => {
  it("decodes every operation to what the generated code says it is", () => {
    fc.assert(
      fc.property(operation, (entry) => {
        const encoded = Buffer.from(proto.Operation.encode({ operation: entry }).finish());
        assert.deepEqual(plain(decode(encoded)), plain(expectedOperation(entry)));
      }),
      { numRuns: 500 },
    );
  });

  it("tells a range's consistency and minimum revision beside the operation", () => {
    fc.assert(
      fc.property(rangeOperation, (value) => {
        const encoded = Buffer.from(
          proto.Operation.encode({ operation: { $case: "range", value } }).finish(),
        );
        const decoder = new OperationDecoder(new ProtoReader(), 128);
        decoder.decode(encoded, 0, encoded.length);
        assert.equal(decoder.serializable, value.consistency === 2);
        assert.equal(decoder.minRevision, value.minRevision);
      }),
    );
  });

  it("encodes every result byte for byte as the generated code does", () => {
    const writer = new ReverseWriter(64);
    fc.assert(
      fc.property(result, (entry) => {
        writeResultField(writer, entry);
        const encoded = writer.finish();
        assert.equal(
          encoded.toString("hex"),
          Buffer.from(proto.Result.encode(message(entry)).finish()).toString("hex"),
        );
        assert.ok(resultBytes(entry) >= encoded.length, "the size estimate is below the truth");
      }),
      { numRuns: 500 },
    );
  });

  it("decodes every client frame to what the generated code says it is", () => {
    const request = fc.record({
      id: safe,
      clientId: safe,
      sequence: safe,
      acknowledgedBelow: safe,
      deadlineMs: fc.nat(),
      operation: bytes,
    });
    const watchCreate = fc.record({
      watchId: safe,
      range: fc.option(range, { nil: undefined }),
      startRevision: safe,
      returnPrevious: fc.boolean(),
      omitPuts: fc.boolean(),
      omitDeletes: fc.boolean(),
    });
    const frame: fc.Arbitrary<proto.ClientFrame> = fc.record({
      namespace: fc.string(),
      epoch: safe,
      requests: fc.array(request, few),
      renew: fc.option(fc.record({ id: safe, leaseIds: fc.array(leaseId) }), { nil: undefined }),
      watchCreates: fc.array(watchCreate, few),
      watchCancels: fc.array(safe, few),
      watchProgress: fc.array(safe, few),
    });
    const decoder = new FrameDecoder(new ProtoReader(), {
      requestsPerFrameMax: 10,
      renewalsPerFrameMax: 100,
      watchEntriesPerFrameMax: 10,
    });
    fc.assert(
      fc.property(frame, (entry) => {
        const encoded = Buffer.from(proto.ClientFrame.encode(entry).finish());
        const { requests, bytes: whole, renewal, watchCreates, ...rest } = decoder.decode(encoded);
        assert.deepEqual(plain(rest), {
          namespace: entry.namespace,
          epoch: entry.epoch,
          watchCancels: entry.watchCancels,
          watchProgress: entry.watchProgress,
        });
        assert.deepEqual(plain(renewal), plain(entry.renew));
        assert.deepEqual(
          plain(watchCreates),
          plain(entry.watchCreates.map((create) => ({ ...create, range: expectedRange(create.range) }))),
        );
        const opened = requests.map(({ start, end, token, ...request }) => {
          assert.equal(token, "");
          return { ...request, operation: whole.subarray(start, end) };
        });
        assert.deepEqual(plain(opened), plain(entry.requests));
      }),
      { numRuns: 300 },
    );
  });

  it("never reads outside a message, whatever the bytes", () => {
    const decoder = new FrameDecoder(new ProtoReader(), {
      requestsPerFrameMax: 10,
      renewalsPerFrameMax: 100,
      watchEntriesPerFrameMax: 10,
    });
    let malformed = 0;
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (noise) => {
        for (const run of [
          (): unknown => decoder.decode(Buffer.from(noise)),
          (): unknown => decoder.decodeExecute(Buffer.from(noise)),
          (): unknown => decode(Buffer.from(noise)),
        ]) {
          try {
            run();
          } catch (error) {
            assert.ok(error instanceof MalformedError, String(error));
            malformed += 1;
          }
        }
      }),
      { numRuns: 1000 },
    );
    assert.ok(malformed > 0);
  });

  it("refuses every proper prefix of a put that cuts a field", () => {
    const value = {
      key: Buffer.from("/k"),
      value: Buffer.from("v"),
      leaseId: "81",
      sequential: true,
      returnPrevious: true,
    };
    const whole = Buffer.from(proto.Operation.encode({ operation: { $case: "put", value } }).finish());
    for (let end = 0; end < whole.length; end += 1) {
      assert.throws(() => decode(whole.subarray(0, end)), MalformedError, `prefix of ${end} bytes`);
    }
  });

  it("refuses a frame with one entry too many before decoding it", () => {
    const bounds = { requestsPerFrameMax: 2, renewalsPerFrameMax: 3, watchEntriesPerFrameMax: 2 };
    const decoder = new FrameDecoder(new ProtoReader(), bounds);
    const request = Buffer.from([0x1a, 0]);
    assert.equal(decoder.decode(Buffer.concat([request, request])).requests.length, 2);
    assert.throws(() => decoder.decode(Buffer.concat([request, request, request])), /more than 2 requests/);
    const leases = (count: number): Buffer =>
      Buffer.from([0x22, count + 2, 0x12, count, ...Array<number>(count).fill(1)]);
    assert.equal(decoder.decode(leases(3)).renewal?.leaseIds.length, 3);
    assert.throws(() => decoder.decode(leases(4)), /more than 3 leases/);
  });

  it("steps over fields of a newer protocol", () => {
    const known = Buffer.from(proto.ClientFrame.encode({ ...EMPTY_FRAME, namespace: "a" }).finish());
    const unknown = Buffer.from([
      0x78, 0x96, 0x01, 0x7a, 0x02, 1, 2, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8,
    ]);
    const decoder = new FrameDecoder(new ProtoReader(), {
      requestsPerFrameMax: 1,
      renewalsPerFrameMax: 1,
      watchEntriesPerFrameMax: 1,
    });
    assert.equal(decoder.decode(Buffer.concat([unknown, known, unknown])).namespace, "a");
  });

  it("encodes watch events once for all watches of the same change, in order, cut between revisions only", () => {
    const kv = (key: string, modRevision: number): KeyValue => ({
      key: Buffer.from(key),
      value: Buffer.alloc(400, 1),
      createRevision: 3 as Revision,
      modRevision: modRevision as Revision,
      version: 1,
      leaseId: "81" as LeaseId,
    });
    const event = (key: string, at: number): WatchEvent => ({
      kind: "put",
      kv: kv(key, at),
      cause: "client",
    });
    const encoder = new EventEncoder(1000);
    const one = event("a", 5);
    assert.equal(encoder.encode([one], 5 as Revision), encoder.encode([one], 5 as Revision));
    assert.notEqual(encoder.encode([one], 5 as Revision), encoder.encode([event("a", 5)], 5 as Revision));

    const many = [event("a", 5), event("b", 5), event("c", 5), event("d", 6), event("e", 7), event("f", 7)];
    const chunks = encoder.encode(many, 9 as Revision);
    assert.deepEqual(
      chunks.map((chunk) => chunk.revision),
      [5, 9],
    );
    const keys = chunks.flatMap((chunk) =>
      proto.WatchEvents.decode(chunk.bytes).events.map((entry) => entry.kv?.key.toString()),
    );
    assert.deepEqual(keys, ["a", "b", "c", "d", "e", "f"]);
  });

  it("seals a frame that the generated code reads back whole", () => {
    const outbox = new Outbox();
    const failure = {
      code: "compacted",
      outcome: "unknown",
      message: "é",
      compactRevision: 7 as Revision,
    } as const;
    outbox.addResponse(1, { ok: false, failure });
    outbox.addResponse(2, {
      ok: true,
      replayed: true,
      result: { kind: "compact", revision: 9 as Revision },
    });
    outbox.addAck(3, { ok: true, revision: 9 as Revision, remainingMs: [0, 5000] });
    outbox.addEnd(4, { kind: "slow-consumer", resumeRevision: 12 as Revision });
    outbox.addEnd(5, { kind: "cancelled", failure });
    outbox.addLeaseEnd({
      namespace: "n",
      leaseId: "81" as LeaseId,
      cause: "forced",
      revision: 9 as Revision,
    });
    const frame = proto.ServerFrame.decode(outbox.seal(new ReverseWriter()));
    assert.equal(outbox.isEmpty, true);
    assert.deepEqual(
      frame.responses.map(({ id, replayed }) => [id, replayed]),
      [
        [1, false],
        [2, true],
      ],
    );
    assert.deepEqual(frame.responses[0]?.failure, { ...failure, outcome: 3, retryAfterMs: 0 });
    assert.equal(frame.responses[0].result, undefined);
    assert.deepEqual(frame.renewAck, { id: 3, revision: 9, remainingMs: [0, 5000], failure: undefined });
    assert.deepEqual(
      frame.watchEnded.map((ended) => ended.reason?.$case),
      ["resumeRevision", "failure"],
    );
    assert.deepEqual(frame.leaseEnded, [{ leaseId: "81", cause: 4, revision: 9 }]);
  });
});

const EMPTY_FRAME: proto.ClientFrame = {
  namespace: "",
  epoch: 0,
  requests: [],
  renew: undefined,
  watchCreates: [],
  watchCancels: [],
  watchProgress: [],
};
