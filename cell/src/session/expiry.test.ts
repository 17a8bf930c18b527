import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { id, leader, remaining, type Member } from "./testing/member.ts";
import type { SessionWork } from "./types.ts";

describe("expiry", () => {
  it("an unrenewed lease is expired after its TTL, never before, and at most a bucket and a tick later", () => {
    for (const ttl of [1, 63, 64, 65, 1000, 12_345, 16_384, 20_000, 4_194_304, 5_000_000]) {
      const member = leader({ checkpointIntervalMs: 10 ** 12 });
      member.grant(id(1), ttl);
      member.tickUntil(ttl - 1);
      assert.deepEqual(member.expired, [], `ttl ${ttl}`);
      member.tickUntil(ttl + 200);
      assert.deepEqual(member.expired, [id(1)], `ttl ${ttl}`);
    }
  });

  it("a lease is proposed once, however long the outcome takes", () => {
    const member = leader();
    member.grant(id(1), 1000);
    member.tickUntil(20_000);
    assert.deepEqual(member.expired, [id(1)]);
    member.end(id(1));
    assert.equal(member.keeper.count, 0);
  });

  it("an acknowledged renewal moves the deadline by the full TTL from then", () => {
    const member = leader();
    member.grant(id(1), 1000);
    member.tickUntil(900);
    assert.deepEqual(member.renew(id(1))(), remaining(1000));
    assert.equal(member.keeper.remainingMs(1, id(1), member.now), 1000);
    member.tickUntil(1899);
    assert.deepEqual(member.expired, []);
    member.tickUntil(2100);
    assert.deepEqual(member.expired, [id(1)]);
  });

  it("leases are expired in the order of their deadlines, in batches, one namespace a command", () => {
    const member = leader({ expireBatchMax: 4 });
    for (let n = 0; n < 8; n += 1) member.grant(id(n), 1000 + ((n * 5) % 8) * 7, 1 + (n % 2));
    member.tickUntil(900);
    const work = expiriesUntil(member, 1200);
    const byDeadline = [0, 5, 2, 7, 4, 1, 6, 3].map(id);
    for (const namespaceId of [1, 2]) {
      const mine = work.expire.filter((each) => each.namespaceId === namespaceId);
      assert.ok(mine.every(({ leaseIds }) => leaseIds.length <= 4));
      const expected = byDeadline.filter((leaseId) => 1 + (Number(leaseId) % 2) === namespaceId);
      assert.deepEqual(
        mine.flatMap(({ leaseIds }) => leaseIds),
        expected,
      );
    }
  });

  it("a bounded number of expiries is on its way; the next ones follow as outcomes arrive", () => {
    const member = leader({ expireBatchMax: 10 });
    for (let n = 0; n < 300; n += 1) member.grant(id(n), 1000);
    member.tickUntil(1200);
    assert.equal(member.expired.length, 20);
    member.tickUntil(3000);
    assert.equal(member.expired.length, 20);
    for (let n = 0; n < 15; n += 1) member.end(id(n));
    member.tick();
    assert.equal(member.expired.length, 35);
  });

  it("100,000 leases that end together go in small steps, in order, and are all gone within 10 s", () => {
    const member = leader();
    for (let n = 0; n < 100_000; n += 1) member.grant(id(n), 10_000 + (n % 50));
    let worstMs = 0;
    member.tickUntil(9_990);
    const applied = (expire: SessionWork["expire"]): void => {
      const leases = expire.flatMap(({ leaseIds }) => leaseIds);
      assert.ok(leases.length <= 64, `${leases.length} at once`);
      assert.ok(expire.every(({ leaseIds }) => leaseIds.length <= 32));
      for (const leaseId of leases) member.end(leaseId);
    };
    while (member.expired.length < 100_000 && member.now < 18_500) {
      const before = performance.now();
      const work = member.tick(1);
      worstMs = Math.max(worstMs, performance.now() - before);
      applied(work.expire);
      // Each step takes as long as a commit, and the next one follows by itself.
      for (let commit = 0; commit < 6; commit += 1) {
        member.now += 4;
        applied(member.more());
      }
    }
    assert.equal(member.expired.length, 100_000);
    const deadlines = member.expired.map((leaseId) => Number(leaseId) % 50);
    assert.ok(deadlines.every((deadline, at) => at === 0 || deadline >= deadlines[at - 1]!));
    assert.equal(member.keeper.count, 0);
    assert.ok(worstMs < 1000, `a tick took ${worstMs} ms`);
  });

  it("however fast they are committed, no more than 13,000 a second follow each other", () => {
    const member = leader();
    for (let n = 0; n < 50_000; n += 1) member.grant(id(n), 1_000);
    member.tickUntil(1_000);
    const applied = (expire: SessionWork["expire"]): void => {
      for (const { leaseIds } of expire) for (const leaseId of leaseIds) member.end(leaseId);
    };
    for (let step = 0; step < 400; step += 1) {
      applied(step % 10 === 0 ? member.tick(5).expire : []);
      for (let round = 0; round < 10; round += 1) applied(member.more());
      if (step % 10 !== 0) member.now += 5;
    }
    assert.ok(member.expired.length <= 650 + 2_100 * 13, `${member.expired.length} in 2 s`);
    assert.ok(member.expired.length >= 1_800 * 13, `${member.expired.length} in 2 s`);
  });

  it("the next expiries wait like the first: for a tick in time, for a quorum, and only a leader has any", () => {
    const member = leader();
    for (let n = 0; n < 1_000; n += 1) member.grant(id(n), 1_000);
    member.tickUntil(1_200);
    for (const leaseId of member.expired) member.end(leaseId);
    member.now += 501;
    assert.deepEqual(member.more(), [], "the tick is late: leadership is to be proved");
    assert.equal(member.tick(0).proveLeadership, true);
    assert.deepEqual(member.more(), [], "not proved yet");
    member.keeper.leadershipProved(member.now, member.now);
    assert.ok(member.more().length > 0);
    member.keeper.follow();
    assert.deepEqual(member.more(), []);
  });

  it("a lease that was revoked is not expired; its id may be granted anew", () => {
    const member = leader();
    member.grant(id(1), 1000);
    member.end(id(1));
    member.tickUntil(900);
    member.grant(id(1), 1000);
    member.tickUntil(1800);
    assert.deepEqual(member.expired, []);
    member.tickUntil(2100);
    assert.deepEqual(member.expired, [id(1)]);
  });

  it("a refused expiry is due again, before later ones and in order", () => {
    const member = leader({ expireBatchMax: 2 });
    for (let n = 0; n < 3; n += 1) member.grant(id(n), 1000 + n);
    member.tickUntil(1200);
    assert.deepEqual(member.expired, [0, 1, 2].map(id));
    member.grant(id(9), 10);
    member.expired = [];
    member.keeper.expiryFailed(1, [id(0), id(1)], "refused");
    member.tick();
    assert.deepEqual(member.expired, [0, 1, 9].map(id));
  });
});

function expiriesUntil(member: Member, until: number): SessionWork {
  const expire: SessionWork["expire"][number][] = [];
  while (member.now < until) expire.push(...member.tick().expire);
  return { expire, checkpoint: [], proveLeadership: false };
}
