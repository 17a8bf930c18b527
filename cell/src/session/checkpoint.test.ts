import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { id, leader, Member, MINUTE, OPTIONS, remaining } from "./testing/member.ts";

describe("remaining-time checkpoints", () => {
  const HOUR = 60 * MINUTE;

  function checkpointed(): Member {
    const member = leader();
    member.grant(id(1), HOUR);
    member.tickUntil(5 * MINUTE + 200);
    assert.equal(member.lastWork.checkpoint.length + member.asked.length > 0, true);
    return member;
  }

  it("are written only for a lease that went unrenewed for a whole interval", () => {
    const member = leader();
    const [renewed, idle, short] = [id(11), id(12), id(13)];
    member.grant(renewed, HOUR);
    member.grant(idle, HOUR);
    member.grant(short, 60_000);
    for (let minute = 1; minute <= 9; minute += 1) {
      member.tickUntil(minute * MINUTE);
      assert.deepEqual(member.renew(renewed, short)(), remaining(HOUR, 60_000));
    }
    const [line, ...rest] = member.asked;
    const [, left, at] = /^checkpoint 12=(\d+) at (\d+)$/.exec(line!)!;
    assert.equal(Number(left) + Number(at), HOUR);
    assert.ok(Number(at) >= 5 * MINUTE && Number(at) <= 5 * MINUTE + 200);
    assert.deepEqual(rest, []);
  });

  it("say what is left, and again after each further interval", () => {
    const member = checkpointed();
    const [, left, at] = /=(\d+) at (\d+)/.exec(member.asked[0]!)!;
    assert.equal(Number(left) + Number(at), HOUR);
    member.checkpoint(id(1), Number(left));
    member.tickUntil(16 * MINUTE);
    assert.equal(member.asked.length, 2, "the second waits for no further outcome than its own");
    assert.ok(Number(/=(\d+)/.exec(member.asked[1]!)![1]) <= HOUR - 10 * MINUTE);
  });

  it("elections do not renew for ever: each costs at most an interval, an election timeout and the spread", () => {
    const ttl = HOUR;
    const electionEvery = 6 * MINUTE;
    let checkpointMs = 0;
    let now = 0;
    let elections = 0;
    let ended = false;
    while (!ended && elections < 100) {
      const member = new Member();
      member.now = now;
      member.keeper.load([{ namespaceId: 1, leaseId: id(1), ttlMs: ttl, checkpointMs, owner: "" }]);
      member.lead();
      elections += 1;
      while (member.now < now + electionEvery && !ended) {
        const work = member.tick();
        for (const { leases } of work.checkpoint) {
          checkpointMs = leases[0]!.remainingMs;
          member.checkpoint(id(1), checkpointMs);
        }
        ended = work.expire.length > 0;
      }
      now = member.now;
    }
    assert.ok(ended);
    const extra = elections * (electionEvery - 5 * MINUTE + OPTIONS.electionTimeoutMs + 1000 + 200);
    assert.ok(now >= ttl && now <= ttl + extra, `ended at ${now} after ${elections} elections`);
  });

  it("hold up the next renewal until an entry has cleared them", () => {
    const member = checkpointed();
    member.checkpoint(id(1), 55 * MINUTE);
    const first = member.renew(id(1));
    const second = member.renew(id(1));
    assert.equal(first(), "none yet");
    const { checkpoint } = member.tick();
    assert.deepEqual(checkpoint, [{ namespaceId: 1, leases: [{ leaseId: id(1), remainingMs: 0 }] }]);
    assert.deepEqual(member.tick().checkpoint, [], "proposed once");
    assert.equal(first(), "none yet");
    member.checkpoint(id(1), 0);
    assert.deepEqual(first(), remaining(HOUR));
    assert.deepEqual(second(), remaining(HOUR));
    assert.deepEqual(member.renew(id(1))(), remaining(HOUR));
    assert.equal(member.keeper.remainingMs(1, id(1), member.now), HOUR);
  });

  it("a renewal that meets a checkpoint on its way waits for it, and then for its clearing", () => {
    const member = checkpointed();
    const waits = member.renew(id(1));
    assert.deepEqual(member.tick().checkpoint, []);
    assert.equal(waits(), "none yet");
    member.checkpoint(id(1), 55 * MINUTE);
    assert.equal(waits(), "none yet");
    assert.equal(member.tick().checkpoint[0]!.leases[0]!.remainingMs, 0);
    member.checkpoint(id(1), 0);
    assert.deepEqual(waits(), remaining(HOUR));
  });

  it("a refused checkpoint lets the renewal pass and is proposed again later", () => {
    const member = checkpointed();
    const waits = member.renew(id(1));
    member.keeper.checkpointFailed(1, [id(1)]);
    assert.deepEqual(waits(), remaining(HOUR));
    const idle = checkpointed();
    idle.keeper.checkpointFailed(1, [id(1)]);
    idle.tick(300);
    idle.tick(300);
    assert.equal(idle.asked.length, 2);
  });

  it("a refused clearing is proposed again while the renewal waits", () => {
    const member = checkpointed();
    member.checkpoint(id(1), 55 * MINUTE);
    const waits = member.renew(id(1));
    member.tick();
    member.keeper.checkpointFailed(1, [id(1)]);
    assert.equal(member.tick().checkpoint[0]!.leases[0]!.remainingMs, 0);
    member.checkpoint(id(1), 0);
    assert.deepEqual(waits(), remaining(HOUR));
  });

  it("a lease that ends while its clearing is queued answers 0, and its slot is clean for the next lease", () => {
    const member = checkpointed();
    member.checkpoint(id(1), 55 * MINUTE);
    const waits = member.renew(id(1));
    member.end(id(1));
    assert.deepEqual(waits(), remaining(0));
    member.grant(id(2), HOUR);
    assert.deepEqual(member.tick().checkpoint, []);
    assert.deepEqual(member.renew(id(2))(), remaining(HOUR));
  });

  it("a lease is not expired while a renewal of it waits for a clearing", () => {
    const member = new Member();
    member.keeper.load([{ namespaceId: 1, leaseId: id(1), ttlMs: HOUR, checkpointMs: 2000, owner: "" }]);
    member.lead();
    member.tickUntil(1000);
    const waits = member.renew(id(1));
    member.tickUntil(60_000);
    assert.deepEqual(member.expired, []);
    member.checkpoint(id(1), 0);
    assert.deepEqual(waits(), remaining(HOUR));
    member.tickUntil(HOUR / 2);
    assert.deepEqual(member.expired, []);
  });

  it("are batched and bounded", () => {
    const member = leader();
    for (let n = 0; n < 10_000; n += 1) member.grant(id(n), HOUR, 1 + (n % 2));
    let named = 0;
    while (named < 10_000 && member.now < 6 * MINUTE) {
      const { checkpoint } = member.tick();
      const now = checkpoint.reduce((sum, { leases }) => sum + leases.length, 0);
      assert.ok(now <= 4096);
      assert.ok(checkpoint.every(({ leases }) => leases.length <= 512));
      named += now;
    }
    assert.equal(named, 10_000);
  });
});
