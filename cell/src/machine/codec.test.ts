import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type {
  Failure,
  KeyValue,
  LeaseId,
  ReadOperation,
  ReadResult,
  RequestIdentity,
  Revision,
} from "@lockstep/gateway/coordinator";
import type { Term } from "../raft/types.ts";
import {
  createCommandEncoder,
  DecodeError,
  decodeCommandBatch,
  decodeFailure,
  decodeOutcome,
  decodeReadOperation,
  decodeReadResult,
  decodeWriteOperation,
  encodeFailure,
  encodeOutcome,
  encodeReadOperation,
  encodeReadResult,
  encodeWriteOperation,
} from "./index.ts";
import { ByteReader, ByteWriter, isLeaseId } from "./codec/primitives.ts";
import { operation, rangeOperation, record } from "./testing/arbitraries.ts";
import { bytes, client, command, lease, Member, put } from "./testing/harness.ts";
import { decodeText, encodeText } from "./text.ts";
import type { Command } from "./types.ts";

const safe = fc.oneof(fc.nat(), fc.maxSafeNat());
const anyLease = fc.bigInt({ min: 1n, max: (1n << 63n) - 1n }).map((id) => String(id) as LeaseId);
const anyBytes = fc.uint8Array({ maxLength: 80 }).map((drawn) => new Uint8Array(drawn));
const kv: fc.Arbitrary<KeyValue> = record({
  key: anyBytes,
  value: anyBytes,
  createRevision: safe as fc.Arbitrary<Revision>,
  modRevision: safe as fc.Arbitrary<Revision>,
  version: safe,
  leaseId: fc.oneof(anyLease, fc.constant("0" as LeaseId)),
});
const identity: fc.Arbitrary<RequestIdentity> = fc.oneof(
  fc.constant({ kind: "none" as const }),
  fc.tuple(safe, safe, safe).map(([id, sequence, low]) => client(id, sequence, low)),
  fc.string({ unit: "grapheme", maxLength: 20 }).map((token) => ({ kind: "token" as const, token })),
);
const anyCommand: fc.Arbitrary<Command> = fc.oneof(
  record({
    kind: fc.constant("client" as const),
    namespaceId: fc.nat(),
    epoch: safe,
    identity,
    operation,
  }),
  record({
    kind: fc.constant("expire" as const),
    namespaceId: fc.nat(),
    leaderTerm: safe as unknown as fc.Arbitrary<Term>,
    leaseIds: fc.array(anyLease),
  }),
  record({
    kind: fc.constant("checkpoint" as const),
    namespaceId: fc.nat(),
    leaderTerm: safe as unknown as fc.Arbitrary<Term>,
    leases: fc.array(record({ leaseId: anyLease, remainingMs: safe })),
  }),
  record({
    kind: fc.constant("retain" as const),
    namespaceId: fc.nat(),
    compactRevision: safe as fc.Arbitrary<Revision>,
  }),
  record({ kind: fc.constant("format-version" as const), version: safe }),
  record({
    kind: fc.constantFrom("create-namespace" as const, "delete-namespace" as const),
    name: fc.string(),
    uid: fc.string(),
  }),
);
const readOperation: fc.Arbitrary<ReadOperation> = fc.oneof(
  rangeOperation,
  anyLease.map((leaseId) => ({ kind: "lease-time-to-live" as const, leaseId })),
  anyLease.map((leaseId) => ({ kind: "lease-time-to-live" as const, leaseId, keys: true })),
  anyLease.map((after) => ({ kind: "lease-list" as const, after, limit: 7 })),
  fc.constant({ kind: "lease-list" as const }),
);
const readResult: fc.Arbitrary<ReadResult> = fc.oneof(
  record({
    kind: fc.constant("range" as const),
    revision: safe as fc.Arbitrary<Revision>,
    kvs: fc.array(kv, { maxLength: 4 }),
    count: safe,
    more: fc.boolean(),
  }),
  record({
    kind: fc.constant("lease-time-to-live" as const),
    revision: safe as fc.Arbitrary<Revision>,
    leaseId: anyLease,
    remainingMs: fc.integer({ min: -1, max: 1_000_000 }),
    ttlMs: safe,
    owner: fc.string({ unit: "grapheme" }),
    keys: fc.array(anyBytes, { maxLength: 4 }),
  }),
  record({
    kind: fc.constant("lease-list" as const),
    revision: safe as fc.Arbitrary<Revision>,
    leases: fc.array(record({ leaseId: anyLease, ttlMs: safe, owner: fc.string() }), { maxLength: 4 }),
    more: fc.boolean(),
  }),
);

function encodeAll(commands: readonly Command[], timeMs: number): Uint8Array {
  const encoder = createCommandEncoder();
  for (const each of commands) encoder.add(each);
  return encoder.finish(timeMs);
}

describe("commands as bytes", () => {
  it("every batch decodes to what was encoded, one after the other from the same encoder", () => {
    const encoder = createCommandEncoder();
    fc.assert(
      fc.property(fc.array(anyCommand, { maxLength: 8 }), safe, (commands, timeMs) => {
        for (const each of commands) encoder.add(each);
        assert.equal(encoder.count, commands.length);
        const encoded = encoder.finish(timeMs);
        assert.deepEqual([encoder.count, encoder.bytes], [0, encoded.length * 0]);
        assert.deepEqual(decodeCommandBatch(encoded), { timeMs, commands });
      }),
      { numRuns: 300 },
    );
  });

  it("a command that cannot be encoded leaves the batch as it was", () => {
    const encoder = createCommandEncoder();
    encoder.add(command(put("a")));
    const before = encoder.bytes;
    for (const id of ["x", "-1", "1.5", "9223372036854775808", "99999999999999999999"]) {
      assert.throws(() => encoder.add(command(put("b", "v", { leaseId: lease(id) }))), TypeError, id);
    }
    assert.throws(() => encoder.add(command({ kind: "compact", revision: -1 as Revision })), TypeError);
    assert.deepEqual([encoder.bytes, encoder.count], [before, 1]);
    assert.deepEqual(decodeCommandBatch(encoder.finish(5)).commands, [command(put("a"))]);
  });

  it("the encoder takes batches larger than its chunks", () => {
    const large = Array.from({ length: 40 }, (_, i) => command(put(`k${i}`, "x".repeat(10_000))));
    assert.deepEqual(decodeCommandBatch(encodeAll(large, 1)).commands, large);
  });

  it("keys and values are views of the entry, wherever it lies in its buffer", () => {
    const encoded = encodeAll([command(put("key", "value"))], 1);
    const shifted = new Uint8Array(encoded.length + 5).subarray(5);
    shifted.set(encoded);
    const [decoded] = decodeCommandBatch(shifted).commands;
    assert.ok(decoded?.kind === "client" && decoded.operation.kind === "put");
    assert.equal(decoded.operation.key.buffer, shifted.buffer);
    assert.deepEqual(decoded.operation, put("key", "value"));
  });

  it("R58: damaged or foreign bytes give a decode error or another batch, never anything else", () => {
    fc.assert(
      fc.property(
        fc.array(anyCommand, { maxLength: 4 }),
        fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 3 }),
        fc.nat({ max: 400 }),
        (commands, damage, length) => {
          const data = encodeAll(commands, 7).slice(0, Math.max(1, length));
          for (const [at, byte] of damage) data[at % data.length] = byte;
          decodesOrRefuses(decodeCommandBatch, data);
        },
      ),
      { numRuns: 1500 },
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (data) => {
        decodesOrRefuses(decodeCommandBatch, data);
        decodesOrRefuses(decodeOutcome, data);
        decodesOrRefuses(decodeWriteOperation, data);
        decodesOrRefuses(decodeReadOperation, data);
        decodesOrRefuses(decodeReadResult, data);
        decodesOrRefuses(decodeFailure, data);
      }),
      { numRuns: 1500 },
    );
  });

  it("minus zero, which no encoder writes, is not taken for an operand", () => {
    const txn = (operand: number) =>
      encodeWriteOperation({
        kind: "txn",
        compares: [{ key: bytes("k"), target: "version", operator: "=", operand }],
        success: [],
        failure: [],
      });
    const encoded = Uint8Array.from(txn(-1));
    assert.deepEqual(decodeWriteOperation(encoded), decodeWriteOperation(txn(-1)));
    encoded[encoded.indexOf(0x6b) + 1] = 0;
    assert.throws(() => decodeWriteOperation(encoded), DecodeError);
  });

  it("a count that cannot be true is refused before memory is taken for it", () => {
    const data = encodeAll([], 1);
    data.set([0xff, 0xff, 0xff, 0xff], 9);
    assert.throws(() => decodeCommandBatch(data), DecodeError);
  });
});

function decodesOrRefuses(decode: (data: Uint8Array) => unknown, data: Uint8Array): void {
  try {
    decode(data);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
  }
}

describe("operations, results and failures as bytes", () => {
  it("operations survive the way between members", () => {
    fc.assert(
      fc.property(operation, readOperation, (write, read) => {
        assert.deepEqual(decodeWriteOperation(encodeWriteOperation(write)), write);
        assert.deepEqual(decodeReadOperation(encodeReadOperation(read)), read);
      }),
    );
  });

  it("read results survive the way between members", () => {
    fc.assert(
      fc.property(readResult, (result) => {
        assert.deepEqual(decodeReadResult(encodeReadResult(result)), result);
      }),
    );
  });

  it("outcomes survive it: as the machine makes them", () => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 12 }), (operations) => {
        const member = new Member();
        for (const outcome of member.together(operations)) {
          assert.deepEqual(decodeOutcome(encodeOutcome(outcome)), outcome);
        }
      }),
      { numRuns: 60 },
    );
  });

  it("failures keep code, outcome, message and hints", () => {
    const failures: Failure[] = [
      { code: "compacted", outcome: "not-applied", message: "ä", compactRevision: 7 as Revision },
      { code: "overloaded", outcome: "not-applied", message: "", retryAfterMs: 250 },
      { code: "internal", outcome: "unknown", message: "x" },
      { code: "request-expired", outcome: "applied", message: "y" },
    ];
    for (const failure of failures) assert.deepEqual(decodeFailure(encodeFailure(failure)), failure);
    const internal = { ok: true, result: undefined, replayed: false } as const;
    assert.deepEqual(decodeOutcome(encodeOutcome(internal)), internal);
  });
});

describe("primitives", () => {
  it("numbers of up to 53 bits, lease ids of 63", () => {
    fc.assert(
      fc.property(safe, anyLease, (number, id) => {
        const writer = new ByteWriter(4);
        writer.varint(number);
        writer.leaseId(id);
        const reader = new ByteReader(writer.take());
        assert.deepEqual([reader.varint(), reader.leaseId()], [number, id]);
        assert.ok(isLeaseId(id));
        reader.end();
      }),
    );
    for (const edge of [0, 127, 128, 2 ** 28 - 1, 2 ** 28, 2 ** 32, 2 ** 53 - 1]) {
      const writer = new ByteWriter(16);
      writer.varint(edge);
      assert.equal(new ByteReader(writer.take()).varint(), edge);
    }
    for (const wrong of [-1, 0.5, NaN, 2 ** 53]) {
      assert.throws(() => new ByteWriter(16).varint(wrong), TypeError);
    }
    for (const id of ["0", "00", "01", "-1", "", "9223372036854775808", "1e3"])
      assert.equal(isLeaseId(id), false);
  });

  it("text is UTF-8 as others read it", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (drawn) => {
        const encoded = encodeText(drawn);
        assert.deepEqual(new Uint8Array(encoded), bytes(drawn));
        assert.equal(decodeText(encoded), new TextDecoder("utf-8", { ignoreBOM: true }).decode(encoded));
      }),
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 12 }), (noise) => {
        assert.equal(typeof decodeText(noise), "string");
      }),
    );
  });
});
