import assert from "node:assert/strict";
import { test } from "node:test";
import * as coordination from "@lockstep/proto/coordination";
import { ManualRuntime } from "../testing/manual-runtime.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { HeldLease, type LeaseEndReason } from "./leases.ts";

const TTL = 9_000;
const MARGIN = 900;

function setUp(): {
  runtime: ManualRuntime;
  keeper: LeaseKeeper;
  host: { online: boolean };
  hold: (leaseId: string) => { lease: HeldLease; ends: LeaseEndReason[] };
} {
  const runtime = new ManualRuntime();
  const host = {
    online: true,
    suspicions: 0,
    isConnected: () => host.online,
    flushSoon: () => undefined,
    suspect: () => {
      host.suspicions += 1;
    },
  };
  const keeper = new LeaseKeeper(runtime, host);
  const hold = (leaseId: string): { lease: HeldLease; ends: LeaseEndReason[] } => {
    const ends: LeaseEndReason[] = [];
    const lease = new HeldLease(runtime, {
      leaseId,
      ttlMs: TTL,
      marginMs: MARGIN,
      sent: { monotonicMs: runtime.now(), wallMs: runtime.wallNow() },
      onEnd: (reason) => ends.push(reason),
    });
    keeper.hold(lease);
    return { lease, ends };
  };
  return { runtime, keeper, host, hold };
}

function ack(renew: coordination.Renew | undefined, remainingMs: number[]): coordination.RenewAck {
  assert.ok(renew !== undefined, "a renewal was expected");
  return { id: renew.id, revision: 1, remainingMs, failure: undefined };
}

function refusal(
  renew: coordination.Renew | undefined,
  code: string,
  retryAfterMs = 0,
): coordination.RenewAck {
  assert.ok(renew !== undefined, "a renewal was expected");
  const outcome = coordination.Outcome.NOT_APPLIED;
  return {
    id: renew.id,
    revision: 0,
    remainingMs: [],
    failure: { code, outcome, message: "", compactRevision: 0, retryAfterMs },
  };
}

test("leases that fall due together leave in one frame, at a third of the TTL", () => {
  const { runtime, keeper, hold } = setUp();
  hold("1");
  hold("2");
  runtime.advance(TTL / 3 - 1);
  assert.equal(keeper.takeOutbox(), undefined);
  runtime.advance(1);
  assert.deepEqual(keeper.takeOutbox()?.leaseIds, ["1", "2"]);
});

test("the deadline counts from the send of the acknowledged renewal, not from its answer", () => {
  const { runtime, keeper, hold } = setUp();
  const { lease, ends } = hold("1");
  runtime.advance(TTL / 3);
  const renew = keeper.takeOutbox();
  runtime.advance(1_000);
  keeper.onAck(ack(renew, [TTL]));
  assert.equal(lease.leftMs(), TTL - MARGIN - 1_000);
  assert.deepEqual(ends, []);
});

test("without an acknowledgement the session is given up a margin before the cell may end it", () => {
  const { runtime, hold } = setUp();
  const { ends } = hold("1");
  runtime.advance(TTL - MARGIN - 1);
  assert.equal(ends.length, 0);
  runtime.advance(1);
  assert.deepEqual(
    ends.map(({ kind }) => kind),
    ["local-deadline"],
  );
});

test("an unanswered renewal is asked again before the deadline, and the later answer of the first still counts", () => {
  const { runtime, keeper, hold } = setUp();
  const { lease } = hold("1");
  runtime.advance(TTL / 3);
  const first = keeper.takeOutbox();
  runtime.advance(TTL / 6);
  const second = keeper.takeOutbox();
  assert.notEqual(second?.id, first?.id);
  keeper.onAck(ack(second, [TTL]));
  assert.equal(lease.leftMs(), TTL - MARGIN);
});

test("a suspended machine notices by the wall clock; a wall clock that goes back gains nothing", () => {
  const { runtime, hold } = setUp();
  const { lease, ends } = hold("1");
  runtime.wallMs -= 3_600_000;
  runtime.advance(1_000);
  assert.equal(lease.leftMs(), TTL - MARGIN - 1_000);
  runtime.wallMs += 3_600_000 + TTL;
  assert.equal(lease.leftMs(), 0);
  runtime.advance(1_000);
  assert.equal(ends[0]?.kind, "local-deadline");
});

test("the cell's word ends a lease at once, by a push or by a renewal that finds none", () => {
  const { runtime, keeper, hold } = setUp();
  const one = hold("1");
  const two = hold("2");
  keeper.onLeaseEnded({ leaseId: "1", cause: coordination.Cause.FORCED, revision: 5 });
  assert.deepEqual(one.ends, [{ kind: "ended", cause: "forced", revision: 5 }]);
  runtime.advance(TTL / 3);
  keeper.onAck(ack(keeper.takeOutbox(), [0]));
  assert.equal(two.ends[0]?.kind, "ended");
  assert.equal(two.lease.leftMs(), 0);
});

test("a refused renewal leaves the last promise standing and is asked again", () => {
  const { runtime, keeper, hold } = setUp();
  const { lease, ends } = hold("1");
  runtime.advance(TTL / 3);
  keeper.onAck(refusal(keeper.takeOutbox(), "no-leader", 100));
  assert.equal(lease.leftMs(), TTL - MARGIN - TTL / 3);
  runtime.advance(100);
  assert.deepEqual(keeper.takeOutbox()?.leaseIds, ["1"]);
  assert.deepEqual(ends, []);
});

test("nothing is sent without a connection, everything at once on a new one", () => {
  const { runtime, keeper, host, hold } = setUp();
  hold("1");
  host.online = false;
  runtime.advance(TTL / 2);
  assert.equal(keeper.takeOutbox(), undefined);
  host.online = true;
  keeper.connected();
  assert.deepEqual(keeper.takeOutbox()?.leaseIds, ["1"]);
});

test("a lease that was granted over a stream that is replaced by now is renewed over the new one at once", () => {
  const { runtime, keeper, hold } = setUp();
  keeper.connected();
  hold("1");
  runtime.advance(1);
  assert.deepEqual(keeper.takeOutbox()?.leaseIds, ["1"]);
  hold("2");
  runtime.advance(1);
  assert.equal(keeper.takeOutbox(), undefined);
});

test("a renewal in a namespace that is gone ends its leases", () => {
  const { runtime, keeper, hold } = setUp();
  const { ends } = hold("1");
  runtime.advance(TTL / 3);
  keeper.onAck(refusal(keeper.takeOutbox(), "namespace-not-found"));
  assert.deepEqual(ends, [{ kind: "ended", cause: "forced", revision: 0 }]);
});
