import assert from "node:assert/strict";
import { test } from "node:test";
import { DIAGNOSTICS } from "../diagnostics.ts";
import { REAL_RUNTIME } from "../runtime.ts";
import type { FakeMember, Verdict } from "../testing/fake-cell.ts";
import type { Client, DoubleBarrier, Session } from "../index.ts";
import { connectTo, eventually, keysIn, setUp } from "./testing/set-up.ts";

type Operation = Parameters<FakeMember["judge"]>[1];
type Request = Parameters<FakeMember["judge"]>[0];

const EXECUTE: Verdict = { kind: "execute" };
const HURRY = 20;

/** Its timers run faster than the real ones, and every pause is the longest that it may be. */
const HURRIED = {
  ...REAL_RUNTIME,
  random: () => 1,
  schedule: (callback: () => void, delayMs: number) => REAL_RUNTIME.schedule(callback, delayMs / HURRY),
};

/** What the first step of a transaction does. */
function stepOf({ operation }: Operation): "put" | "delete" | undefined {
  const step = operation?.$case === "txn" ? operation.value.success[0]?.step?.$case : undefined;
  return step === "put" || step === "delete" ? step : undefined;
}

function deletesReady({ operation }: Operation): boolean {
  if (operation?.$case !== "txn") return false;
  const step = operation.value.success[0]?.step;
  return step?.$case === "delete" && step.value.range?.key.toString().endsWith("ready") === true;
}

const isReady = (key: string): boolean => key.endsWith("/ready");

interface Side {
  readonly member: FakeMember;
  readonly client: Client;
  readonly session: Session;
  readonly barrier: DoubleBarrier;
}

/** Two processes at two members of one cell. */
async function twoSides(): Promise<readonly [Side, Side]> {
  const second = await setUp();
  const first = await setUp({ identity: "none" }, { store: second.member.store, memberId: 2 });
  const side = async ({ member, client }: Awaited<ReturnType<typeof setUp>>): Promise<Side> => ({
    ...{ member, client },
    session: await client.session({ ttlMs: 20_000 }),
    barrier: client.doubleBarrier("work", { participants: 2 }),
  });
  return [await side(first), await side(second)];
}

test("double barrier: nobody tries again before the try that failed is taken back, however long that takes", async () => {
  const { member, client } = await setUp({ identity: "none", runtime: HURRIED });
  const session = await client.session({ ttlMs: 200_000 });
  let tries = 0;
  let refusals = 0;
  let overloaded = true;
  member.judge = (_, operation) => {
    const step = stepOf(operation);
    if (step === "put") {
      tries += 1;
      if (tries === 1) return { kind: "execute-and-break" };
    }
    if (step !== "delete" || !overloaded) return EXECUTE;
    refusals += 1;
    return { kind: "fail", failure: { code: "overloaded" } };
  };
  const entering = client.doubleBarrier("work", { participants: 2 }).enter({ session });
  await eventually("more than a second of refusals has passed", () => refusals >= 8);
  assert.equal(tries, 1);
  assert.equal(keysIn(member).length, 1);
  overloaded = false;
  await eventually("it is there again", () => tries === 2 && keysIn(member).length === 1);
  const other = await connectTo(member);
  await other
    .doubleBarrier("work", { participants: 2 })
    .enter({ session: await other.session({ ttlMs: 20_000 }) });
  await entering;
});

test("double barrier: whose try is executed late counts once", async () => {
  const { member, client } = await setUp({ identity: "none" });
  const session = await client.session({ ttlMs: 20_000 });
  let late: (() => void) | undefined;
  member.judge = (request: Request, operation) => {
    if (late !== undefined || stepOf(operation) !== "put") return EXECUTE;
    late = () => member.store.request(request, operation);
    queueMicrotask(() => member.breakStreams());
    return { kind: "swallow" };
  };
  const options = { participants: 3 };
  const entering = [client.doubleBarrier("work", options).enter({ session })];
  await eventually("it waits", () => member.watchCount() === 1);
  late?.();
  assert.equal(keysIn(member).length, 2);
  const enterAnother = async (): Promise<void> => {
    const other = await connectTo(member);
    const theirs = await other.session({ ttlMs: 20_000 });
    entering.push(other.doubleBarrier("work", options).enter({ session: theirs }));
  };
  await enterAnother();
  await eventually("two wait", () => member.watchCount() === 2);
  assert.ok(!keysIn(member).some(isReady));
  await enterAnother();
  await Promise.all(entering);
});

test("double barrier: who looks late whether all have left does not wait for the next round", async () => {
  const [a, b] = await twoSides();
  const [pa, pb] = await Promise.all([
    a.barrier.enter({ session: a.session }),
    b.barrier.enter({ session: b.session }),
  ]);
  const leaving = pa.leave();
  await eventually(
    "it waits for the other",
    () => a.member.watchCount() === 1 && !keysIn(a.member).includes(pa.key),
  );
  let slow = true;
  a.member.judge = (_, { operation }) =>
    slow && operation?.$case === "range" ? { kind: "fail", failure: { code: "overloaded" } } : EXECUTE;
  await pb.leave();
  const second = b.barrier.enter({ session: b.session, waitMs: 3_000 });
  await eventually("the other waits in the next round", () => b.member.watchCount() === 1);
  slow = false;
  await leaving;
  const both = await Promise.all([a.barrier.enter({ session: a.session }), second]);
  await Promise.all(both.map((part) => part.leave()));
  assert.deepEqual(keysIn(a.member), []);
});

test("double barrier: whose last answer is lost when leaving does not wait for the next round", async () => {
  const [a, b] = await twoSides();
  const [pa, pb] = await Promise.all([
    a.barrier.enter({ session: a.session }),
    b.barrier.enter({ session: b.session }),
  ]);
  let second: ReturnType<DoubleBarrier["enter"]> | undefined;
  let met = false;
  a.member.judge = (request, operation) => {
    if (met || !(deletesReady(operation) || operation.operation?.$case === "delete")) return EXECUTE;
    met = true;
    a.member.store.request(request, operation);
    second = b.barrier.enter({ session: b.session, waitMs: 3_000 });
    void eventually("the other waits in the next round", () => b.member.watchCount() === 1).then(() =>
      a.member.breakStreams(),
    );
    return { kind: "swallow" };
  };
  await Promise.all([pb.leave(), pa.leave()]);
  assert.ok(second !== undefined);
  const both = await Promise.all([a.barrier.enter({ session: a.session }), second]);
  await Promise.all(both.map((part) => part.leave()));
  assert.deepEqual(keysIn(a.member), []);
});

test("double barrier: an end of one round that is executed late does not end the next one", async () => {
  const [a, b] = await twoSides();
  const enter = (): Promise<Awaited<ReturnType<DoubleBarrier["enter"]>>[]> =>
    Promise.all([a, b].map(({ barrier, session }) => barrier.enter({ session })));
  const [pa, pb] = await enter();
  let late: (() => void) | undefined;
  a.member.judge = (request, operation) => {
    if (late !== undefined || !(deletesReady(operation) || operation.operation?.$case === "delete"))
      return EXECUTE;
    late = () => a.member.store.request(request, operation);
    queueMicrotask(() => a.member.breakStreams());
    return { kind: "swallow" };
  };
  await Promise.all([pa?.leave(), pb?.leave()]);
  await enter();
  late?.();
  assert.ok(keysIn(a.member).some(isReady));
});

test("double barrier: a beginning that is executed late does not begin the next round", async () => {
  const { member, client } = await setUp({ identity: "none" });
  const session = await client.session({ ttlMs: 20_000 });
  const barrier = client.doubleBarrier("work", { participants: 1 });
  let late: (() => void) | undefined;
  member.judge = (request, operation) => {
    const { operation: what } = operation;
    const step = what?.$case === "txn" ? what.value.success[0]?.step : undefined;
    const put = what?.$case === "put" ? what.value : step?.$case === "put" ? step.value : undefined;
    if (late !== undefined || put === undefined || !isReady(put.key.toString())) return EXECUTE;
    late = () => member.store.request(request, operation);
    queueMicrotask(() => member.breakStreams());
    return { kind: "swallow" };
  };
  const part = await barrier.enter({ session });
  await part.leave();
  late?.();
  assert.deepEqual(keysIn(member), []);
});

test("double barrier: for whoever counts, leaving is no entering", async () => {
  const { client } = await setUp();
  const session = await client.session({ ttlMs: 20_000 });
  const told: string[] = [];
  const end = DIAGNOSTICS.acquire.subscribe(({ recipe }) => told.push(recipe));
  try {
    const part = await client.doubleBarrier("work", { participants: 1 }).enter({ session });
    await part.leave();
  } finally {
    end();
  }
  assert.deepEqual(told, ["double-barrier", "double-barrier-leave"]);
});

test(
  "double barrier: who does not want to wait enters or leaves with the last one, or not at all",
  { timeout: 10_000 },
  async () => {
    const [a, b] = await twoSides();
    await assert.rejects(a.barrier.enter({ session: a.session, waitMs: 0 }), { code: "lock-timeout" });
    assert.deepEqual(keysIn(a.member), []);
    const first = a.barrier.enter({ session: a.session });
    await eventually("one waits", () => a.member.watchCount() === 1);
    const last = await b.barrier.enter({ session: b.session, waitMs: 0 });
    await assert.rejects((await first).leave({ waitMs: 0 }), { code: "lock-timeout" });
    await last.leave({ waitMs: 0 });
    assert.deepEqual(keysIn(a.member), []);
  },
);
