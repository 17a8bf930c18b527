import { describeError, drive, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import { knownMemberFlags } from "../systems.ts";

/** Streams and the connections that carry them. */
const STORMS = [
  { streams: 50_000, connections: 500 },
  { streams: 5_000, connections: 5_000 },
] as const;
/** The bound of a member without the flag for more. */
const DEFAULT_STREAMS_MAX = 10_000;
const SECONDS_MAX = 60;

/** Clients that lost their member, and when each was served again. */
export interface StormResult {
  readonly streams: number;
  readonly connections: number;
  /** From the kill to the answer of a linearizable read, over the streams; absent: the run failed. */
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** The last one. */
  readonly maxMs?: number;
  readonly errors: number;
  readonly failure?: string;
}

async function killUnder(running: Running, streams: number, connections: number): Promise<StormResult> {
  const { cluster, context } = running;
  const leader = await cluster.leader();
  let restarted = false;
  void leader.exited().then(() => {
    if (!restarted) leader.start();
    restarted = true;
  });
  try {
    const report = await drive(running, {
      name: `storm-${String(streams)}`,
      request: {
        mode: "storm",
        clients: streams,
        connections,
        keys: context.options.sizes.keys,
        leases: 1,
        warmupSeconds: 0,
        measureSeconds: SECONDS_MAX,
        killPid: leader.pid,
        target: "leader",
      },
    });
    const { p50Ms, p99Ms, maxMs, errors } = report;
    return { streams, connections, p50Ms, p99Ms, maxMs, errors };
  } catch (error) {
    return { streams, connections, errors: 0, failure: describeError(error) };
  } finally {
    // From here on an end of the member is the bench's own doing.
    restarted = true;
  }
}

/** The leader of many clients dies and comes back: how long until each is served again, wherever. */
export async function runStorm(context: BenchContext): Promise<readonly StormResult[]> {
  const { options, say } = context;
  if (!options.systems.includes("lockstep")) return [];
  const all: StormResult[] = [];
  for (const storm of STORMS) {
    const wanted = scaled(options, storm.streams);
    const memberArguments = knownMemberFlags({ "--streams-max": wanted + 1_000 });
    const streams = memberArguments.length > 0 ? wanted : Math.min(wanted, DEFAULT_STREAMS_MAX - 1_000);
    const connections = Math.min(streams, scaled(options, storm.connections));
    say(`storm: ${inThousands(streams)} streams over ${inThousands(connections)} connections`);
    if (streams < wanted) say("  a member has no flag --streams-max, and takes no more");
    const name = `storm-${String(storm.streams)}`;
    const result = await withCluster({ system: "lockstep", name, memberArguments }, context, (running) =>
      killUnder(running, streams, connections),
    );
    say(
      result.maxMs === undefined
        ? `  FAILED: ${result.failure ?? ""}`
        : `  all served again after ${(result.maxMs / 1000).toFixed(2)} s`,
    );
    all.push(result);
  }
  return all;
}
