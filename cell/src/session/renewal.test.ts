import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LeaseId } from "@lockstep/gateway/coordinator";
import type { Term } from "../raft/types.ts";
import { id, leader, Member, remaining, type Answer } from "./testing/member.ts";

describe("a renewal racing an expiry", () => {
  function racing(): { member: Member; answer: () => Answer } {
    const member = leader();
    member.grant(id(1), 1000);
    member.tickUntil(1200);
    assert.deepEqual(member.expired, [id(1)]);
    const answer = member.renew(id(1));
    member.tickUntil(3000);
    assert.equal(answer(), "none yet");
    return { member, answer };
  }

  it("waits for the outcome and gets 0 when the lease ended", () => {
    const { member, answer } = racing();
    member.end(id(1));
    assert.deepEqual(answer(), remaining(0));
    assert.deepEqual(member.renew(id(1))(), remaining(0));
  });

  it("waits for the outcome and gets its renewal when the expiry was refused", () => {
    const { member, answer } = racing();
    member.keeper.expiryFailed(1, [id(1)], "refused");
    assert.deepEqual(answer(), remaining(1000));
    member.expired = [];
    member.tickUntil(3999);
    assert.deepEqual(member.expired, []);
    member.tickUntil(4200);
    assert.deepEqual(member.expired, [id(1)]);
  });

  it("goes on waiting after an unknown outcome, also when the next proposal is refused", () => {
    const { member, answer } = racing();
    member.expired = [];
    member.keeper.expiryFailed(1, [id(1)], "unknown");
    member.tick();
    assert.deepEqual(member.expired, [id(1)]);
    member.keeper.expiryFailed(1, [id(1)], "refused");
    assert.equal(answer(), "none yet");
    member.tick();
    assert.deepEqual(member.expired, [id(1), id(1)]);
    member.end(id(1));
    assert.deepEqual(answer(), remaining(0));
    for (let n = 10; n < 20; n += 1) member.grant(id(n), 10);
    member.tick(300);
    assert.equal(member.expired.length, 12, "nothing of it counts as outstanding any more");
  });

  it("holds up only its own lease: the frame is answered when all its leases are", () => {
    const { member } = racing();
    member.grant(id(2), 5000);
    const both = member.renew(id(2), id(1), id(77));
    assert.equal(both(), "none yet");
    assert.deepEqual(member.renew(id(2))(), remaining(5000));
    member.end(id(1));
    assert.deepEqual(both(), remaining(5000, 0, 0));
  });

  it("a lease that ends while its frame waits for another one is not answered positively", () => {
    const { member } = racing();
    member.grant(id(2), 5000);
    const both = member.renew(id(2), id(1));
    member.end(id(2));
    member.grant(id(2), 300);
    member.grant(id(3), 5000);
    const three = member.renew(id(3), id(1));
    member.end(id(3));
    member.end(id(1));
    assert.deepEqual(both(), remaining(300, 0));
    assert.deepEqual(three(), remaining(0, 0));
  });

  it("after the end was applied no renewal is ever positive (B21)", () => {
    const member = leader();
    member.grant(id(1), 10_000);
    assert.deepEqual(member.renew(id(1))(), remaining(10_000));
    member.end(id(1));
    assert.deepEqual(member.renew(id(1), id(1))(), remaining(0, 0));
    assert.equal(member.keeper.remainingMs(1, id(1), member.now), undefined);
  });

  it("a lease past its deadline whose expiry is not proposed yet may still be renewed", () => {
    const member = leader({ expireBatchMax: 1 });
    for (let n = 0; n < 20; n += 1) member.grant(id(n), 1000 + n);
    member.tickUntil(1200);
    assert.equal(member.expired.length, 2);
    assert.deepEqual(member.renew(id(19))(), remaining(1019));
    assert.equal(member.renew(id(0))(), "none yet");
    for (let n = 0; n < 19; n += 1) {
      member.tick(10);
      member.end(member.expired[n]!);
    }
    member.tickUntil(2100);
    assert.ok(!member.expired.includes(id(19)));
    member.tickUntil(2500);
    assert.ok(member.expired.includes(id(19)));
  });
});

describe("quorum contact", () => {
  it("a renewal is acknowledged only within an election timeout of a round that a quorum answered", () => {
    const member = leader();
    member.grant(id(1), 60_000);
    member.contact = member.now;
    member.tickUntil(1000);
    assert.deepEqual(member.renew(id(1))(), remaining(60_000));
    member.tickUntil(1001);
    const waits = member.renew(id(1));
    assert.equal(waits(), "none yet");
    member.tickUntil(2000);
    assert.equal(waits(), "none yet");
    member.keeper.quorumContact(900, member.now);
    assert.equal(waits(), "none yet");
    member.keeper.quorumContact(1950, member.now);
    assert.deepEqual(waits(), remaining(60_000));
  });

  it("a leader without a quorum expires nothing; when it is back, waiting renewals come before expiries", () => {
    const member = leader();
    member.grant(id(1), 2000);
    member.grant(id(2), 2000);
    member.contact = member.now;
    member.tickUntil(1500);
    const waits = member.renew(id(1));
    member.tickUntil(5000);
    assert.deepEqual(member.expired, []);
    member.contact = "fresh";
    member.tick();
    assert.deepEqual(waits(), remaining(2000));
    assert.deepEqual(member.expired, [id(2)]);
  });

  it("a new leader acknowledges nothing before its first contact", () => {
    const member = new Member();
    member.grant(id(1), 2000);
    member.keeper.lead(1 as Term, 0);
    const waits = member.renew(id(1));
    assert.equal(waits(), "none yet");
    member.keeper.quorumContact(0, 0);
    assert.deepEqual(waits(), remaining(2000));
  });
});

describe("a late tick (paused process, stalled disk)", () => {
  it("nothing expires and nothing is acknowledged until leadership is proved (B3)", () => {
    const member = leader();
    for (let n = 0; n < 10; n += 1) member.grant(id(n), 2000);
    member.tickUntil(1000);
    const work = member.tick(60_000);
    assert.deepEqual(work, { expire: [], checkpoint: [], proveLeadership: true });
    const waits = member.renew(id(0));
    for (let n = 0; n < 5; n += 1) assert.equal(member.tick().proveLeadership, true);
    assert.equal(waits(), "none yet");
    assert.deepEqual(member.expired, []);
    member.keeper.leadershipProved(member.now, member.now);
    assert.deepEqual(waits(), remaining(2000));
    member.tick();
    assert.deepEqual(member.expired, [1, 2, 3, 4, 5, 6, 7, 8, 9].map(id));
  });

  it("a renewal that is handled before the late tick waits as well, whatever contact says", () => {
    const member = leader();
    member.grant(id(1), 60_000);
    member.now += 501;
    member.keeper.quorumContact(member.now, member.now);
    const waits = member.renew(id(1));
    assert.equal(waits(), "none yet");
    assert.equal(member.tick(0).proveLeadership, true);
    assert.equal(waits(), "none yet");
    member.keeper.leadershipProved(member.now, member.now);
    assert.deepEqual(waits(), remaining(60_000));
  });

  it("a proof from a round that began before the pause proves nothing", () => {
    const member = leader();
    member.grant(id(1), 60_000);
    member.tick(1000);
    const before = member.now;
    member.tick(1000);
    const waits = member.renew(id(1));
    member.keeper.leadershipProved(before, member.now);
    assert.equal(waits(), "none yet");
    assert.equal(member.tick().proveLeadership, true);
    member.keeper.leadershipProved(member.now - 100, member.now);
    assert.deepEqual(waits(), remaining(60_000));
    assert.equal(member.tick().proveLeadership, false);
  });

  it("a proof that arrives after another pause is not accepted", () => {
    const member = leader();
    member.grant(id(1), 60_000);
    member.tick(1000);
    const started = member.now;
    const waits = member.renew(id(1));
    member.now += 5000;
    member.keeper.leadershipProved(started, member.now);
    assert.equal(waits(), "none yet");
    assert.equal(member.tick(0).proveLeadership, true);
  });

  it("ticks of ordinary jitter prove nothing and delay nothing", () => {
    const member = leader();
    member.grant(id(1), 5000);
    for (const ms of [500, 1, 0, 499, 500, 500]) assert.equal(member.tick(ms).proveLeadership, false);
  });
});

describe("bounds", () => {
  it("too many waiting renewals are answered undefined instead of being kept", () => {
    const member = leader();
    member.grant(id(1), 60_000);
    member.contact = 0;
    member.tickUntil(2000);
    const frame = new Array<LeaseId>(4096).fill(id(1));
    const answers = Array.from({ length: 17 }, () => member.renew(...frame));
    assert.ok(answers.slice(0, 16).every((answer) => answer() === "none yet"));
    assert.equal(answers[16]!(), undefined);
    member.keeper.follow();
    assert.ok(answers.every((answer) => answer() === undefined));
  });

  it("an empty renewal is answered at once", () => {
    assert.deepEqual(leader().renew()(), remaining());
  });

  it("a million leases: memory and the cost of a renewal (reported)", (t) => {
    const count = 1_000_000;
    globalThis.gc?.();
    const before = process.memoryUsage();
    const member = leader();
    const base = 10n ** 18n;
    for (let n = 0; n < count; n += 1) member.grant(String(base + BigInt(n) * 7919n) as LeaseId, 3_600_000);
    globalThis.gc?.();
    const after = process.memoryUsage();
    const megabytes = (after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers) / 1e6;
    const frames = Array.from({ length: 1000 }, (_, frame) =>
      Array.from(
        { length: 100 },
        (_, n) => String(base + BigInt((frame * 7907 + n * 104_729) % count) * 7919n) as LeaseId,
      ),
    );
    const start = performance.now();
    let answered = 0;
    for (const leaseIds of frames) {
      member.keeper.renew({ namespaceId: 1, leaseIds }, member.now, (answer) => {
        answered += answer?.remainingMs.length ?? 0;
      });
    }
    const microseconds = ((performance.now() - start) * 1000) / answered;
    member.keeper.follow();
    const electionStart = performance.now();
    member.lead();
    const electionMs = performance.now() - electionStart;
    t.diagnostic(
      `${megabytes.toFixed(0)} MB, ${microseconds.toFixed(2)} us a renewal, ${electionMs.toFixed(0)} ms to begin to lead`,
    );
    assert.equal(answered, 100_000);
    assert.ok(megabytes < 400);
    assert.ok(microseconds < 50);
  });
});

describe("a namespace that is deleted", () => {
  it("takes its leases along: nothing expires later, and a renewal that waits is told that they are gone", () => {
    const member = leader();
    member.grant(id(1), 1_000);
    for (const n of [2, 3]) member.grant(id(n), 5_000);
    member.grant(id(9), 5_000, 2);
    member.tickUntil(1_200);
    assert.deepEqual(member.expired, [id(1)]);
    const answer = member.renew(id(1), id(2));
    assert.equal(answer(), "none yet");
    assert.deepEqual(member.keeper.forget(1, 2), [id(1), id(2)]);
    assert.deepEqual(answer(), remaining(0, 0));
    assert.deepEqual(member.keeper.forget(1, 2), [id(3)]);
    assert.deepEqual(member.keeper.forget(1, 2), []);
    member.tickUntil(20_000);
    assert.deepEqual(member.expired, [id(1), id(9)]);
  });
});
