import type { Channel } from "@lockstep/client";
import { setTimeout as delay } from "node:timers/promises";
import { describe, type LoadResult, type LoadSettings } from "./load.ts";
import { planFromNow, Tally, type Plan } from "./tally.ts";

const HOT_KEY = Buffer.from("/bench-watch");
const SET_UP_MS_MAX = 60_000;
const STRAGGLER_MS = 10_000;
const POLL_MS = 20;

/** Deliveries of numbered puts to many watchers. */
class Deliveries {
  readonly received: Uint32Array;
  readonly tally: Tally;
  /** When put number i was sent. */
  readonly sentMs: number[] = [];
  created = 0;

  constructor(watchers: number, plan: Plan) {
    this.received = new Uint32Array(watchers);
    this.tally = new Tally(plan);
  }

  onEvent(watcher: number, value: Buffer, nowMs: number): void {
    const number = value.readUInt32BE(0);
    this.received[watcher] = (this.received[watcher] ?? 0) + 1;
    this.tally.success(this.sentMs[number] ?? nowMs, nowMs, 1);
  }

  get complete(): boolean {
    return this.received.every((count) => count === this.sentMs.length);
  }

  countMissing(): void {
    for (const count of this.received) {
      const missing = Math.abs(this.sentMs.length - count);
      if (missing > 0) {
        this.tally.failure(`a watcher got ${String(count)} of ${String(this.sentMs.length)} events`, missing);
      }
    }
  }
}

function openWatches(channel: Channel, deliveries: Deliveries): void {
  for (let watcher = 0; watcher < deliveries.received.length; watcher += 1) {
    channel.watch(
      { range: { key: HOT_KEY }, startRevision: 0, returnPrevious: false, omit: undefined },
      {
        created: () => {
          deliveries.created += 1;
        },
        events: (batch) => {
          const nowMs = performance.now();
          for (const event of batch.events) deliveries.onEvent(watcher, event.kv.value, nowMs);
          return true;
        },
        progress: () => undefined,
        ended: (error) => deliveries.tally.failure(describe(error)),
      },
    );
  }
}

async function waitFor(condition: () => boolean, limitMs: number): Promise<boolean> {
  const limit = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > limit) return false;
    await delay(POLL_MS);
  }
  return true;
}

/** One put in flight, each with the next number, until the plan's end. */
function writeUntil(channel: Channel, plan: Plan, deliveries: Deliveries, valueBytes: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const next = (): void => {
    const nowMs = performance.now();
    if (nowMs >= plan.untilMs) {
      resolve(undefined);
      return;
    }
    const value = Buffer.alloc(Math.max(4, valueBytes), "x");
    value.writeUInt32BE(deliveries.sentMs.length, 0);
    deliveries.sentMs.push(nowMs);
    channel.putWith(HOT_KEY, value, (error) => {
      if (error === undefined) next();
      else reject(new Error(describe(error)));
    });
  };
  next();
  return promise;
}

/** `leases` watches of one key, which one writer puts; counts deliveries, and each that is missing as an error. */
export async function watchFanOut(channel: Channel, settings: LoadSettings): Promise<LoadResult> {
  // The plan starts when all watches stand; the tally must know it before the first delivery.
  const plan = { fromMs: Infinity, untilMs: Infinity };
  const deliveries = new Deliveries(settings.leases, plan);
  openWatches(channel, deliveries);
  if (!(await waitFor(() => deliveries.created === settings.leases, SET_UP_MS_MAX))) {
    const why = deliveries.tally.firstError ?? "no answer";
    throw new Error(
      `only ${String(deliveries.created)} of ${String(settings.leases)} watches were created: ${why}`,
    );
  }
  Object.assign(plan, planFromNow(settings.warmupSeconds, settings.measureSeconds));
  await writeUntil(channel, plan, deliveries, settings.valueBytes);
  await waitFor(() => deliveries.complete, STRAGGLER_MS);
  deliveries.countMissing();
  return { tally: deliveries.tally, seconds: settings.measureSeconds };
}
