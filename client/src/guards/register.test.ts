import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { tokenToString } from "../index.ts";
import { FencedRegister, SlotGuards, StaleTokenError, TokenGuard } from "./register.ts";
import { tokenDigits, tokenFromDigits } from "./token.ts";

const TOKEN_MAX = Number.MAX_SAFE_INTEGER;

describe("a register's guard", () => {
  it("refuses a token smaller than the largest it has seen, and says which", () => {
    const register = new FencedRegister("report", "nothing");
    register.write(7, "seven");
    assert.throws(
      () => register.write(5, "five"),
      (error) => {
        assert(error instanceof StaleTokenError);
        assert.deepEqual(
          [error.code, error.outcome, error.resource, error.offered, error.seen],
          ["stale-token", "not-applied", "report", 5, 7],
        );
        return true;
      },
    );
    assert.equal(register.value, "seven");
    assert.equal(register.rejections, 1);
  });

  it("takes the same token again, for a holder writes more than once", () => {
    const register = new FencedRegister("report", 0);
    for (const value of [1, 2, 3]) register.write(7, value);
    assert.equal(register.value, 3);
    assert.equal(register.rejections, 0);
  });

  it("shuts the earlier holder out when the new one was admitted, before it wrote", () => {
    const register = new FencedRegister("report", "nothing");
    register.write(5, "five");
    register.guard.admit(7);
    assert.throws(() => register.write(5, "late"), StaleTokenError);
    assert.equal(register.value, "five");
  });

  it("compares the largest tokens exactly", () => {
    const guard = new TokenGuard("report");
    guard.admit(TOKEN_MAX);
    assert.throws(() => guard.admit(TOKEN_MAX - 1), StaleTokenError);
  });

  it("takes nothing that is not a token", () => {
    const guard = new TokenGuard("report");
    for (const token of [0, -1, 1.5, NaN, Infinity, TOKEN_MAX + 1])
      assert.throws(() => guard.admit(token), TypeError, String(token));
    assert.deepEqual(guard.marks, { exclusive: 0, shared: 0 });
    assert.equal(guard.rejections, 0);
  });
});

describe("the pair of marks of a read-write lock", () => {
  it("lets holders of the shared side in, in any order of their tokens", () => {
    const guard = new TokenGuard("report");
    guard.admit(3);
    for (const token of [9, 5, 9, 4]) guard.admitShared(token);
    assert.deepEqual(guard.marks, { exclusive: 3, shared: 9 });
  });

  it("refuses a shared token below the exclusive mark", () => {
    const register = new FencedRegister("report", "nothing");
    register.write(6, "six");
    assert.throws(() => register.read(5), StaleTokenError);
    assert.equal(register.read(8), "six");
  });

  it("refuses an exclusive token below either mark", () => {
    const guard = new TokenGuard("report");
    guard.admit(3);
    guard.admitShared(9);
    assert.throws(() => guard.admit(8), { name: "StaleTokenError", seen: 9 });
    guard.admit(10);
    assert.throws(() => guard.admit(9), { name: "StaleTokenError", seen: 10 });
    assert.equal(guard.rejections, 2);
  });

  it("keeps the shared mark when a smaller shared token comes", () => {
    const guard = new TokenGuard("report");
    guard.admitShared(9);
    guard.admitShared(4);
    assert.throws(() => guard.admit(8), StaleTokenError);
  });
});

describe("the slots of a semaphore", () => {
  it("know nothing of each other: permits are held at the same time", () => {
    const guards = new SlotGuards("pool", 2);
    guards.slot(0).admit(9);
    guards.slot(1).admit(4);
    assert.throws(() => guards.slot(0).admit(8), { name: "StaleTokenError", resource: "pool#0" });
    assert.equal(guards.rejections, 1);
  });

  it("end with the last permit", () => {
    assert.throws(() => new SlotGuards("pool", 2).slot(2), TypeError);
    assert.throws(() => new SlotGuards("pool", 0), TypeError);
  });
});

describe("a token's digits", () => {
  it("are those of Lock.tokenString", () => {
    for (const token of [1, 42, 10 ** 15, TOKEN_MAX]) {
      assert.equal(tokenDigits(token), tokenToString(token));
      assert.equal(tokenFromDigits(tokenDigits(token)), token);
    }
  });

  it("are digits, and no more than a token can have", () => {
    for (const text of ["", "-1", "1.5", "0x10", "1e3", " 1", "9007199254740992", "00000000000000001"])
      assert.equal(tokenFromDigits(text), undefined, text);
  });
});
