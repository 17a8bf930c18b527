import assert from "node:assert/strict";
import { test } from "node:test";
import type { LeaderState } from "../index.ts";
import { claimSuite } from "./testing/claim-suite.ts";
import { aborted, connectTo, eventually, keysIn, setUp } from "./testing/set-up.ts";

claimSuite({ name: "election", acquire: (client, options) => client.election("job").campaign(options) });

test("election: D27, D28: one leads at a time, each in a larger term, and its value is seen", async () => {
  const { member, client } = await setUp();
  const election = client.election("job");
  const one = await client.session({ ttlMs: 10_000, owner: "one" });
  const two = await client.session({ ttlMs: 10_000, owner: "two" });
  assert.equal(await election.leader(), undefined);
  const first = await election.campaign({ session: one, value: "host-1" });
  assert.equal(await election.tryCampaign({ session: two }), undefined);
  const second = election.campaign({ session: two, value: "host-2" });
  await eventually("it waits", () => member.watchCount() > 0);
  const seen = await client.election("job").leader();
  assert.equal(seen?.value, "host-1");
  assert.equal(seen.term, first.term);
  assert.equal(seen.owner, "one");
  await first.resign();
  const next = await second;
  assert.ok(next.term > first.term);
  assert.equal((await election.leader())?.value, "host-2");
  assert.throws(() => first.assertHeld(), { code: "not-held" });
});

test("election: a leader changes what others see, under its term; one whose time is over does not", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const leadership = await client.election("job").campaign({ session, value: "starting" });
  await leadership.announce("ready");
  const seen = await client.election("job").leader();
  assert.equal(seen?.value, "ready");
  assert.equal(seen.term, leadership.term);
  assert.equal(leadership.value, "ready");
  await client.delete(leadership.key);
  await assert.rejects(leadership.announce("late"), { code: "not-held" });
  assert.deepEqual(keysIn(member), []);
});

test("election: D30, D32: leader-only work is told at once of the end, and lead() says that it did not last", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  let term = 0;
  const leading = client.election("job").lead({ session }, async (leadership) => {
    term = leadership.term;
    member.store.expire(session.leaseId);
    await aborted(leadership.held);
    assert.throws(() => leadership.assertHeld());
  });
  await assert.rejects(leading, { code: "not-held" });
  assert.ok(term > 0);
  await using again = await client.session({ ttlMs: 10_000 });
  assert.equal(
    await client.election("job").lead({ session: again }, ({ term: later }) => later > term),
    true,
  );
  assert.deepEqual(keysIn(member), []);
});

test("election: D31: observers see every leader and nobody, through breaks and forgotten history", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const session = await client.session({ ttlMs: 10_000 });
  const election = client.election("job");
  const seen: (string | undefined)[] = [];
  const stop = new AbortController();
  const observing = (async (): Promise<void> => {
    for await (const leader of other.election("job").observe({ signal: stop.signal }))
      seen.push(leader?.value);
  })();
  const sees = (...values: (string | undefined)[]): Promise<void> =>
    eventually(
      `it sees ${String(values)}`,
      () => JSON.stringify(seen.slice(-values.length)) === JSON.stringify(values),
    );
  await sees(undefined);
  const first = await election.campaign({ session, value: "a" });
  await sees(undefined, "a");
  await first.announce("b");
  await sees("a", "b");
  member.breakStreams();
  await first.resign();
  await sees("b", undefined);
  await eventually("it watches", () => member.watchCount() > 0);
  member.greets = false;
  member.breakStreams();
  member.store.revision += 5;
  member.store.compactRevision = member.store.revision;
  member.greets = true;
  const second = await election.campaign({ session, value: "c" });
  await sees(undefined, "c");
  assert.equal(seen.filter((value) => value === undefined).length, 2, "no repetition");
  await second.resign();
  await sees("c", undefined);
  stop.abort();
  await observing;
  await eventually("nothing watches any more", () => member.watchCount() === 0);
});

test("election: a listener that throws, or takes long, delays neither renewals nor the leader, and its errors are told", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const errors: unknown[] = [];
  const seen: (LeaderState | undefined)[] = [];
  const stop = new AbortController();
  let stuck: (() => void) | undefined;
  const subscription = client.election("job").subscribe(
    async (leader) => {
      seen.push(leader);
      if (seen.length === 1) throw new RangeError("of the listener");
      await new Promise<void>((resolve) => (stuck = resolve));
    },
    { signal: stop.signal, onError: (error) => errors.push(error) },
  );
  await eventually("the error is told", () => errors.length === 1);
  const first = await client.election("job").campaign({ session, value: "a" });
  await eventually("the listener hangs", () => stuck !== undefined);
  await first.announce("b");
  await first.resign();
  await using last = await client.election("job").campaign({ session, value: "c" });
  last.assertHeld();
  assert.equal(seen.length, 2);
  stop.abort();
  stuck?.();
  await subscription;
  assert.ok(errors[0] instanceof RangeError);
  assert.equal(errors.length, 1);
  assert.ok(member.frames.length > 0);
});
