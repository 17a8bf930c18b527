import { describeError, drive, withCluster, type BenchContext, type Running } from "../context.ts";
import type { Member } from "../cluster.ts";
import type { SystemName } from "../options.ts";
import { BenchError } from "../processes.ts";

const CLIENTS = 64;
/** One connection to each member. */
const CONNECTIONS = 3;
/** The load is on for this long before the leader is killed, and for MEASURE_SECONDS after the first of them. */
const WARMUP_SECONDS = 2;
const MEASURE_SECONDS = 8;
/** A member that has not caught up by then hangs. */
const RETURN_MS_MAX = 20_000;

/** One kill of a leader under load. */
export interface Failover {
  readonly system: SystemName;
  readonly kill: number;
  /** The longest time after the kill in which no put was acknowledged to anybody; absent: the run failed. */
  readonly gapMs?: number;
  /** The same in the second before the kill: what the load has without it. */
  readonly gapBeforeMs?: number;
  readonly errors?: number;
  readonly failure?: string;
}

async function killOnce(running: Running, kill: number): Promise<Failover> {
  const { system, cluster, context } = running;
  const leader = await cluster.leader();
  const request = {
    mode: "failover",
    clients: CLIENTS,
    connections: CONNECTIONS,
    keys: context.options.sizes.keys,
    leases: 1,
    warmupSeconds: WARMUP_SECONDS,
    measureSeconds: MEASURE_SECONDS,
    killPid: leader.pid,
    target: "all",
  } as const;
  let found: Failover;
  try {
    const { figures = {}, errors } = await drive(running, { name: `kill-${String(kill)}`, request });
    const { gapMs, gapBeforeMs } = figures;
    if (gapMs === undefined || gapBeforeMs === undefined) throw new BenchError("a report without the gap");
    found = { system, kill, gapMs, gapBeforeMs, errors };
  } catch (error) {
    found = { system, kill, failure: describeError(error) };
  }
  await bringBack(running, leader);
  return found;
}

/** Starts the killed member and waits until it has caught up. The generator may have failed before it killed anybody. */
async function bringBack({ cluster, context }: Running, killed: Member): Promise<void> {
  if (killed.over) killed.start();
  try {
    await cluster.untilReady(RETURN_MS_MAX);
  } catch {
    // etcd 3.6 now and then turns in a circle after it has got a snapshot ("failed to publish local member").
    context.say(`  ${killed.spec.name} does not come back: it is started once more`);
    await killed.stop();
    killed.start();
    await cluster.untilReady();
  }
}

/** Kills the leader of each system again and again, each time after the last one has come back. */
export async function runFailover(context: BenchContext): Promise<readonly Failover[]> {
  const { options, say } = context;
  const all: Failover[] = [];
  // The etcd API of a cell fails over with the cell.
  for (const system of options.systems.filter((one) => one !== "lockstep-etcd-api")) {
    say(`failover: ${system}, ${String(options.sizes.kills)} kills`);
    await withCluster({ system, name: `failover-${system}` }, context, async (running) => {
      for (let kill = 1; kill <= options.sizes.kills; kill += 1) {
        const found = await killOnce(running, kill);
        say(
          found.gapMs === undefined
            ? `  kill ${String(kill)}: FAILED: ${found.failure ?? ""}`
            : `  kill ${String(kill)}: no acknowledged put for ${found.gapMs.toFixed(0)} ms`,
        );
        all.push(found);
      }
    });
  }
  return all;
}
