import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { LeaseKeyChecker } from "./lease-keys.ts";
import { SessionLedger } from "./sessions.ts";

const DRIFT_MAX = 0.01;

function setUp(): { truth: ManualTruth; sessions: SessionLedger; claim: { leftMs: number } } {
  const truth = new ManualTruth();
  const sessions = new SessionLedger(truth, new LatchedReporter(), DRIFT_MAX);
  const claim = { leftMs: 500 };
  sessions.opened({ leaseId: "7", host: "c1", ttlMs: 2_000, remainingMs: () => claim.leftMs });
  return { truth, sessions, claim };
}

describe("the ledger of sessions", () => {
  it("catches an expiry, or a revocation by nobody, while the holder counts on the lease", () => {
    assert.throws(() => setUp().truth.endLease("7", "lease-expired"), /I10-early/);
    assert.throws(() => setUp().truth.endLease("7", "lease-revoked"), /I10-early/);
  });

  it("accepts an end that the holder expects: within the drift, by its own word, or when it is dead", () => {
    const drifted = setUp();
    drifted.claim.leftMs = 21;
    drifted.truth.endLease("7", "lease-expired");
    const revoked = setUp();
    revoked.sessions.revoking("7");
    revoked.truth.endLease("7", "lease-revoked");
    const dead = setUp();
    dead.sessions.processKilled("c1", 5);
    dead.truth.endLease("7", "lease-expired");
  });

  it("catches one that hears of the grant after the end and still counts on it", () => {
    const { truth, sessions } = setUp();
    truth.endLease("8", "lease-expired");
    assert.throws(
      () => sessions.opened({ leaseId: "8", host: "c2", ttlMs: 2_000, remainingMs: () => 900 }),
      /I10-early/,
    );
  });

  it("catches time left after the end, and an end that is told before it happened", () => {
    const { truth, sessions, claim } = setUp();
    sessions.answered("7", 1_000, false);
    assert.throws(() => sessions.answered("7", -1, false), /I10-answer/);
    assert.throws(() => sessions.lost("7", 0, true), /I10-answer/);
    claim.leftMs = 0;
    truth.endLease("7", "lease-expired");
    sessions.answered("7", 1_000, false);
    assert.throws(() => sessions.answered("7", 1_000, true), /I10-answer/);
    sessions.listed(["7"], 0);
    assert.throws(() => sessions.listed(["7"], 1), /I10-answer/);
  });

  it("catches a lease that ends twice", () => {
    const { truth, claim } = setUp();
    claim.leftMs = 0;
    truth.endLease("7", "lease-expired");
    assert.throws(() => truth.endLease("7", "lease-revoked"), /I10-once/);
  });

  it("catches an orphan that outlives TTL and bound, from when the cell is healthy", () => {
    const { sessions } = setUp();
    sessions.expectNoOrphans(60_000_000, 0, 1_000);
    sessions.abandoned("7", 1_000_000);
    sessions.expectNoOrphans(4_020_000, 0, 1_000);
    assert.throws(() => sessions.expectNoOrphans(4_020_001, 0, 1_000), /I10-late/);
    sessions.expectNoOrphans(4_020_001, 2_000_000, 1_000);
  });
});

describe("the keys of a lease", () => {
  function withKeys(): { truth: ManualTruth; keys: LeaseKeyChecker } {
    const truth = new ManualTruth();
    const keys = new LeaseKeyChecker(truth, new LatchedReporter());
    truth.put({ key: "e/1", leaseId: "7" }, { key: "e/2", leaseId: "7" }, { key: "e/3", leaseId: "8" });
    return { truth, keys };
  }

  it("vanish in one revision, in order, and alone", () => {
    const { truth, keys } = withKeys();
    truth.delete(["e/1", "e/2"], "lease-expired");
    truth.endLease("7", "lease-expired");
    keys.finish();
    assert.throws(() => withKeys().truth.delete(["e/1"], "lease-expired"), /I10-atomic/);
    assert.throws(() => withKeys().truth.delete(["e/2", "e/1"], "lease-revoked"), /I10-atomic/);
    assert.throws(() => withKeys().truth.delete(["e/1", "e/2", "e/3"], "lease-expired"), /I10-atomic/);
  });

  it("do not remain, and are not added, after its end", () => {
    const { truth, keys } = withKeys();
    truth.endLease("7", "lease-expired");
    assert.throws(() => keys.finish(), /I10-atomic/);
    assert.throws(() => truth.put({ key: "e/9", leaseId: "7" }), /I10-atomic/);
  });

  it("leave a lease when they are put without it", () => {
    const { truth, keys } = withKeys();
    truth.put({ key: "e/1" });
    truth.delete(["e/2"], "lease-expired");
    truth.endLease("7", "lease-expired");
    keys.finish();
  });
});
