import assert from "node:assert/strict";
import { test } from "node:test";
import { Outcome } from "@lockstep/proto/coordination";
import type { AcquireOptions, Claim, Client, Session } from "../../index.ts";
import type { FakeMember, Verdict } from "../../testing/fake-cell.ts";
import { aborted, connectTo, eventually, keysIn, settled, setUp } from "./set-up.ts";

/** A recipe with one holder at a time, as the suite uses it. */
export interface ClaimRecipe {
  readonly name: string;
  readonly acquire: (client: Client, options: AcquireOptions) => Promise<Claim>;
  /** Round trips when it is free. Default 1. */
  readonly roundTrips?: number;
  /** Keys of one claim. Default 1. */
  readonly keys?: number;
}

interface World {
  readonly member: FakeMember;
  readonly client: Client;
  readonly session: Session;
}

async function world(options: Parameters<typeof setUp>[0] = {}, ttlMs = 10_000): Promise<World> {
  const { member, client } = await setUp(options);
  return { member, client, session: await client.session({ ttlMs, owner: "first" }) };
}

/** The first transaction of a kind meets this fate; all else is executed. */
function once(member: FakeMember, verdict: Verdict, matches: "creation" | "deletion"): void {
  let met = false;
  member.judge = (_, { operation }) => {
    const wanted = matches === "creation" ? "put" : "delete";
    if (met || operation?.$case !== "txn") return { kind: "execute" };
    if (operation.value.success[0]?.step?.$case !== wanted) return { kind: "execute" };
    met = true;
    return verdict;
  };
}

/** The laws that everything which is acquired and held keeps. */
export function claimSuite(recipe: ClaimRecipe): void {
  const { name, acquire, keys: keysEach = 1 } = recipe;

  test(`${name}: a free one costs no more round trips than it must`, async () => {
    const { member, client, session } = await world();
    await client.put("warm", "up");
    const before = member.requests.length;
    const claim = await acquire(client, { session });
    assert.equal(member.requests.length - before, recipe.roundTrips ?? 1);
    claim.assertHeld(1_000);
    assert.equal(Number(claim.tokenString), claim.token);
    assert.equal(claim.tokenString.length, 16);
    await claim.release();
    assert.deepEqual(keysIn(member), ["warm"]);
  });

  test(`${name}: who gives up, by time, at once or by a signal, leaves nothing behind`, async () => {
    const { member, client, session } = await world();
    const second = await client.session({ ttlMs: 10_000 });
    await using holder = await acquire(client, { session });
    const keys = keysIn(member);
    await assert.rejects(acquire(client, { session: second, waitMs: 0 }), { code: "lock-timeout" });
    await assert.rejects(acquire(client, { session: second, waitMs: 30 }), { code: "lock-timeout" });
    const abort = new AbortController();
    const waiting = acquire(client, { session: second, signal: abort.signal });
    const cancelled = assert.rejects(waiting, { code: "cancelled", outcome: "not-applied" });
    await eventually("it waits", () => member.watchCount() > 0);
    abort.abort();
    await cancelled;
    await settled(client);
    assert.deepEqual(keysIn(member), keys);
    assert.equal(member.watchCount(), 0);
    holder.assertHeld();
  });

  test(`${name}: C19: a waiter wakes on its own session's death, and its place goes with the session`, async () => {
    const { member, client, session } = await world();
    const doomed = await client.session({ ttlMs: 10_000 });
    await using holder = await acquire(client, { session });
    const keys = keysIn(member);
    const ended = assert.rejects(acquire(client, { session: doomed }), { code: "session-lost" });
    await eventually("it waits", () => member.watchCount() > 0);
    member.store.expire(doomed.leaseId);
    await ended;
    assert.deepEqual(keysIn(member), keys);
    holder.assertHeld();
  });

  test(`${name}: it passes on with a larger token, by release and by the end of the session`, async () => {
    const { member, client, session } = await world();
    const other = await connectTo(member);
    const second = await other.session({ ttlMs: 10_000 });
    const first = await acquire(client, { session });
    const waiting = acquire(other, { session: second });
    await eventually("it waits", () => member.watchCount() > 0);
    await first.release();
    const next = await waiting;
    assert.ok(next.token > first.token);
    assert.throws(() => first.assertHeld(), { code: "not-held" });
    const last = acquire(client, { session });
    await eventually("it waits", () => member.watchCount() > 0);
    member.store.expire(second.leaseId);
    assert.ok((await last).token > next.token);
    await aborted(next.held);
    assert.throws(() => next.assertHeld(), { code: "not-held" });
  });

  test(`${name}: B15, C20, D29: no answer makes a holder of a process that slept through its session's end`, async () => {
    const { REAL_RUNTIME } = await import("../../runtime.ts");
    let sleptMs = 0;
    const { member, client, session } = await world({
      runtime: { ...REAL_RUNTIME, now: () => REAL_RUNTIME.now() + sleptMs },
    });
    member.judge = (_, { operation }) => {
      if (operation?.$case === "txn") sleptMs = 20_000;
      return { kind: "execute" };
    };
    await assert.rejects(acquire(client, { session }), { code: "session-lost" });
  });

  test(`${name}: C21: a late release never frees a later claim of the same session`, async () => {
    const { member, client, session } = await world();
    const early = await acquire(client, { session });
    for (const { key } of early.conditions) await client.delete(key);
    const late = await acquire(client, { session });
    await early.release();
    await early.release();
    assert.ok(keysIn(member).includes(late.key));
    assert.ok(late.token > early.token);
  });

  test(`${name}: a creation whose outcome is unknown is taken back`, async () => {
    const { member, client, session } = await world({ identity: "none" });
    once(member, { kind: "execute-and-break" }, "creation");
    await assert.rejects(acquire(client, { session, waitMs: 0 }), { outcome: "unknown" });
    assert.deepEqual(keysIn(member), []);
  });

  test(`${name}: whoever waits does so through an outage, and leaves nothing of a failed try behind`, async () => {
    const { member, client, session } = await world({ identity: "none" });
    once(member, { kind: "execute-and-break" }, "creation");
    const claim = await acquire(client, { session });
    claim.assertHeld();
    assert.equal(keysIn(member).length, keysEach);
    assert.ok(keysIn(member).includes(claim.key));
    await claim.release();
    assert.deepEqual(keysIn(member), []);
  });

  test(`${name}: whose identity the cell has forgotten waits on all the same`, async () => {
    const { member, client, session } = await world();
    const failure = { code: "request-expired", outcome: Outcome.UNKNOWN };
    once(member, { kind: "fail", failure }, "creation");
    const claim = await acquire(client, { session });
    claim.assertHeld();
    assert.equal(keysIn(member).length, keysEach);
  });

  test(`${name}: whose watch is refused for now keeps its place, and asks for no more than the watch`, async () => {
    const { member, client, session } = await world();
    const second = await client.session({ ttlMs: 10_000 });
    const holder = await acquire(client, { session, watchKey: false });
    const waiting = acquire(client, { session: second });
    await eventually("it waits", () => member.watchCount() > 0);
    const before = [keysIn(member), member.store.executions];
    member.endWatches("too-many-watches");
    await eventually("it waits again", () => member.watchCount() > 0);
    assert.deepEqual([keysIn(member), member.store.executions], before);
    await holder.release();
    assert.ok((await waiting).token > holder.token);
  });

  test(`${name}: who has given up is told why, whatever fails after that`, async () => {
    const { REAL_RUNTIME } = await import("../../runtime.ts");
    const waitMs = 47;
    let onTime = (): void => undefined;
    const { member, client, session } = await world({
      identity: "none",
      runtime: {
        ...REAL_RUNTIME,
        schedule: (callback, delayMs) =>
          REAL_RUNTIME.schedule(() => {
            callback();
            if (delayMs === waitMs) onTime();
          }, delayMs),
      },
    });
    onTime = () => member.breakStreams();
    let silent = true;
    member.judge = (_, { operation }) => {
      if (!silent || operation?.$case !== "txn") return { kind: "execute" };
      silent = false;
      return { kind: "swallow" };
    };
    await assert.rejects(acquire(client, { session, waitMs }), { code: "lock-timeout" });
    silent = true;
    const abort = new AbortController();
    onTime = () => {
      abort.abort();
      member.breakStreams();
    };
    client.runtime.schedule(() => undefined, waitMs);
    await assert.rejects(acquire(client, { session, signal: abort.signal }), { code: "cancelled" });
    assert.deepEqual(keysIn(member), []);
  });

  test(`${name}: a creation that is executed after it was looked for in vain is found all the same`, async () => {
    const { member, client, session } = await world({ identity: "none" });
    let late: (() => void) | undefined;
    member.judge = (request, { operation }) => {
      if (late !== undefined || operation?.$case !== "txn") return { kind: "execute" };
      // It waits in a member that is stopped, while the stream breaks and the client looks for it elsewhere.
      late = () => member.store.request(request, { operation });
      queueMicrotask(() => member.breakStreams());
      return { kind: "swallow" };
    };
    await assert.rejects(acquire(client, { session, waitMs: 0 }), { outcome: "unknown" });
    assert.deepEqual(keysIn(member), []);
    late?.();
    assert.equal(keysIn(member).length, keysEach);
    await eventually("the key is gone", () => keysIn(member).length === 0);
    session.assertAlive();
  });

  test(`${name}: a claim won when nobody waits any more is given back`, async () => {
    const { member, client, session } = await world();
    const abort = new AbortController();
    member.judge = (_, { operation }) => {
      if (operation?.$case === "txn") abort.abort();
      return { kind: "execute" };
    };
    await assert.rejects(acquire(client, { session, signal: abort.signal }), { code: "cancelled" });
    assert.deepEqual(keysIn(member), []);
  });

  test(`${name}: whoever gives up is not kept waiting by a silent cell, and the key goes all the same`, async () => {
    const { member, client } = await world({ identity: "none" });
    // What is outstanding is given up with what the session is sure of.
    const session = await client.session({ ttlMs: 3_000, marginMs: 1_400 });
    let silent = false;
    member.judge = (request, { operation }) => {
      if (silent || operation?.$case !== "txn") return { kind: "execute" };
      silent = true;
      member.store.request(request, { operation });
      return { kind: "swallow" };
    };
    await assert.rejects(acquire(client, { session, waitMs: 50 }), { code: "lock-timeout" });
    assert.equal(keysIn(member).length, keysEach);
    await eventually("the key is gone", () => keysIn(member).length === 0);
    session.assertAlive();
  });

  test(`${name}: an answer that comes long after the caller has left is taken back`, async () => {
    const { member, client, session } = await world();
    let silent = false;
    member.judge = (request, { operation }) => {
      if (silent || operation?.$case !== "txn") return { kind: "execute" };
      silent = true;
      member.store.request(request, { operation });
      return { kind: "swallow" };
    };
    await assert.rejects(acquire(client, { session, waitMs: 10 }), { code: "lock-timeout" });
    // It is asked for again under the same identity, and the first outcome is told.
    member.breakStreams();
    await eventually("the key is gone", () => keysIn(member).length === 0);
  });

  test(`${name}: C25: a release that fails is told and may be repeated; a disposal repeats it by itself`, async () => {
    const { member, client, session } = await world();
    const fail: Verdict = { kind: "fail", failure: { code: "no-space" } };
    const told = await acquire(client, { session });
    once(member, fail, "deletion");
    await assert.rejects(told.release(), { code: "no-space" });
    assert.equal(keysIn(member).length, keysEach);
    await told.release();
    assert.deepEqual(keysIn(member), []);
    const disposed = await acquire(client, { session });
    once(member, fail, "deletion");
    await disposed[Symbol.asyncDispose]();
    await eventually("the key is gone", () => keysIn(member).length === 0);
  });

  test(`${name}: B14: after the loss nothing is sent to release it`, async () => {
    const { member, client, session } = await world();
    const claim = await acquire(client, { session });
    member.store.expire(session.leaseId);
    await aborted(claim.held);
    await settled(client);
    const before = member.frames.length;
    await claim.release();
    await claim[Symbol.asyncDispose]();
    assert.equal(member.frames.length, before);
  });

  test(`${name}: A6: a holder whose key somebody deletes is told`, async () => {
    const { member, client, session } = await world();
    const claim = await acquire(client, { session });
    await eventually("it is watched", () => member.watchCount() > 0);
    await client.delete(claim.key);
    await aborted(claim.held);
    assert.throws(() => claim.assertHeld(), { code: "not-held" });
    session.assertAlive();
  });

  test(`${name}: C22: history that is compacted while somebody waits loses neither the waiter nor its turn`, async () => {
    const { member, client, session } = await world();
    const second = await client.session({ ttlMs: 10_000 });
    const first = await acquire(client, { session });
    const waiting = acquire(client, { session: second });
    await eventually("it waits", () => member.watchCount() > 0);
    // The release and the compaction happen while the waiter is cut off.
    member.greets = false;
    member.breakStreams();
    for (const { key } of first.conditions) member.store.kvs.delete(key.toString());
    member.store.revision += 5;
    member.store.compactRevision = member.store.revision;
    member.greets = true;
    assert.ok((await waiting).token > first.token);
  });
}
