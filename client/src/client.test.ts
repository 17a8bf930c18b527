import assert from "node:assert/strict";
import { after, test } from "node:test";
import type * as coordination from "@lockstep/proto/coordination";
import { connect, LockstepError, type Client, type ConnectOptions } from "./index.ts";
import { FakeMember, type FakeMemberOptions } from "./testing/fake-cell.ts";
import { FakeStore } from "./testing/fake-store.ts";

const cleanUps: (() => void)[] = [];
after(() => {
  for (const cleanUp of cleanUps.reverse()) cleanUp();
});

async function startMember(options: FakeMemberOptions = {}): Promise<FakeMember> {
  const member = await FakeMember.start(options);
  cleanUps.push(() => member.stop());
  return member;
}

async function connectTo(
  members: readonly FakeMember[],
  options: Partial<ConnectOptions> = {},
): Promise<Client> {
  const client = await connect({ endpoints: members.map(({ address }) => address), ...options });
  cleanUps.push(() => client.close());
  return client;
}

function mutations(member: FakeMember): coordination.Request[] {
  return member.requests.filter(({ clientId }) => clientId !== 0);
}

async function failureOf(promise: Promise<unknown>): Promise<LockstepError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof LockstepError, String(error));
    return error;
  }
  return assert.fail("a failure was expected");
}

/** Waits, turn by turn, for something that is bound to happen. */
async function eventually(what: string, holds: () => boolean): Promise<void> {
  const limit = performance.now() + 10_000;
  while (!holds()) {
    assert.ok(performance.now() < limit, `waited too long until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

test("keys, ranges, transactions and leases through a real stream", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  const first = await client.put("a", "1");
  assert.equal(first.version, 1);
  assert.equal(first.key.toString(), "a");
  const second = await client.put("a", Buffer.from("2"), { returnPrevious: true });
  assert.equal(second.previous?.text(), "1");
  assert.equal((await client.get("a"))?.text(), "2");
  assert.equal(await client.get("b"), undefined);
  const { leaseId } = await client.leaseGrant({ ttlMs: 5_000, owner: "me" });
  await client.put("b", "x", { leaseId });
  const all = await client.range({ prefix: "" });
  assert.deepEqual(
    all.kvs.map((kv) => [kv.keyText, kv.leaseId]),
    [
      ["a", "0"],
      ["b", leaseId],
    ],
  );
  assert.equal((await client.leaseTimeToLive(leaseId, { keys: true })).keys.length, 1);
  assert.deepEqual(
    (await client.leaseList()).leases.map((lease) => lease.owner),
    ["me"],
  );
  const refused = await client.txn({
    compares: [{ key: "a", operator: ">", version: 5 }],
    success: [{ put: { key: "a", value: "3" } }],
    failure: [{ get: { key: "a" } }],
  });
  assert.equal(refused.succeeded, false);
  assert.equal(refused.failures[0]?.actual?.version, 2);
  assert.equal((await client.leaseRevoke(leaseId)).deleted, 1);
  assert.equal((await client.delete({ prefix: "" })).deleted, 1);
});

test("all requests of one turn leave in one frame", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  const before = member.frames.length;
  await Promise.all(Array.from({ length: 500 }, (_, i) => client.put(`k${String(i)}`, "v")));
  assert.equal(member.frames.length - before, 1);
});

test("a mutation whose answer was lost with its stream is sent again under the same identity and runs once", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  let broken = false;
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "put" || broken) return { kind: "execute" };
    broken = true;
    return { kind: "execute-and-break" };
  };
  const result = await client.put("a", "1");
  assert.equal(result.version, 1);
  assert.equal(member.store.executions, 1);
  const [first, second] = mutations(member);
  assert.equal(first?.clientId, second?.clientId);
  assert.equal(first?.sequence, second?.sequence);
});

test("a read on a broken stream is repeated", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("a", "1");
  let broken = false;
  member.judge = () => {
    if (broken) return { kind: "execute" };
    broken = true;
    return { kind: "execute-and-break" };
  };
  assert.equal((await client.get("a"))?.text(), "1");
});

test("without identities a lost answer is an unknown outcome, and no id is registered", async () => {
  const member = await startMember();
  const client = await connectTo([member], { identity: "none" });
  member.judge = () => ({ kind: "execute-and-break" });
  const error = await failureOf(client.put("a", "1"));
  assert.equal(error.code, "connection-lost");
  assert.equal(error.outcome, "unknown");
  assert.equal(member.store.clients.size, 0);
});

test("request-expired is an unknown outcome, and the next mutation has a fresh client id", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("a", "1");
  member.store.clients.clear();
  const error = await failureOf(client.put("a", "2"));
  assert.equal(error.code, "request-expired");
  assert.equal(error.outcome, "unknown");
  await client.put("a", "3");
  const ids = new Set(mutations(member).map(({ clientId }) => clientId));
  assert.equal(ids.size, 2);
});

test("more outstanding mutations than one id's window are spread over several ids", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await Promise.all(Array.from({ length: 3_000 }, (_, i) => client.put(`k${String(i)}`, "v")));
  assert.equal(member.store.kvs.size, 3_000);
  for (const { sequence, acknowledgedBelow } of mutations(member)) {
    assert.ok(sequence - acknowledgedBelow < 1_024);
  }
});

test("a refusal for now is repeated, not before the cell said so", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  let refusals = 0;
  member.judge = () => {
    if (refusals === 2) return { kind: "execute" };
    refusals += 1;
    return { kind: "fail", failure: { code: "overloaded", retryAfterMs: 60 } };
  };
  const start = performance.now();
  await client.put("a", "1");
  assert.ok(performance.now() - start >= 118);
});

test("a refusal for good is the caller's, with its outcome", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  const error = await failureOf(client.put("a", "1", { leaseId: "99" }));
  assert.equal(error.code, "lease-not-found");
  assert.equal(error.outcome, "not-applied");
});

test("a deadline passes: unknown for a mutation on the wire, not-applied for a read", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  member.judge = () => ({ kind: "swallow" });
  const [put, get] = await Promise.all([
    failureOf(client.put("a", "1", { deadlineMs: 50 })),
    failureOf(client.get("a", { deadlineMs: 50 })),
  ]);
  assert.deepEqual([put.code, put.outcome], ["deadline-exceeded", "unknown"]);
  assert.deepEqual([get.code, get.outcome], ["deadline-exceeded", "not-applied"]);
  assert.ok(member.requests.at(-1)!.deadlineMs <= 50);
  assert.equal(client.channel.outstanding, 0);
});

test("with nobody reachable a mutation waits no longer than its deadline, and was not applied", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  member.stop();
  await eventually("the stream is gone", () => client.info === undefined);
  const error = await failureOf(client.put("a", "1", { deadlineMs: 200 }));
  assert.equal(error.outcome, "not-applied");
  assert.ok(error.code === "unavailable" || error.code === "deadline-exceeded");
});

test("a signal ends a call at once", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  const abort = new AbortController();
  member.judge = () => {
    setImmediate(() => abort.abort(new Error("enough")));
    return { kind: "swallow" };
  };
  const error = await failureOf(client.put("a", "1", { signal: abort.signal }));
  assert.equal(error.code, "cancelled");
  assert.equal(error.outcome, "unknown");
  assert.equal((error.cause as Error).message, "enough");
  const early = await failureOf(client.put("a", "1", { signal: abort.signal }));
  assert.equal(early.outcome, "not-applied");
});

test("requests beyond the bound are refused as overloaded", async () => {
  const member = await startMember();
  const client = await connectTo([member], { requestsMax: 10, identity: "none" });
  const settled = await Promise.allSettled(Array.from({ length: 12 }, () => client.put("a", "1")));
  const refused = settled.filter((outcome) => outcome.status === "rejected");
  assert.equal(refused.length, 2);
  assert.equal((refused[0]!.reason as LockstepError).code, "overloaded");
});

test("a dead endpoint does not keep the others from being tried", async () => {
  const member = await startMember();
  const gone = await startMember();
  gone.stop();
  const client = await connectTo([gone, member]);
  await client.put("a", "1");
});

test("a member that never greets is passed over", async () => {
  const mute = await startMember();
  mute.greets = false;
  const member = await startMember();
  const client = await connectTo([mute, member]);
  await client.put("a", "1");
});

test("connect gives up in time, and says what it tried", async () => {
  const gone = await startMember();
  gone.stop();
  const error = await failureOf(connect({ endpoints: [gone.address], connectTimeoutMs: 300 }));
  assert.equal(error.code, "unavailable");
  assert.match(error.message, new RegExp(gone.address));
});

interface Pair {
  readonly members: readonly [FakeMember, FakeMember];
  readonly lead: (member: FakeMember) => void;
}

async function startPair(): Promise<Pair> {
  const store = new FakeStore();
  let leader: FakeMember | undefined;
  let term = 1;
  const options = { store, leader: () => leader?.asLeader(), term: () => term };
  const members = [
    await startMember({ ...options, memberId: 1 }),
    await startMember({ ...options, memberId: 2 }),
  ] as const;
  return {
    members,
    lead: (member) => {
      leader = member;
      term += 1;
      for (const each of members) each.announce();
    },
  };
}

test("a client of a follower goes to the leader, whose address it learns from the follower", async () => {
  const { members, lead } = await startPair();
  lead(members[1]);
  const client = await connectTo([members[0]]);
  await eventually("the client is at the leader", () => client.info?.memberId === 2);
  await client.put("a", "1");
  assert.equal(mutations(members[1]).length, 1);
  assert.equal(mutations(members[0]).length, 0);
});

test("on a change of leader requests and watches move, and no event is lost or doubled", async () => {
  const { members, lead } = await startPair();
  lead(members[0]);
  const client = await connectTo(members);
  await eventually("the client is at the first leader", () => client.info?.memberId === 1);
  const watch = client.watch({ prefix: "w/" });
  await watch.created;
  const writes = (async (): Promise<void> => {
    for (let i = 0; i < 200; i++) {
      if (i % 40 === 20) lead(members[(i / 20) % 4 === 1 ? 1 : 0]);
      await client.put(`w/${String(i)}`, String(i));
    }
  })();
  const seen: string[] = [];
  for await (const event of watch) {
    seen.push(event.kv.text());
    if (seen.length === 200) break;
  }
  await writes;
  assert.deepEqual(
    seen,
    Array.from({ length: 200 }, (_, i) => String(i)),
  );
});

test("a leader that falls silent is left for the one that the others name", async () => {
  const { members, lead } = await startPair();
  lead(members[0]);
  const client = await connectTo(members);
  await eventually("the client is at the first leader", () => client.info?.memberId === 1);
  await client.put("warm", "up");
  members[0].judge = () => ({ kind: "swallow" });
  // Only the second member knows of its election: the first one is cut off.
  members[0].announces = false;
  lead(members[1]);
  const result = await client.put("a", "1");
  assert.equal(result.version, 1);
  assert.equal(client.info?.memberId, 2);
});

for (const renewals of ["unanswered", "refused"] as const) {
  test(`a client that only renews leaves a leader that was cut off: renewals ${renewals}`, async () => {
    const store = new FakeStore();
    let leader: FakeMember | undefined;
    let term = 1;
    const options = { store, leader: () => leader?.asLeader(), term: () => term };
    const old = await startMember({ ...options, memberId: 1 });
    const next = await startMember({ ...options, memberId: 2 });
    leader = old;
    const client = await connectTo([old, next]);
    await eventually("the leader is connected", () => client.info?.memberId === 1);
    const session = await client.session({ ttlMs: 4_000, marginMs: 400 });
    // The client still reaches it, the others do not, and lead a later term.
    old.announces = false;
    if (renewals === "unanswered") old.acknowledgesRenewals = false;
    else old.refusesRenewals = "no-leader";
    leader = next;
    term = 2;
    await eventually("the new leader is found", () => client.info?.memberId === 2);
    await eventually("it renews there", () => next.frames.some((frame) => frame.renew !== undefined));
    session.assertAlive();
    await session.close();
  });
}

test("another cell at the same addresses: sessions end, watches begin anew, and what was asked is unknown", async () => {
  const first = await startMember({ cellId: "one" });
  const client = await connectTo([first]);
  const session = await client.session({ ttlMs: 60_000 });
  const watch = client.watch("a", { startRevision: 1_000 });
  await watch.created;
  const pending = failureOf(watch[Symbol.asyncIterator]().next());
  const before = mutations(first);
  first.judge = (request) => ({ kind: request.clientId === 0 ? "execute" : "swallow" });
  const put = failureOf(client.put("b", "1"));
  await eventually("the put is on its way", () => mutations(first).length > before.length);
  first.become("two");
  first.judge = () => ({ kind: "execute" });
  first.breakStreams();
  assert.equal((await pending).code, "compacted");
  const lost = await put;
  assert.deepEqual([lost.code, lost.outcome], ["connection-lost", "unknown"]);
  await eventually("the session has ended", () => session.lost.aborted);
  const old = new Set(mutations(first).map(({ clientId }) => clientId));
  await client.put("b", "2");
  assert.ok(!old.has(mutations(first).at(-1)?.clientId ?? 0), "under an id of the new cell");
});

test("a closed client rejects what is outstanding and what comes after", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  member.judge = () => ({ kind: "swallow" });
  const outstanding = failureOf(client.put("a", "1"));
  await eventually("the request is on the wire", () => mutations(member).length === 2);
  await client[Symbol.asyncDispose]();
  assert.deepEqual([(await outstanding).code, (await outstanding).outcome], ["closed", "unknown"]);
  assert.equal((await failureOf(client.get("a"))).code, "closed");
});

test("a stream that is open and dead is left for another one to the same member", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  const session = await client.session({ ttlMs: 6_000, marginMs: 600 });
  member.deafen();
  assert.equal((await client.put("a", "1", { deadlineMs: 8_000 })).version, 1);
  // Without a request under way it is a renewal that notices.
  member.deafen();
  const before = member.frames.length;
  await eventually("it renews over a new stream", () =>
    member.frames.slice(before).some((frame) => frame.renew !== undefined),
  );
  session.assertAlive();
  await session.close();
});

test("a burst that fills the client before its first id is registered passes, and the client goes on", async () => {
  const member = await startMember();
  const client = await connectTo([member], { requestsMax: 100, worker: false });
  const burst = Array.from({ length: 100 }, (_, n) => client.put(`burst/${String(n)}`, ""));
  await Promise.all(burst);
  assert.equal((await client.get("burst/0"))?.keyText, "burst/0");
});

test("mutations that were given up while no id could be had leave their places to others", async () => {
  const member = await startMember();
  const client = await connectTo([member], { requestsMax: 20, worker: false });
  member.judge = (_request, operation) =>
    operation.operation?.$case === "registerClient"
      ? { kind: "fail", failure: { code: "no-leader" } }
      : { kind: "execute" };
  const burst = Array.from({ length: 20 }, (_, n) =>
    failureOf(client.put(`burst/${String(n)}`, "", { deadlineMs: 100 })),
  );
  for (const error of await Promise.all(burst)) assert.equal(error.outcome, "not-applied");
  member.judge = () => ({ kind: "execute" });
  await eventually("the places are free", () => client.channel.outstanding < 20);
  assert.equal((await client.put("a", "1")).version, 1);
});

test("a put that may have been applied is not called not-applied by a refusal before the log", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  await client.put("warm", "up");
  member.judge = () => ({ kind: "execute-and-break" });
  const put = failureOf(client.put("a", "1"));
  await eventually("it was executed", () => member.store.kvs.has("a"));
  member.judge = () => ({ kind: "fail", failure: { code: "diverged" } });
  const { code, outcome } = await put;
  assert.deepEqual([code, outcome], ["diverged", "unknown"]);
});

test("a deadline without an end, and one that is no number, hang nobody", async () => {
  const member = await startMember();
  const client = await connectTo([member], { deadlineMs: Infinity });
  assert.equal((await client.put("a", "1")).version, 1);
  // Over at once, or answered before anybody looked.
  await client.put("a", "1", { deadlineMs: NaN }).catch(() => undefined);
});

test("a session's margin that leaves no time to renew in, or is below nothing, is refused", async () => {
  const member = await startMember();
  const client = await connectTo([member]);
  for (const marginMs of [-1, NaN, 2_001]) {
    await assert.rejects(client.session({ ttlMs: 3_000, marginMs }), RangeError);
  }
  assert.equal(member.store.leases.size, 0);
});
