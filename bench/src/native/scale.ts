import type { Channel, LockstepError } from "@lockstep/client";
import { writeSync } from "node:fs";
import type { Stage } from "../load-report.ts";
import { gaugeOf } from "../metrics.ts";
import { usageOf } from "../processes.ts";
import { runClosedLoop } from "./closed-loop.ts";
import { Corpus, Random } from "./corpus.ts";
import { problemOf, type Load, type LoadSettings } from "./load.ts";
import { grantAll } from "./operations.ts";
import { ScaleStreams } from "./scale-streams.ts";
import { planFromNow, Tally } from "./tally.ts";

/** Longer than any run: nothing may end by itself. */
const LEASE_TTL_MS = 3 * 3_600_000;
/** Between the growth and the look at memory. */
const SETTLE_MS = 2_000;
const FIRST_STEP = 100;
const METRICS_MS_MAX = 5_000;
const NO_ADDRESS = "the leader's address is not known";

/** 100, 1,000, ... up to and with `most`. */
function stepsTo(most: number): readonly number[] {
  const steps: number[] = [];
  for (let step = FIRST_STEP; step < most; step *= 10) steps.push(step);
  if (most > 0) steps.push(most);
  return steps;
}

function watchKey(index: number): Buffer {
  return Buffer.from(`/watch/${String(index).padStart(8, "0")}`);
}

interface Measured extends Pick<Stage, "renewalsPerSecond" | "renewalsPerCore" | "renewalLogEntries"> {
  readonly ended: number;
}

/** How far the leader's log is committed; undefined: nobody tells. */
async function logIndex(metricsUrl: string): Promise<number | undefined> {
  if (metricsUrl === "") return undefined;
  const answer = await fetch(metricsUrl, { signal: AbortSignal.timeout(METRICS_MS_MAX) });
  return gaugeOf(await answer.text(), "lockstep_raft_commit_index");
}

function measuredRenewals({
  renewalsPerSecond,
  renewalsPerCore,
  renewalLogEntries,
}: Measured): Omit<Measured, "ended"> {
  return {
    renewalsPerSecond,
    ...(renewalsPerCore === undefined ? {} : { renewalsPerCore }),
    ...(renewalLogEntries === undefined ? {} : { renewalLogEntries }),
  };
}

class Scale {
  readonly #channel: Channel;
  readonly #settings: LoadSettings;
  readonly #streams: ScaleStreams;
  readonly #corpus: Corpus;
  readonly #all = new Tally({ fromMs: 0, untilMs: Infinity });
  #sessions = 0;
  #watches = 0;

  constructor(channel: Channel, settings: LoadSettings) {
    const address = channel.info?.leader?.clientAddress;
    if (address === undefined) throw new Error(NO_ADDRESS);
    this.#channel = channel;
    this.#settings = settings;
    this.#streams = new ScaleStreams(address, Math.max(1, settings.connections));
    this.#corpus = new Corpus(settings.keys, settings.valueBytes);
  }

  async run(): Promise<Tally> {
    const { leases, watches } = this.#settings;
    await this.#stage("sessions", 0, { renewalsPerSecond: 0, ended: 0 });
    for (const step of stepsTo(leases)) await this.#growSessions(step);
    for (const step of stepsTo(watches)) await this.#growWatches(step);
    this.#streams.close();
    return this.#all;
  }

  async #growSessions(to: number): Promise<void> {
    const begin = performance.now();
    const count = to - this.#sessions;
    this.#streams.addLeases(await grantAll(this.#channel, { count, ttlMs: LEASE_TTL_MS }));
    const perSecond = count / ((performance.now() - begin) / 1000);
    this.#sessions = to;
    // A session belongs to the stream that renews it: that is where its end would be told.
    const ended = await this.#streams.renewOnce();
    const renewals = await this.#renew();
    await this.#stage("sessions", perSecond, { ...renewals, ended: ended + renewals.ended });
  }

  /** Renews for some seconds, while nothing else goes on. */
  async #renew(): Promise<Measured> {
    const { measureSeconds, serverPids, metricsUrl } = this.#settings;
    const leader = serverPids[0] ?? 0;
    const logBefore = await logIndex(metricsUrl);
    const cpuBefore = usageOf(leader)?.cpuSeconds;
    const { count, perSecond, ended } = await this.#streams.renewFor(measureSeconds);
    const cpuAfter = usageOf(leader)?.cpuSeconds;
    const logAfter = await logIndex(metricsUrl);
    const cpuSeconds = (cpuAfter ?? Number.NaN) - (cpuBefore ?? Number.NaN);
    return {
      renewalsPerSecond: perSecond,
      ...(cpuSeconds > 0 ? { renewalsPerCore: count / cpuSeconds } : {}),
      ...(logBefore === undefined || logAfter === undefined
        ? {}
        : { renewalLogEntries: logAfter - logBefore }),
      ended,
    };
  }

  async #growWatches(to: number): Promise<void> {
    const begin = performance.now();
    const from = this.#watches;
    await this.#streams.watch(to - from, (index) => watchKey(from + index));
    const perSecond = (to - from) / ((performance.now() - begin) / 1000);
    this.#watches = to;
    await this.#stage("watches", perSecond, { renewalsPerSecond: 0, ended: 0 });
  }

  /** Puts for some seconds: of keys that somebody watches, once there are watches. */
  async #puts(): Promise<{ readonly tally: Tally; readonly owed: number; readonly came: number }> {
    const { clients, measureSeconds, warmupSeconds } = this.#settings;
    const before = this.#streams.events;
    const tally = await runClosedLoop({
      plan: planFromNow(Math.min(1, warmupSeconds), measureSeconds),
      slots: clients,
      operationOf: (slot) => {
        const random = new Random(slot.index + 1);
        const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
        return () => {
          const key = this.#watches > 0 ? watchKey(random.below(this.#watches)) : this.#corpus.key(random);
          this.#channel.putWith(key, this.#corpus.value(random), finish);
          return true;
        };
      },
    });
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    return {
      tally,
      owed: this.#watches > 0 ? tally.completed : 0,
      came: this.#streams.events - before,
    };
  }

  async #stage(kind: Stage["kind"], openedPerSecond: number, measured: Measured): Promise<void> {
    const { tally, owed, came } = await this.#puts();
    const { problem } = this.#streams;
    if (problem !== undefined) throw problem;
    const missing = Math.abs(owed - came);
    if (missing > 0) this.#all.failure(`${String(came)} of ${String(owed)} events came`, missing);
    if (measured.ended > 0) this.#all.failure("sessions ended", measured.ended);
    if (tally.errors > 0) this.#all.failure(tally.firstError ?? "unknown", tally.errors);
    this.#all.latencies.add(tally.latencies);
    const stage: Stage = {
      kind,
      sessions: this.#sessions,
      watches: this.#watches,
      residentBytes: this.#settings.serverPids.flatMap((pid) => usageOf(pid)?.residentBytes ?? []),
      openedPerSecond,
      ...measuredRenewals(measured),
      putsPerSecond: tally.operations / this.#settings.measureSeconds,
      putP50Ms: tally.latencies.quantileMs(0.5),
      putP99Ms: tally.latencies.quantileMs(0.99),
      events: came,
      errors: tally.errors + missing + measured.ended,
    };
    writeSync(1, `${JSON.stringify({ stage })}\n`);
  }
}

/**
 * Grows to `leases` sessions and then to `watches` watches, spread over `connections` streams, and prints a stage at
 * each power of ten: memory, renewals, and what a put costs by then.
 */
export const scale: Load = async (channel, settings) => {
  const tally = await new Scale(channel, settings).run();
  return { tally, seconds: 1 };
};
