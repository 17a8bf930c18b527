import { setTimeout as delay } from "node:timers/promises";
import { describeError, drive, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import { readStall, type Stall } from "../metrics.ts";
import type { SystemName } from "../options.ts";

const KEYS = 1_000_000;
const FILL_CLIENTS = 16;
const FILL_CONNECTIONS = 10;
/** Between the end of the fill and the look at memory: what was written last is applied everywhere by then. */
const SETTLE_MS = 3_000;

/** One system filled with many keys. */
export interface LargeResult {
  readonly system: SystemName;
  readonly keys: number;
  readonly keysPerSecond?: number;
  /** Of each member, after the fill. */
  readonly residentBytes: readonly number[];
  /** From the start of all three members, which had been stopped, to the first linearizable read. */
  readonly restartMs?: number;
  /** Of the leader's event loop while keys were written; absent where it is not told. */
  readonly stall?: Stall;
  readonly errors: number;
  readonly failure?: string;
}

async function fillAndRestart(running: Running, keys: number): Promise<LargeResult> {
  const { system, cluster, context } = running;
  const { metricsUrl } = (await cluster.leader()).spec;
  await readStall(metricsUrl);
  const report = await drive(running, {
    name: "fill",
    request: {
      mode: "fill",
      clients: FILL_CLIENTS,
      connections: FILL_CONNECTIONS,
      keys,
      leases: 1,
      warmupSeconds: 0,
      measureSeconds: 1,
      target: "leader",
    },
  });
  const stall = await readStall(metricsUrl);
  await delay(SETTLE_MS);
  const residentBytes = cluster.residentBytes();
  context.say(
    `  filled with ${inThousands(report.operationsPerSecond)} keys/s; restarting all three members`,
  );
  const restartMs = await cluster.restartMs();
  context.say(`  first linearizable read ${(restartMs / 1000).toFixed(2)} s after the start`);
  return {
    system,
    keys,
    keysPerSecond: report.operationsPerSecond,
    residentBytes,
    restartMs,
    errors: report.errors,
    ...(stall === undefined ? {} : { stall }),
  };
}

/** Fills each system with a million keys, looks at its memory, and restarts it. */
export async function runLarge(context: BenchContext): Promise<readonly LargeResult[]> {
  const { options, say } = context;
  const keys = scaled(options, KEYS);
  const all: LargeResult[] = [];
  for (const system of options.systems.filter((one) => one !== "lockstep-etcd-api")) {
    say(`large: ${system}, ${inThousands(keys)} keys`);
    try {
      all.push(
        await withCluster({ system, name: `large-${system}` }, context, (running) =>
          fillAndRestart(running, keys),
        ),
      );
    } catch (error) {
      say(`  FAILED: ${describeError(error)}`);
      all.push({ system, keys, residentBytes: [], errors: 0, failure: describeError(error) });
    }
  }
  return all;
}
