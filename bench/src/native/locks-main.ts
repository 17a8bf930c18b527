// One process that holds very many locks over one session, and hands one over again and again: prints one JSON line of what
// that costs it. Started with --expose-gc, so that memory means what is still needed.
import { connect, type Claim, type Client, type Session } from "@lockstep/client";
import { parseArgs } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import { Histogram } from "../histogram.ts";
import type { HandOver, IdleLocks, LocksReport } from "./locks-report.ts";

/** Acquisitions under way at once. */
const ACQUIRING = 256;
const SESSION_TTL_MS = 30_000;
/** Watches of the locks' keys begin a second after the acquisition. */
const SETTLE_MS = 3_000;
const WARM_UP = 200;
/** Many round trips: what is measured is not whether it had begun to wait. */
const UNTIL_IT_WAITS_MS = 10;

const { values: flags } = parseArgs({
  options: {
    endpoints: { type: "string", default: "127.0.0.1:2379" },
    locks: { type: "string", default: "10000" },
    "idle-seconds": { type: "string", default: "10" },
    "hand-overs": { type: "string", default: "2000" },
  },
});
const count = Number(flags.locks);

const client = await connect({ endpoints: flags.endpoints.split(",") });
const report: LocksReport = {
  unwatched: await measureIdle(false),
  watched: await measureIdle(true),
  roundTrip: await measureRoundTrips(),
  handOvers: [
    await measureHandOvers("lock", (session) => client.lock("bench", { session })),
    await measureHandOvers("fair lock", (session) => client.fairLock("bench").acquire({ session })),
  ],
};
console.log(JSON.stringify(report));
client.close();
process.exit(0);

function usedBytes(): { readonly heap: number; readonly resident: number } {
  // Twice: what the first finds unreachable may have kept something else.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap: heapUsed + external, resident: rss };
}

async function acquireAll(session: Session, watchKey: boolean): Promise<Claim[]> {
  const claims: Claim[] = [];
  let next = 0;
  const acquireSome = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      claims.push(await client.lock(`bench/${String(next)}`, { session, watchKey }));
    }
  };
  await Promise.all(Array.from({ length: ACQUIRING }, acquireSome));
  return claims;
}

async function measureIdle(watchKey: boolean): Promise<IdleLocks> {
  const session = await client.session({ ttlMs: SESSION_TTL_MS, owner: "bench" });
  const before = usedBytes();
  const started = performance.now();
  const claims = await acquireAll(session, watchKey);
  const seconds = (performance.now() - started) / 1_000;
  await delay(SETTLE_MS);
  const after = usedBytes();
  const cpuBefore = process.cpuUsage();
  const idleFrom = performance.now();
  await delay(Number(flags["idle-seconds"]) * 1_000);
  const { user, system } = process.cpuUsage(cpuBefore);
  const idleMs = performance.now() - idleFrom;
  // Read here, so that none of them can be taken for garbage before.
  for (const claim of claims) claim.assertHeld();
  await session.close();
  return {
    locks: claims.length,
    acquiredPerSecond: claims.length / seconds,
    heapBytesEach: (after.heap - before.heap) / count,
    residentBytesEach: (after.resident - before.resident) / count,
    idleCoreShare: (user + system) / 1_000 / idleMs,
  };
}

async function measureRoundTrips(): Promise<HandOver> {
  const latencies = new Histogram();
  for (let i = 0; i < WARM_UP + Number(flags["hand-overs"]); i += 1) {
    const started = performance.now();
    await client.put("bench", "x");
    if (i >= WARM_UP) latencies.record(performance.now() - started);
  }
  return { what: "put", p50Ms: latencies.quantileMs(0.5), p99Ms: latencies.quantileMs(0.99) };
}

/** From the call of `release` to the next owner's return from `acquire`. */
async function measureHandOvers(
  what: string,
  acquire: (session: Session) => Promise<Claim>,
): Promise<HandOver> {
  const other = await connect({ endpoints: flags.endpoints.split(",") });
  const sessions = await Promise.all([client, other].map((each) => sessionOf(each)));
  const latencies = new Histogram();
  const [first, second] = sessions;
  if (first === undefined || second === undefined) throw new TypeError("there are two");
  let [owner, waiter] = [first, second];
  let held = await acquire(owner);
  for (let i = 0; i < WARM_UP + Number(flags["hand-overs"]); i += 1) {
    const next = acquire(waiter);
    await delay(UNTIL_IT_WAITS_MS);
    const started = performance.now();
    const released = held.release();
    held = await next;
    if (i >= WARM_UP) latencies.record(performance.now() - started);
    await released;
    [owner, waiter] = [waiter, owner];
  }
  await held.release();
  await Promise.all(sessions.map((session) => session.close()));
  other.close();
  return { what, p50Ms: latencies.quantileMs(0.5), p99Ms: latencies.quantileMs(0.99) };
}

function sessionOf(each: Client): Promise<Session> {
  return each.session({ ttlMs: SESSION_TTL_MS, owner: "bench" });
}
