import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LeaseId, WriteOperation } from "@lockstep/gateway/coordinator";
import { ADMISSION_DEFAULTS, admitMutation, admitRead } from "./admission.ts";
import type { Load } from "./admission.ts";

const calm: Load = {
  commandsPending: 0,
  readsPending: 0,
  applyLag: 0,
  logicalBytes: 0,
  stallPressure: 0,
  spaceLow: false,
  diverged: false,
};
const bytes = (text: string): Uint8Array => Buffer.from(text);
const put: WriteOperation = { kind: "put", key: bytes("k"), value: bytes("v") };
const remove: WriteOperation = { kind: "delete", range: { key: bytes("k") } };
const revoke: WriteOperation = { kind: "lease-revoke", leaseId: "1" as LeaseId };
const putInElse: WriteOperation = {
  kind: "txn",
  compares: [],
  success: [],
  failure: [{ kind: "put", key: bytes("k"), value: bytes("v") }],
};
const code = (operation: WriteOperation, load: Partial<Load>): string | undefined =>
  admitMutation(operation, { ...calm, ...load }, ADMISSION_DEFAULTS)?.code;

describe("admission", () => {
  it("takes everything while nothing is short", () => {
    for (const operation of [put, remove, revoke, putInElse]) assert.equal(code(operation, {}), undefined);
  });

  it("without space refuses what grows, in either branch, and admits what shrinks", () => {
    assert.equal(code(put, { spaceLow: true }), "no-space");
    assert.equal(code(putInElse, { spaceLow: true }), "no-space");
    assert.equal(code(remove, { spaceLow: true }), undefined);
    assert.equal(code(revoke, { spaceLow: true }), undefined);
  });

  it("over the quota refuses growth only", () => {
    const logicalBytes = ADMISSION_DEFAULTS.quotaBytes;
    assert.equal(code(put, { logicalBytes }), "quota-exceeded");
    assert.equal(code(remove, { logicalBytes }), undefined);
  });

  it("answers overloaded, not applied, with a time to come back", () => {
    for (const load of [{ commandsPending: 50_000 }, { applyLag: 5_000 }, { stallPressure: 1 }]) {
      const failure = admitMutation(remove, { ...calm, ...load }, ADMISSION_DEFAULTS);
      assert.equal(failure?.code, "overloaded");
      assert.equal(failure.outcome, "not-applied");
      assert.ok((failure.retryAfterMs ?? 0) > 0);
    }
    assert.equal(admitRead({ readsPending: 50_000 }, ADMISSION_DEFAULTS)?.code, "overloaded");
  });

  it("refuses every write while members disagree about the state", () => {
    assert.equal(code(remove, { diverged: true }), "diverged");
  });
});
