import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type {
  ClientId,
  Compare,
  Failure,
  LeaseId,
  PutOperation,
  RequestIdentity,
  Revision,
  TxnCommand,
  WriteOperation,
} from "./coordinator/index.ts";
import { LIMITS } from "./coordinator/index.ts";
import {
  isLeaseId,
  validateIdentity,
  validateNamespace,
  validateRange,
  validateRead,
  validateRenewal,
  validateWrite,
} from "./validation.ts";

const limits = { ...LIMITS, keyBytesMax: 32, valueBytesMax: 100, txnBytesMax: 250, txnOperationsMax: 3 };

function code(failure: Failure | undefined): string | undefined {
  assert.ok(failure === undefined || failure.outcome === "not-applied");
  return failure?.code;
}

const write = (operation: WriteOperation): string | undefined => code(validateWrite(operation, limits));
const put = (key: number, value: number, over: Partial<PutOperation> = {}): PutOperation => ({
  kind: "put",
  key: Buffer.alloc(key, "k"),
  value: Buffer.alloc(value),
  ...over,
});
const txn = (over: Partial<TxnCommand>): TxnCommand => ({
  kind: "txn",
  compares: [],
  success: [],
  failure: [],
  ...over,
});

describe("validation", () => {
  it("takes keys and values up to their limits and not a byte more", () => {
    assert.equal(write(put(1, 0)), undefined);
    assert.equal(write(put(32, 100)), undefined);
    assert.equal(write(put(0, 0)), "invalid-argument");
    assert.equal(write(put(33, 0)), "request-too-large");
    assert.equal(write(put(1, 101)), "request-too-large");
  });

  it("leaves room for the digits of a sequential key", () => {
    assert.equal(write(put(16, 0, { sequential: true })), undefined);
    assert.equal(write(put(17, 0, { sequential: true })), "request-too-large");
  });

  it("takes an empty range, an empty start with an end, and a bound just after the longest key", () => {
    const range = (key: number, end?: number): string | undefined =>
      code(
        validateRange(
          { key: Buffer.alloc(key), ...(end === undefined ? {} : { rangeEnd: Buffer.alloc(end) }) },
          limits,
        ),
      );
    assert.equal(range(5, 2), undefined);
    assert.equal(range(0, 0), undefined);
    assert.equal(range(33, 0), undefined);
    assert.equal(range(34, 0), "request-too-large");
    assert.equal(range(0), "invalid-argument");
  });

  it("takes exactly the positive int63 numbers in plain decimal as lease ids", () => {
    fc.assert(fc.property(fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }), (id) => isLeaseId(String(id))));
    fc.assert(fc.property(fc.bigInt({ min: 2n ** 63n, max: 2n ** 80n }), (id) => !isLeaseId(String(id))));
    for (const text of ["", "0", "-1", "01", "1.5", "1e3", " 1", "１", "9223372036854775808"]) {
      assert.equal(isLeaseId(text), false, text);
    }
    assert.equal(write(put(1, 0, { leaseId: "-5" as LeaseId })), "invalid-argument");
    assert.equal(write({ kind: "lease-revoke", leaseId: "0" as LeaseId }), "invalid-argument");
    assert.equal(code(validateRenewal(["5", "-5"], limits)), "invalid-argument");
    const many = Array<LeaseId>(10_001).fill("5" as LeaseId);
    assert.equal(code(validateRenewal(many, limits)), "too-many-operations");
  });

  it("bounds a transaction by entries of each list, by bytes, and by keys written once", () => {
    const compare: Compare = { key: Buffer.from("a"), target: "version", operator: "=", operand: 1 };
    const key = (name: string): PutOperation => put(1, 0, { key: Buffer.from(name) });
    assert.equal(write(txn({})), undefined);
    assert.equal(write(txn({ compares: [compare, compare, compare] })), undefined);
    assert.equal(write(txn({ compares: [compare, compare, compare, compare] })), "too-many-operations");
    assert.equal(write(txn({ failure: ["a", "b", "c", "d"].map(key) })), "too-many-operations");
    assert.equal(write(txn({ success: [put(30, 95), put(31, 94)] })), undefined);
    assert.equal(write(txn({ success: [put(30, 95), put(31, 95)] })), "request-too-large");
    assert.equal(write(txn({ success: [put(30, 95)], failure: [put(31, 95)] })), "request-too-large");
    assert.equal(write(txn({ success: [key("a"), key("a")] })), "duplicate-key");
    assert.equal(write(txn({ success: [key("a")], failure: [key("a")] })), undefined);
    assert.equal(write(txn({ failure: [put(0, 0)] })), "invalid-argument");
  });

  it("refuses a compare whose operand does not fit its target", () => {
    const compare = (over: Partial<Compare>): string | undefined =>
      write(
        txn({ compares: [{ key: Buffer.from("a"), target: "version", operator: "=", operand: 1, ...over }] }),
      );
    assert.equal(compare({ operand: "1" as LeaseId }), "invalid-argument");
    assert.equal(compare({ operand: 1.5 }), "invalid-argument");
    assert.equal(compare({ operand: -1 }), undefined);
    assert.equal(compare({ target: "lease", operand: 5 }), "invalid-argument");
    assert.equal(compare({ target: "lease", operand: "0" as LeaseId }), undefined);
    assert.equal(compare({ target: "value", operand: Buffer.alloc(0) }), undefined);
    assert.equal(compare({ key: Buffer.alloc(0) }), "invalid-argument");
  });

  it("refuses a put that keeps what it brings, and a sort that has two directions", () => {
    const put = (over: object): string | undefined =>
      write({ kind: "put", key: Buffer.from("a"), value: Buffer.alloc(0), ...over });
    assert.equal(put({ keep: "both" }), undefined);
    assert.equal(put({ keep: "value", value: Buffer.from("x") }), "invalid-argument");
    assert.equal(put({ keep: "lease", value: Buffer.from("x") }), undefined);
    assert.equal(put({ keep: "lease", leaseId: "7" }), "invalid-argument");
    assert.equal(put({ keep: "value", leaseId: "7" }), undefined);
    assert.equal(put({ keep: "value", sequential: true }), "invalid-argument");
    const range = (over: object): string | undefined =>
      validateRead({ kind: "range", range: { key: Buffer.from("a") }, ...over }, LIMITS)?.code;
    assert.equal(range({ sort: { target: "value" } }), undefined);
    assert.equal(range({ sort: { target: "value" }, reverse: true }), "invalid-argument");
    assert.equal(range({ filter: { minModRevision: -1 } }), "invalid-argument");
  });

  it("checks what stands in a transaction inside another", () => {
    const inner = (over: object): string | undefined =>
      write(txn({ success: [{ kind: "txn", compares: [], success: [], failure: [], ...over }] }));
    const put = { kind: "put", key: Buffer.from("a"), value: Buffer.alloc(0) } as const;
    assert.equal(inner({ success: [put] }), undefined);
    assert.equal(inner({ success: [put, put] }), "duplicate-key");
    assert.equal(inner({ failure: [{ ...put, key: Buffer.alloc(0) }] }), "invalid-argument");
    assert.equal(
      inner({ success: [{ ...put, value: Buffer.alloc(LIMITS.txnBytesMax) }] }),
      "request-too-large",
    );
  });

  it("checks TTLs, owners, revisions and limits", () => {
    const grant = (ttlMs: number, owner = ""): string | undefined =>
      write({ kind: "lease-grant", ttlMs, owner });
    assert.equal(grant(1), undefined);
    assert.equal(grant(9_000_000_000_000), undefined);
    for (const ttlMs of [0, -1, 1.5, NaN, 9_000_000_000_001]) assert.equal(grant(ttlMs), "invalid-argument");
    assert.equal(grant(5000, "é".repeat(128)), undefined);
    assert.equal(grant(5000, "é".repeat(129)), "request-too-large");
    assert.equal(write({ kind: "compact", revision: 0 as Revision }), "invalid-argument");
    const range = { key: Buffer.from("a") };
    assert.equal(
      code(validateRead({ kind: "range", range, revision: 0 as Revision }, limits)),
      "invalid-argument",
    );
    assert.equal(code(validateRead({ kind: "range", range, limit: -1 }, limits)), "invalid-argument");
    assert.equal(
      code(validateRead({ kind: "lease-list", after: "x" as LeaseId }, limits)),
      "invalid-argument",
    );
  });

  it("checks request identities", () => {
    const identity = (value: RequestIdentity): string | undefined => code(validateIdentity(value, limits));
    const client = { kind: "client", clientId: 1 as ClientId } as const;
    assert.equal(identity({ ...client, sequence: 5, acknowledgedBelow: 5 }), undefined);
    assert.equal(identity({ ...client, sequence: 0, acknowledgedBelow: 0 }), "invalid-argument");
    assert.equal(identity({ ...client, sequence: 5, acknowledgedBelow: 6 }), "invalid-argument");
    assert.equal(identity({ kind: "token", token: "x".repeat(128) }), undefined);
    for (const token of ["", "x".repeat(129), "a b", "é"])
      assert.equal(identity({ kind: "token", token }), "invalid-argument");
  });

  it("checks namespace names", () => {
    const name = (text: string): string | undefined => code(validateNamespace(text, limits));
    for (const good of ["default", "a", "team-1", "orders.production"])
      assert.equal(name(good), undefined, good);
    for (const bad of ["", "-a", "a-", "A", "a.b.c", "a..b", "a/b", "é", "a".repeat(64)]) {
      assert.equal(name(bad), "invalid-argument", bad);
    }
  });
});
