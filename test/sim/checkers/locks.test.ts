import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { lockKey, LockstepError } from "@lockstep/client";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { GuardedRegister, type Guard } from "./guarded-register.ts";
import { LockLedger, type Hold } from "./locks.ts";

const KEY = lockKey("l1");

interface TestHold extends Hold {
  leftMs: number;
}

function hold(token: number, leaseId: string, host: string = `c${leaseId}`): TestHold {
  const made: TestHold = {
    ...{ name: "l1", host, token, leaseId, allowanceMs: 20, leftMs: 1_000 },
    assertHeld: (marginMs) => {
      if (made.leftMs <= marginMs) throw new LockstepError("session-lost", "not-applied", "over");
    },
  };
  return made;
}

interface SetUp {
  readonly truth: ManualTruth;
  readonly locks: LockLedger;
  /** The cell gives the lock to a session. @returns the token */
  readonly give: (leaseId: string) => number;
  readonly take: () => void;
}

function setUp(): SetUp {
  const truth = new ManualTruth();
  const locks = new LockLedger(truth, new LatchedReporter(), ["l1"]);
  return {
    truth,
    locks,
    give: (leaseId) => truth.put({ key: KEY, leaseId }),
    take: () => void truth.delete([KEY], "lease-expired"),
  };
}

describe("the ledger of locks", () => {
  it("accepts owners one after another, each gone before the next", () => {
    const { locks, give, take } = setUp();
    const first = hold(give("1"), "1");
    locks.acquired(first, 0);
    first.leftMs = 15;
    take();
    const before = locks.highestToken("l1");
    assert.equal(before, first.token);
    locks.acquired(hold(give("2"), "2"), before);
  });

  it("catches a lock that is given away while its holder believes in it", () => {
    const { locks, give, take } = setUp();
    locks.acquired(hold(give("1"), "1"), 0);
    assert.throws(take, /I11-two-holders/);
  });

  it("catches two that hold it at one time", () => {
    const { truth, locks, give } = setUp();
    const first = hold(give("1"), "1");
    first.leftMs = 0;
    locks.acquired(first, 0);
    truth.delete([KEY]);
    const second = hold(give("2"), "2");
    first.leftMs = 1_000;
    assert.throws(() => locks.acquired(second, 0), /I11-two-holders/);
  });

  it("forgets those who released it and those who died", () => {
    const released = setUp();
    const first = hold(released.give("1"), "1");
    released.locks.acquired(first, 0);
    released.locks.released(first);
    released.take();
    const dead = setUp();
    dead.locks.acquired(hold(dead.give("1"), "1", "c9"), 0);
    dead.locks.processKilled("c9");
    dead.take();
  });

  it("catches a token that is not new, of another session, or of nobody", () => {
    const { locks, give, truth } = setUp();
    const token = give("1");
    assert.throws(() => locks.acquired(hold(token, "1"), token), /I11-token/);
    assert.throws(() => locks.acquired(hold(token, "2"), 0), /I11-token/);
    const later = truth.put({ key: KEY, leaseId: "1" });
    assert.throws(() => locks.acquired(hold(later, "1"), 0), /I11-token/);
    assert.throws(() => locks.acquired(hold(token + 9, "1"), 0), /I11-token/);
  });
});

describe("the register that a lock guards", () => {
  function withRegister(guard?: Guard) {
    const { locks, give, take } = setUp();
    const reporter = new LatchedReporter();
    const register = new GuardedRegister("l1", locks, reporter, guard);
    const first = { token: give("1"), leaseId: "1", host: "c1" };
    take();
    const second = { token: give("2"), leaseId: "2", host: "c2" };
    return { register, reporter, first, second };
  }

  it("refuses what an earlier owner sent, and its twin shows what that would have done", () => {
    const { register, reporter, first, second } = withRegister();
    assert.ok(register.arrive(first));
    assert.ok(register.arrive(second));
    assert.ok(register.arrive(second));
    assert.ok(!register.arrive(first));
    assert.equal(register.staleWithoutGuard, 1);
    assert.equal(reporter.counted("guarded writes accepted"), 3);
    assert.equal(reporter.counted("guarded writes refused"), 1);
    assert.equal(reporter.counted("stale writes without the guard"), 1);
  });

  it("catches a guard that lets a stale write in, or keeps its newest owner out", () => {
    const open = withRegister(() => true);
    open.register.arrive(open.second);
    assert.throws(() => open.register.arrive(open.first), /I11.*stale/);
    const strict = withRegister((token, highest) => token > highest);
    strict.register.arrive(strict.second);
    assert.throws(() => strict.register.arrive(strict.second), /I11.*refused/);
  });

  it("catches a token that was never given to its writer", () => {
    const { register, first, second } = withRegister();
    assert.throws(() => register.arrive({ ...first, leaseId: "2" }), /I11.*never given/);
    assert.throws(() => register.arrive({ ...second, token: 99 }), /I11.*never given/);
  });
});
