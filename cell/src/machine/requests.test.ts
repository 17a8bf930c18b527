import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RequestIdentity } from "@lockstep/gateway/coordinator";
import { DEFAULT_SETTINGS } from "./index.ts";
import { REMEMBERED_BYTES_MAX } from "./remembered.ts";
import { bytes, client, command, get, Member, put, remove, string, txn } from "./testing/harness.ts";

const HOUR = 3_600_000;
const token = (value: string): RequestIdentity => ({ kind: "token", token: value });
const rows = (member: Member): number =>
  member.store.scan("requests", { from: bytes("\0"), limit: 10_000 }).length;

describe("requests of a registered client", () => {
  it("a retry gets the first outcome, marked, and runs nothing: also after a restart", () => {
    const member = new Member();
    const id = member.register();
    const first = member.outcome(put("a", "1"), client(id, 1));
    for (const round of ["same process", "restarted"]) {
      const again = member.outcome(put("a", "1"), client(id, 1));
      assert.deepEqual(again, { ...first, replayed: true }, round);
      member.restart();
    }
    assert.equal(member.range(get("a")).kvs[0]!.version, 1);
  });

  it("a retry within the same entry and within the same batch runs once", () => {
    const member = new Member();
    const id = member.register();
    const twice = [command(put("a"), client(id, 1)), command(put("a"), client(id, 1))];
    const outcomes = member.entry(twice).entries[0]!.outcomes;
    assert.deepEqual(
      outcomes.map((o) => o.ok && o.replayed),
      [false, true],
    );
    const one = member.encode([command(put("a"), client(id, 2))]);
    const two = { ...one, index: (one.index + 1) as never };
    const applied = member.apply([one, two]);
    assert.deepEqual(
      applied.entries.map((e) => e.outcomes[0]!.ok && e.outcomes[0]!.replayed),
      [false, true],
    );
    assert.equal(member.range(get("a")).kvs[0]!.version, 2);
  });

  it("refusals are remembered as well", () => {
    const member = new Member();
    const id = member.register();
    const attempt = put("a", "v", { leaseId: "77" as never });
    const first = member.refused(attempt, client(id, 1));
    member.do({ kind: "lease-grant", leaseId: "77" as never, ttlMs: 5000 });
    assert.deepEqual(member.refused(attempt, client(id, 1)), first);
    assert.equal(member.do({ ...attempt }, client(id, 2)).version, 1);
  });

  it("every kind of outcome comes back as it was", () => {
    const member = new Member();
    const id = member.register();
    member.do(put("x", "there"));
    const operations = [
      put("a", "1", { returnPrevious: true }),
      put("q", "1", { sequential: true }),
      txn({
        compares: [{ key: bytes("x"), target: "version", operator: "=", operand: 1 }],
        success: [put("s", "", { sequential: true }), put("t"), get("", ""), remove("x", "y", true)],
      }),
      txn({
        compares: [{ key: bytes("t"), target: "version", operator: "=", operand: 9 }],
        failure: [put("u", "", { returnPrevious: true })],
      }),
      remove("t", "v", true),
      { kind: "lease-grant", ttlMs: 5000 } as const,
      { kind: "lease-revoke", leaseId: "1" as never } as const,
      { kind: "compact", revision: 3 as never } as const,
      { kind: "register-client" } as const,
    ];
    const first = operations.map((operation, i) => member.outcome(operation, client(id, i + 1)));
    member.restart();
    for (const [i, operation] of operations.entries()) {
      const again = member.outcome(operation, client(id, i + 1));
      assert.deepEqual(again, { ...first[i]!, replayed: true });
    }
  });

  it("acknowledged outcomes are dropped, and never run again", () => {
    const member = new Member();
    const id = member.register();
    for (let sequence = 1; sequence <= 20; sequence++) member.do(put("a"), client(id, sequence, sequence));
    assert.equal(rows(member), 3);
    const refused = member.refused(put("a"), client(id, 19, 1));
    assert.deepEqual([refused.code, refused.outcome], ["request-expired", "unknown"]);
    member.restart();
    assert.equal(member.refused(put("a"), client(id, 19, 1)).code, "request-expired");
    assert.equal(member.range(get("a")).kvs[0]!.version, 20);
  });

  it("sequences may come out of order", () => {
    const member = new Member();
    const id = member.register();
    for (const sequence of [5, 2, 9, 3]) member.do(put(`k${sequence}`), client(id, sequence, 2));
    member.restart();
    for (const sequence of [3, 9, 2, 5]) {
      const outcome = member.outcome(put(`k${sequence}`), client(id, sequence, 2));
      assert.equal(outcome.ok && outcome.replayed, true);
    }
    assert.equal(member.do(put("k4"), client(id, 4, 2)).version, 1);
  });

  it("a client that never acknowledges keeps a bounded number; evicted ones never run again", () => {
    const member = new Member({ settings: { ...DEFAULT_SETTINGS, outcomesPerClientMax: 8 } });
    const id = member.register();
    for (let sequence = 1; sequence <= 30; sequence++) member.do(put("a"), client(id, sequence));
    assert.ok(rows(member) <= 2 + 8);
    const answers = Array.from({ length: 30 }, (_, i) => {
      const outcome = member.outcome(put("a"), client(id, i + 1));
      return outcome.ok ? "replayed" : outcome.failure.code;
    });
    const replayed = answers.filter((a) => a === "replayed").length;
    assert.ok(replayed > 0 && replayed <= 8);
    assert.ok(answers.slice(0, 30 - replayed).every((a) => a === "request-expired"));
    assert.equal(member.range(get("a")).kvs[0]!.version, 30);
  });

  it("an unknown client's request is refused without running", () => {
    const member = new Member();
    assert.equal(member.refused(put("a"), client(99, 1)).code, "request-expired");
    assert.equal(member.range(get("a")).count, 0);
  });

  it("a request that acknowledges its own answer is refused", () => {
    const member = new Member();
    const id = member.register();
    assert.equal(member.refused(put("a"), client(id, 1, 2)).code, "invalid-argument");
    assert.equal(member.do(put("a"), client(id, 1, 1)).version, 1);
  });

  it("another operation under a used id is refused, and stops nobody", () => {
    const member = new Member();
    const id = member.register();
    const operations = [
      put("a", "v", { sequential: true }),
      txn({ success: [put("b")] }),
      put("c"),
      remove("d"),
    ];
    for (const [i, operation] of operations.entries()) member.do(operation, client(id, i + 1));
    for (const [i, first] of operations.entries()) {
      for (const operation of operations) {
        const same = operation === first;
        const outcome = member.outcome(operation, client(id, i + 1));
        assert.equal(outcome.ok ? outcome.replayed : outcome.failure.code, same ? true : "invalid-argument");
      }
    }
    const both = member.entry([command(put("e"), client(id, 9)), command(put("f"), client(id, 9))]);
    const last = both.entries[0]!.outcomes[1]!;
    assert.equal(last.ok ? "ok" : last.failure.code, "invalid-argument");
  });

  it("a silent client is forgotten by replicated time, an active one is not", () => {
    const member = new Member();
    const [silent, active] = [member.register(), member.register()];
    member.do(put("s"), client(silent, 1));
    for (let i = 1; i <= 20; i++) {
      member.timeMs += HOUR / 10;
      member.do(put("a"), client(active, i, i));
    }
    assert.equal(member.refused(put("s"), client(silent, 1)).code, "request-expired");
    assert.equal(member.range(get("s")).kvs[0]!.version, 1);
    assert.equal(rows(member), 3);
    assert.equal(member.machine.timeMs, 1_000_000 + 2 * HOUR);
  });

  it("a clock that goes back does not take replicated time with it", () => {
    const member = new Member();
    member.do(put("a"));
    member.timeMs -= 500_000;
    member.do(put("a"));
    assert.equal(member.machine.timeMs, 1_000_000);
  });

  it("a large answer is replayed without what it read, but with what it did", () => {
    const member = new Member();
    const id = member.register();
    for (let i = 0; i < 10; i++) member.do(put(`k${i}`, "x".repeat(REMEMBERED_BYTES_MAX / 8)));
    const operation = txn({ success: [get("k", "l"), put("done"), remove("k0", "k2", true)] });
    const first = member.do(operation, client(id, 1));
    const again = member.do(operation, client(id, 1));
    const [range, done, removed] = again.responses;
    assert.deepEqual(range, { ...first.responses[0]!, kvs: [], more: true });
    assert.deepEqual(done, first.responses[1]);
    assert.deepEqual(removed, { ...first.responses[2]!, previous: [] });
  });
});

describe("free-form request ids", () => {
  it("a retry gets the first outcome, also after a restart", () => {
    const member = new Member();
    const first = member.outcome(put("a"), token("id-ä"));
    member.restart();
    assert.deepEqual(member.outcome(put("a"), token("id-ä")), { ...first, replayed: true });
    assert.equal(member.range(get("a")).kvs[0]!.version, 1);
  });

  it("they are forgotten by age", () => {
    const member = new Member();
    member.do(put("a"), token("x"));
    member.timeMs += DEFAULT_SETTINGS.tokenAgeMsMax;
    assert.equal(member.do(put("a"), token("x")).version, 2);
    assert.equal(member.do(put("a"), token("x")).version, 2);
    member.timeMs += 2 * HOUR;
    member.do(put("b"));
    assert.equal(rows(member), 0);
  });

  it("one that is used again after its time is remembered anew: forgetting the old one leaves it", () => {
    const member = new Member({ settings: { ...DEFAULT_SETTINGS, clientIdleMsMax: 1000 * HOUR } });
    member.do(put("a"), token("x"));
    member.timeMs += DEFAULT_SETTINGS.tokenAgeMsMax;
    assert.equal(member.do(put("a"), token("x")).version, 2);
    for (const id of ["1", "2"]) member.do(put(id), token(id));
    const again = member.outcome(put("a"), token("x"));
    assert.equal(again.ok && again.replayed, true);
    assert.equal(rows(member), 6);
  });

  it("they are forgotten by number, oldest first", () => {
    const member = new Member({ settings: { ...DEFAULT_SETTINGS, tokensMax: 3 } });
    for (const id of ["1", "2", "3", "4"]) member.do(put(id), token(id));
    assert.equal(member.do(put("4"), token("4")).version, 1);
    assert.equal(member.do(put("2"), token("2")).version, 1);
    assert.equal(member.do(put("1"), token("1")).version, 2);
    assert.equal(rows(member), 6);
  });

  it("an id is 1 to 128 bytes", () => {
    const member = new Member();
    assert.equal(member.refused(put("a"), token("")).code, "invalid-argument");
    assert.equal(member.refused(put("a"), token("ä".repeat(65))).code, "invalid-argument");
    assert.equal(string(member.do(put("a"), token("ä".repeat(64))).key), "a");
  });
});
