import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LeaseId } from "@lockstep/gateway/coordinator";
import { id, leader, Member, MINUTE, remaining } from "./testing/member.ts";

describe("a deposed leader", () => {
  it("answers nothing positive, neither what waited nor what comes later", () => {
    const member = leader();
    member.grant(id(1), 1000);
    member.grant(id(2), 60_000);
    member.tickUntil(1200);
    const racing = member.renew(id(1), id(2));
    member.contact = 0;
    member.tickUntil(3000);
    const held = member.renew(id(2));
    assert.equal(racing(), "none yet");
    member.keeper.follow();
    assert.equal(racing(), undefined);
    assert.equal(held(), undefined);
    assert.equal(member.renew(id(2))(), undefined);
    member.expired = [];
    member.contact = "fresh";
    member.tickUntil(100_000);
    member.end(id(1));
    assert.deepEqual(member.expired, []);
    assert.equal(member.keeper.remainingMs(1, id(2), member.now), 60_000);
  });

  it("what it had on its way does not block its next leadership", () => {
    const member = leader({ expireBatchMax: 1 });
    for (let n = 0; n < 20; n += 1) member.grant(id(n), 1000);
    member.tickUntil(1200);
    assert.equal(member.expired.length, 2);
    member.keeper.follow();
    member.expired = [];
    member.lead();
    member.tickUntil(member.now + 4000);
    assert.equal(member.expired.length, 2);
  });
});

describe("a new leader", () => {
  it("counts the full TTL and an election timeout from its own beginning, spread, only ever later", () => {
    const member = new Member();
    const ttl = 10_000;
    for (let n = 0; n < 1000; n += 1) member.grant(id(n), ttl);
    member.now = 50_000;
    member.lead();
    const at = new Map<LeaseId, number>();
    while (at.size < 1000 && member.now < 70_000) {
      for (let { expire } = member.tick(); expire.length > 0; expire = member.more()) {
        for (const leaseId of expire.flatMap(({ leaseIds }) => leaseIds)) {
          at.set(leaseId, member.now);
          member.end(leaseId);
        }
      }
    }
    const times = [...at.values()].sort((a, b) => a - b);
    assert.equal(times.length, 1000);
    assert.ok(times[0]! >= 61_000);
    assert.ok(
      times.at(-1)! <= 62_000 + 200,
      "spread is at most a tenth of the TTL and 1 s for 10,000 leases",
    );
    assert.ok(times.at(-1)! - times[0]! > 700, "deadlines are spread");
  });

  it("never expires before a renewal that the old leader acknowledged at the last moment (B20)", () => {
    const [old, next] = [leader(), new Member()];
    for (const member of [old, next]) member.grant(id(1), 10_000);
    // The quorum answers a heartbeat sent at 5,000 and then elects the next leader at once.
    old.tickUntil(5000);
    old.contact = 5000;
    next.now = 5000;
    next.lead();
    old.tickUntil(6000);
    assert.deepEqual(old.renew(id(1))(), remaining(10_000));
    next.tickUntil(15_999);
    assert.deepEqual(next.expired, []);
    next.tickUntil(16_000 + 1000 + 200);
    assert.deepEqual(next.expired, [id(1)]);
  });

  it("counts a renewal from now even when the deadline after the election lay later", () => {
    const member = new Member();
    member.grant(id(1), 10_000);
    member.lead();
    assert.deepEqual(member.renew(id(1))(), remaining(10_000));
    assert.equal(member.keeper.remainingMs(1, id(1), member.now), 10_000);
    member.tickUntil(10_999);
    assert.deepEqual(member.expired, []);
    member.tickUntil(12_200);
    assert.deepEqual(member.expired, [id(1)]);
  });

  it("starts from what a snapshot loaded, checkpoints included", () => {
    const member = new Member();
    member.grant(id(9), 1000);
    member.keeper.load([
      { namespaceId: 1, leaseId: id(1), ttlMs: 60 * MINUTE, checkpointMs: 30_000, owner: "" },
      { namespaceId: 2, leaseId: id(1), ttlMs: 5000, checkpointMs: 0, owner: "" },
    ]);
    assert.equal(member.keeper.count, 2);
    assert.equal(member.keeper.remainingMs(1, id(9), 0), undefined);
    assert.equal(member.keeper.remainingMs(1, id(1), 0), 30_000);
    member.lead();
    member.tickUntil(40_000);
    assert.deepEqual(
      member.asked.map((line) => line.replace(/ at \d+/, "")),
      ["expire 1", "expire 1"],
    );
  });
});
