import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LockstepError } from "@lockstep/client";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { ClaimLedger, type Hold } from "./claims.ts";
import { GuardedRegister, type Guard } from "./guarded-register.ts";
import { prefixOf, roleOf, type Recipe, type Resource } from "./resources.ts";

const KEY = "/locks/l1";

interface TestHold extends Hold {
  leftMs: number;
}

interface SetUp {
  readonly truth: ManualTruth;
  readonly claims: ClaimLedger;
  readonly resource: Resource;
  /** A session puts a key. @returns its place */
  readonly put: (leaseId: string, key?: string) => Placed;
  readonly hold: (placed: Placed, host?: string) => TestHold;
}

interface Placed {
  readonly key: string;
  readonly token: number;
  readonly leaseId: string;
}

function setUp(recipe: Recipe = "lock"): SetUp {
  const truth = new ManualTruth();
  const resource: Resource = { recipe, name: "l1", permits: 2 };
  const claims = new ClaimLedger(truth, new LatchedReporter(), [resource]);
  return {
    ...{ truth, claims, resource },
    put: (leaseId, lane = "") => {
      // What a sequential key ends with is its revision.
      const digits = recipe === "lock" || lane.startsWith("slots/") ? "" : String(truth.revision + 1);
      const key = `${prefixOf(resource)}${lane}${digits}`;
      return { key, leaseId, token: truth.put({ key, leaseId }) };
    },
    hold: ({ key, token, leaseId }, host = `c${leaseId}`) => {
      const made: TestHold = {
        ...{ resource, key, host, token, leaseId, allowanceMs: 20, leftMs: 1_000 },
        assertHeld: (marginMs) => {
          if (made.leftMs <= marginMs) throw new LockstepError("session-lost", "not-applied", "over");
        },
      };
      return made;
    },
  };
}

describe("the ledger of claims", () => {
  it("accepts owners one after another, each gone before the next", () => {
    const { truth, claims, put, hold } = setUp();
    const first = hold(put("1"));
    claims.acquired(first, 0);
    first.leftMs = 15;
    truth.delete([KEY], "lease-expired");
    const asked = truth.revision;
    claims.acquired(hold(put("2")), asked);
  });

  it("catches what is given away while its holder believes in it", () => {
    const { truth, claims, put, hold } = setUp();
    claims.acquired(hold(put("1")), 0);
    assert.throws(() => truth.delete([KEY], "lease-expired"), /I11-two-holders/);
  });

  it("catches two that hold it at one time, and one that believes in what was freed before it knew", () => {
    const { truth, claims, put, hold } = setUp();
    const first = hold(put("1"));
    first.leftMs = 0;
    claims.acquired(first, 0);
    truth.delete([KEY]);
    const second = hold(put("2"));
    first.leftMs = 1_000;
    assert.throws(() => claims.acquired(second, 0), /I11-two-holders/);
    first.leftMs = 0;
    truth.delete([KEY]);
    assert.throws(() => claims.acquired(second, 0), /I11-two-holders.*freed/);
  });

  it("forgets those who released it and those who died", () => {
    const released = setUp();
    const first = released.hold(released.put("1"));
    released.claims.acquired(first, 0);
    released.claims.released(first);
    released.truth.delete([KEY]);
    const dead = setUp();
    dead.claims.acquired(dead.hold(dead.put("1"), "c9"), 0);
    dead.claims.processKilled("c9");
    dead.truth.delete([KEY]);
  });

  it("catches a token that is not new, of another session, or of nobody", () => {
    const { claims, put, hold } = setUp();
    const place = put("1");
    assert.throws(() => claims.acquired(hold(place), place.token), /I11-token/);
    assert.throws(() => claims.acquired(hold({ ...place, leaseId: "2" }), 0), /I11-token/);
    const again = put("1");
    assert.throws(() => claims.acquired(hold(again), 0), /I11-token/);
    assert.throws(() => claims.acquired(hold({ ...place, token: again.token + 9 }), 0), /I11-token/);
  });
});

describe("turns, by the true history", () => {
  for (const recipe of ["fair-lock", "election"] as const) {
    it(`${recipe}: the first in the order of asking, and nobody else`, () => {
      const { truth, claims, put, hold } = setUp(recipe);
      const [first, second, third] = [put("1"), put("2"), put("3")];
      claims.acquired(hold(first), 0);
      assert.throws(() => claims.acquired(hold(second), 0), /I11-turn/);
      // One in the middle gives up: that is nobody's turn.
      truth.delete([second.key]);
      assert.throws(() => claims.acquired(hold(third), 0), /I11-turn/);
    });
  }

  it("read-write lock: readers together, writers alone, whoever asked before goes first", () => {
    const { truth, claims, put, hold } = setUp("read-write-lock");
    const [one, two, writer, late] = [
      put("1", "read/"),
      put("2", "read/"),
      put("3", "write/"),
      put("4", "read/"),
    ];
    const [first, second] = [hold(one), hold(two)];
    claims.acquired(first, 0);
    claims.acquired(second, 0);
    assert.throws(() => claims.acquired(hold(writer), 0), /I11-turn/);
    assert.throws(() => claims.acquired(hold(late), 0), /I11-turn/);
    first.leftMs = second.leftMs = 0;
    truth.delete([one.key, two.key]);
    claims.acquired(hold(writer), 0);
    assert.throws(() => claims.acquired(hold(late), 0), /I11-turn/);
  });

  it("semaphore: a ticket holds nothing, a slot has one holder at a time", () => {
    const { truth, claims, put, hold, resource } = setUp("semaphore");
    const ticket = put("1", "queue/");
    assert.equal(roleOf(resource, ticket.key), "ticket");
    assert.throws(() => claims.acquired(hold(ticket), 0), /I11-turn/);
    const [zero, one] = [put("1", "slots/0000"), put("2", "slots/0001")];
    const holder = hold(zero);
    claims.acquired(holder, 0);
    claims.acquired(hold(one), 0);
    // The key is put anew over the one that is there, as if the slot were free.
    const over = put("3", "slots/0000");
    assert.throws(() => claims.acquired(hold({ ...over, token: zero.token }), over.token - 1), /I11-token/);
    holder.leftMs = 0;
    truth.delete([zero.key]);
    claims.acquired(hold(put("3", "slots/0000")), 0);
  });
});

describe("the register that is guarded", () => {
  function withRegister(guard?: Guard) {
    const { truth, claims, put, resource } = setUp();
    const reporter = new LatchedReporter();
    const register = new GuardedRegister(resource, claims, reporter, guard);
    const first = { ...put("1"), host: "c1", shared: false };
    truth.delete([KEY]);
    const second = { ...put("2"), host: "c2", shared: false };
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
    const strict = withRegister(({ token }, { exclusive }) => token > exclusive);
    strict.register.arrive(strict.second);
    assert.throws(() => strict.register.arrive(strict.second), /I11.*refused/);
  });

  it("catches a token that was never given to its writer", () => {
    const { register, first, second } = withRegister();
    assert.throws(() => register.arrive({ ...first, leaseId: "2" }), /I11.*never given/);
    assert.throws(() => register.arrive({ ...second, token: 99 }), /I11.*never given/);
  });

  /** Two who read together, then one who writes, then another reader. */
  function withReaders(guard?: Guard) {
    const { truth, claims, put, resource } = setUp("read-write-lock");
    const register = new GuardedRegister(resource, claims, new LatchedReporter(), guard);
    const early = { ...put("1", "read/"), host: "c1", shared: true };
    const other = { ...put("2", "read/"), host: "c2", shared: true };
    truth.delete([early.key, other.key]);
    const writer = { ...put("3", "write/"), host: "c3", shared: false };
    truth.delete([writer.key]);
    const late = { ...put("4", "read/"), host: "c4", shared: true };
    return { register, early, other, writer, late };
  }

  it("two marks: those who share come in any order, an owner of all only after them, and they only after it", () => {
    const { register, early, other, writer, late } = withReaders();
    assert.ok(register.arrive(other));
    assert.ok(register.arrive(early));
    assert.ok(register.arrive(writer));
    assert.ok(!register.arrive(other));
    assert.ok(register.arrive(late));
    assert.ok(!register.arrive(writer));
    assert.equal(register.staleWithoutGuard, 2);
  });

  it("two marks: catches a guard with one mark for both, and one that forgets those who share", () => {
    const one = withReaders(({ token }, marks) => token >= Math.max(marks.exclusive, marks.shared));
    one.register.arrive(one.other);
    assert.throws(() => one.register.arrive(one.early), /I11.*refused/);
    const forgetful = withReaders(({ token }, marks) => token >= marks.exclusive);
    forgetful.register.arrive(forgetful.late);
    assert.throws(() => forgetful.register.arrive(forgetful.writer), /I11.*stale/);
  });
});
