// Clients that do the same at the same time must not go on in step: what a cell gets from thousands is spread over time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, backoffCeilingMs } from "../backoff.ts";
import { LockstepError } from "../errors.ts";
import { persist } from "../recipes/persist.ts";
import type { Client } from "../client.ts";
import { ManualRuntime } from "../testing/manual-runtime.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { HeldLease } from "./leases.ts";

const TTL = 9_000;
const MARGIN = 900;
const CLIENTS = 200;

/** A clock by hand, with a chance of its own: a small generator, so that a failure is the same in every run. */
class DrawingRuntime extends ManualRuntime {
  #state: number;

  constructor(seed: number) {
    super();
    this.#state = Math.imul(seed + 1, 0x9e37_79b1) >>> 0;
  }

  override random(): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return this.#state / 2 ** 32;
  }
}

function runtimes(): DrawingRuntime[] {
  return Array.from({ length: CLIENTS }, (_, seed) => new DrawingRuntime(seed));
}

/** The largest share of `times` that falls within one window of this length. */
function crowd(times: readonly number[], windowMs: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  const most = Math.max(
    ...sorted.map((from) => sorted.filter((at) => at >= from && at < from + windowMs).length),
  );
  return most / times.length;
}

/** When a client that opened its session at 0 sends its renewals; each is acknowledged at once. */
function renewalTimes(runtime: DrawingRuntime, renewals: number): readonly number[] {
  const times: number[] = [];
  const started = runtime.now();
  const keeper = new LeaseKeeper(runtime, {
    isConnected: () => true,
    suspect: () => undefined,
    flushSoon: () => {
      const renew = keeper.takeOutbox();
      if (renew === undefined) return;
      times.push(runtime.now() - started);
      keeper.onAck({ id: renew.id, revision: 1, remainingMs: [TTL], failure: undefined });
    },
  });
  const sent = { monotonicMs: runtime.now(), wallMs: runtime.wallNow() };
  const lease = new HeldLease(runtime, {
    ...{ leaseId: "1", ttlMs: TTL, marginMs: MARGIN, sent },
    onEnd: () => assert.fail("the session ends"),
  });
  keeper.hold(lease);
  while (times.length < renewals) runtime.advance(100);
  return times;
}

test("G45: sessions that were opened together do not renew in step, and each renews often enough", () => {
  const all = runtimes().map((runtime) => renewalTimes(runtime, 20));
  for (const times of all) {
    times.forEach((at, index) => {
      const intervalMs = at - (times[index - 1] ?? 0);
      // A third of the TTL at most, a tenth less at least; the timer's whole millisecond more.
      assert.ok(intervalMs >= (TTL / 3) * 0.9 - 1 && intervalMs <= TTL / 3 + 1, String(intervalMs));
    });
  }
  const nth = (index: number): number[] => all.map((times) => times[index] ?? 0);
  assert.ok(crowd(nth(0), 30) < 0.25, "the first renewals are spread over a tenth of a third");
  assert.ok(crowd(nth(19), 30) < 0.1, "and the spread grows from renewal to renewal");
});

test("G45: who is refused asks again after a random delay below a ceiling that doubles, up to two seconds", () => {
  const backoffs = runtimes().map((runtime) => new Backoff(runtime));
  for (let attempt = 0; attempt < 12; attempt++) {
    const ceiling = backoffCeilingMs(attempt);
    assert.equal(ceiling, Math.min(2_000, 25 * 2 ** attempt));
    const delays = backoffs.map((backoff) => backoff.nextMs());
    for (const delay of delays) assert.ok(delay >= 0 && delay < ceiling, String(delay));
    // Full jitter: anywhere below the ceiling, no part of it preferred.
    assert.ok(crowd(delays, ceiling / 10) < 0.2, `attempt ${String(attempt)}`);
  }
  for (const backoff of backoffs) backoff.reset();
  assert.ok(
    backoffs.every((backoff) => backoff.nextMs() < 25),
    "after a success it begins again",
  );
  const asked = backoffs.map((backoff) => backoff.nextMs(700));
  assert.ok(
    asked.every((delay) => delay >= 700),
    "the cell's own word is kept to",
  );
  assert.ok(crowd(asked, 5) < 0.25, "and nobody comes at exactly that time");
});

test("G45: who waits through an outage asks again at random times, and not more often than the ceiling allows", async () => {
  const overloaded = new LockstepError("overloaded", "not-applied", "by the test");
  const times = await Promise.all(
    runtimes().map(async (runtime) => {
      const asked: number[] = [];
      const stop = new AbortController();
      const client = { runtime } as unknown as Client;
      const waiting = persist(client, stop.signal, () => {
        asked.push(runtime.now());
        return Promise.reject(overloaded);
      });
      const ended = assert.rejects(waiting, { name: "AbortError" });
      while (asked.length < 15) {
        runtime.advance(50);
        await new Promise((resolve) => setImmediate(resolve));
      }
      stop.abort();
      await ended;
      return asked.map((at) => at - (asked[0] ?? 0));
    }),
  );
  const last = times.map((asked) => asked[14] ?? 0);
  // Seven questions while the ceiling grows, seven at two seconds: eight seconds or so on average.
  assert.ok(
    last.every((at) => at > 2_000 && at < 20_000),
    String(last),
  );
  assert.ok(crowd(last, 500) < 0.25, "they have come apart");
});
