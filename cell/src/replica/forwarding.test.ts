import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ClientId, LeaseId, Revision } from "@lockstep/gateway/coordinator";
import { DecodeError } from "../machine/index.ts";
import type { MemberId } from "../raft/types.ts";
import {
  decodeChangeAnswer,
  decodeForwarded,
  decodeReadAnswer,
  decodeRenewalAnswer,
  encodeChangeAnswer,
  encodeForwarded,
  encodeRenewalAnswer,
} from "./forwarding.ts";
import type { Forwarded } from "./forwarding.ts";

const LEASE = "81" as LeaseId;
const SCOPE = { namespace: "default", epoch: 3 };
const REQUESTS: readonly Forwarded[] = [
  {
    kind: "mutate",
    mutation: {
      ...SCOPE,
      identity: { kind: "client", clientId: 7 as ClientId, sequence: 2, acknowledgedBelow: 1 },
      deadlineMs: 12.5,
      operation: { kind: "lease-revoke", leaseId: LEASE },
    },
  },
  { kind: "renew", renewal: { ...SCOPE, leaseIds: [LEASE] } },
  {
    kind: "lease",
    ...SCOPE,
    operation: { kind: "lease-time-to-live", leaseId: LEASE, keys: true },
    deadlineMs: 5,
  },
  { kind: "membership" },
  { kind: "change-membership", change: { promote: [4 as MemberId], remove: [] } },
];

function body(head: string): Buffer {
  const bytes = Buffer.from(head);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

describe("what members forward", () => {
  it("a request comes out as it went in", () => {
    for (const request of REQUESTS) assert.deepEqual(decodeForwarded(encodeForwarded(request)), request);
  });

  it("a head of another shape is refused before anything of it is used", () => {
    const lease = {
      kind: "lease",
      ...SCOPE,
      operation: { kind: "lease-time-to-live", leaseId: LEASE },
      deadlineMs: 1,
    };
    const renewal = { ...SCOPE, leaseIds: [LEASE] };
    const heads = [
      null,
      5,
      [],
      {},
      { kind: "constructor" },
      { kind: "renew" },
      { kind: "renew", renewal: { ...renewal, leaseIds: "81" } },
      { kind: "renew", renewal: { ...renewal, leaseIds: ["0"] } },
      { kind: "renew", renewal: { ...renewal, namespace: undefined } },
      { ...lease, operation: { kind: "range", range: {} } },
      { ...lease, operation: { kind: "lease-time-to-live", leaseId: 81 } },
      { ...lease, epoch: -1 },
      { ...lease, deadlineMs: "1" },
      { kind: "mutate", ...SCOPE, identity: { kind: "token" }, deadlineMs: 1 },
      { kind: "change-membership", change: { promote: [4] } },
      { kind: "change-membership", change: { promote: [0], remove: [] } },
      { kind: "change-membership", change: { promote: [], remove: ["4"] } },
    ];
    for (const head of heads) {
      assert.throws(() => decodeForwarded(body(JSON.stringify(head))), DecodeError, JSON.stringify(head));
    }
    for (const broken of [Buffer.alloc(0), Buffer.alloc(3), Buffer.from([0, 0, 0, 9, 0x7b]), body("{")]) {
      assert.throws(() => decodeForwarded(broken), DecodeError);
    }
  });

  it("a change of the membership is answered with why it was not made, or nothing; another shape tells nothing", () => {
    const refused = { code: "unhealthy-cell", message: "Bring members back first." };
    assert.deepEqual(decodeChangeAnswer(encodeChangeAnswer(refused)), refused);
    assert.equal(decodeChangeAnswer(encodeChangeAnswer(undefined)), undefined);
    for (const answer of ["null", '{"refused":true}', '{"refused":{"code":5,"message":""}}', "{"]) {
      assert.equal(decodeChangeAnswer(body(answer)), "unknown", answer);
    }
  });

  it("an answer of another shape leaves the outcome unknown", () => {
    const sound = { ok: true, revision: 9 as Revision, remainingMs: [0, 20.5] } as const;
    assert.deepEqual(decodeRenewalAnswer(encodeRenewalAnswer(sound)), sound);
    const answers = [
      "null",
      "{}",
      '{"revision":1}',
      '{"revision":1,"remainingMs":{"0":5}}',
      '{"revision":1,"remainingMs":["5"]}',
      '{"failure":true}',
      '{"failure":{"code":"of-a-newer-cell","outcome":"applied","message":""}}',
      '{"failure":{"code":"internal","outcome":"maybe","message":""}}',
      '{"failure":{"code":"internal","outcome":"applied"}}',
    ];
    for (const answer of answers) {
      for (const outcome of [decodeRenewalAnswer(body(answer)), decodeReadAnswer(body(answer))]) {
        assert.ok(!outcome.ok && outcome.failure.code === "internal", answer);
        assert.equal(outcome.failure.outcome, "unknown", answer);
      }
    }
  });
});
