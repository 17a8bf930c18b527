import type { Channel } from "@lockstep/client";
import { Histogram } from "../histogram.ts";
import { runClosedLoop, type Slot, type StartOperation } from "./closed-loop.ts";
import { Corpus, Random } from "./corpus.ts";
import { describe, problemOf, type Load } from "./load.ts";
import { grantAll, inParallel, renewAll, waitUntil } from "./operations.ts";
import { Tally } from "./tally.ts";

const PREFIX = Buffer.from("/expiry/");
const PREFIX_END = Buffer.from("/expiry0");
/** The foreground is measured for this long before the first session ends. */
const BEFORE_MS = 5_000;
/** Whoever needs longer is not waited for: what is still there then is an error. */
const GONE_MS_MAX = 240_000;
const SET_UP_MS_MAX = 60_000;

/** Sees the sessions' keys go. */
class Departures {
  count = 0;
  lastAtMs = 0;
  isWatching = false;
  problem: string | undefined;

  constructor(channel: Channel) {
    channel.watch(
      {
        range: { key: PREFIX, rangeEnd: PREFIX_END },
        startRevision: 0,
        returnPrevious: false,
        omit: "put",
      },
      {
        created: () => {
          this.isWatching = true;
        },
        events: ({ events }) => {
          this.count += events.length;
          this.lastAtMs = performance.now();
          return true;
        },
        progress: () => undefined,
        ended: (error) => {
          this.problem = describe(error);
        },
      },
    );
  }
}

/** Puts, told apart by whether they were sent before or after the sessions began to end. */
class Foreground {
  readonly before: Histogram = new Histogram();
  readonly during: Tally = new Tally({ fromMs: 0, untilMs: Infinity });
  beforeFromMs = Infinity;
  duringFromMs = Infinity;
  /** Held by the loop that runs; set when it is to end. */
  readonly plan: { fromMs: number; untilMs: number } = { fromMs: 0, untilMs: Infinity };

  operation(channel: Channel, corpus: Corpus, slot: Slot): StartOperation {
    const random = new Random(slot.index + 1);
    let begin = 0;
    const finish = (error: Parameters<typeof problemOf>[0]): void => {
      const now = performance.now();
      if (error === undefined && begin >= this.duringFromMs) this.during.success(begin, now, 1);
      else if (error === undefined && begin >= this.beforeFromMs) this.before.record(now - begin);
      slot.done(problemOf(error));
    };
    return () => {
      begin = performance.now();
      channel.putWith(corpus.key(random), corpus.value(random), finish);
      return true;
    };
  }
}

async function setUp(channel: Channel, leases: number, ttlMs: number): Promise<readonly string[]> {
  const ids = await grantAll(channel, { count: leases, ttlMs });
  const value = Buffer.from("here");
  await inParallel(ids.length, (index, done) => {
    const key = Buffer.concat([PREFIX, Buffer.from(String(index).padStart(8, "0"))]);
    channel.putWith(key, value, (error) => done(error), { leaseId: ids[index] ?? "0" });
  });
  return ids;
}

/**
 * `leases` sessions with a key each, renewed together for the last time, end together. An operation is a put of the
 * foreground while they do; `figures` tell how long that took beyond the last one's end by its TTL.
 */
export const massExpiry: Load = async (channel, settings) => {
  const { leases, ttlSeconds } = settings;
  const ttlMs = ttlSeconds * 1000;
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  const departures = new Departures(channel);
  await waitUntil("the watch of the sessions' keys", SET_UP_MS_MAX, () => departures.isWatching);
  const ids = await setUp(channel, leases, ttlMs);
  const firstEndMs = performance.now() + ttlMs;
  await renewAll(channel, ids);
  const lastEndMs = performance.now() + ttlMs;
  if (departures.count > 0) throw new Error("sessions ended before all were there: use a longer --ttl");
  const foreground = new Foreground();
  const beforeMs = Math.min(BEFORE_MS, ttlMs / 2);
  foreground.beforeFromMs = firstEndMs - beforeMs;
  foreground.duringFromMs = firstEndMs;
  await new Promise((resolve) => setTimeout(resolve, firstEndMs - beforeMs - 1_000 - performance.now()));
  const loop = runClosedLoop({
    plan: foreground.plan,
    slots: settings.clients,
    operationOf: (slot) => foreground.operation(channel, corpus, slot),
  });
  const allGone = (): boolean => departures.count >= leases;
  await waitUntil("all sessions to end", lastEndMs - performance.now() + GONE_MS_MAX, allGone).catch(
    () => undefined,
  );
  const goneMs = allGone() ? departures.lastAtMs : performance.now();
  foreground.plan.untilMs = performance.now();
  const { errors, firstError } = await loop;
  const tally = foreground.during;
  if (errors > 0) tally.failure(firstError ?? "unknown", errors);
  const left = leases - departures.count;
  if (left > 0) tally.failure(`${String(left)} sessions were still there at the end`, left);
  if (departures.problem !== undefined) tally.failure(departures.problem);
  return {
    tally,
    seconds: (goneMs - firstEndMs) / 1000,
    figures: {
      untilGoneSeconds: Math.max(0, goneMs - lastEndMs) / 1000,
      p50BeforeMs: foreground.before.quantileMs(0.5),
      p99BeforeMs: foreground.before.quantileMs(0.99),
      p99DuringMs: tally.latencies.quantileMs(0.99),
    },
  };
};
