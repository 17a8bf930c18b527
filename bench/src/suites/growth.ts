import { statfsSync } from "node:fs";
import { describeError, drive, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import type { LoadReport } from "../load-report.ts";
import type { SystemName } from "../options.ts";
import { BenchError } from "../processes.ts";

const STEPS = [1_000, 10_000, 100_000, 1_000_000, 10_000_000] as const;
/** Three members of etcd with more do not fit a machine of this size beside the load. */
const ETCD_KEYS_MAX = 1_000_000;
const FILL_CLIENTS = 16;
const CONNECTIONS = 10;
const LOADS = [
  { mode: "put", clients: 64, connections: 1 },
  { mode: "get", clients: 1000, connections: CONNECTIONS },
] as const;
/** Of disk for each key, all members together, with what compaction holds for a while. */
const DISK_BYTES_PER_KEY = 3_000;

/** One system with so many keys. */
export interface GrowthPoint {
  readonly system: SystemName;
  readonly keys: number;
  /** Of the keys that were missing up to here. */
  readonly fillPerSecond: number;
  readonly putsPerSecond: number;
  readonly putP50Ms: number;
  readonly putP99Ms: number;
  readonly getsPerSecond: number;
  readonly getP50Ms: number;
  readonly getP99Ms: number;
  /** Of each member. */
  readonly residentBytes: readonly number[];
  readonly errors: number;
}

async function load(
  running: Running,
  what: { readonly mode: string; readonly clients: number; readonly connections: number },
  keys: { readonly count: number; readonly first?: number },
): Promise<LoadReport> {
  const { warmupSeconds, measureSeconds } = running.context.options;
  return drive(running, {
    name: `${what.mode}-${String(keys.count)}`,
    request: {
      ...what,
      keys: keys.count,
      ...(keys.first === undefined ? {} : { firstKey: keys.first }),
      leases: 1,
      warmupSeconds,
      measureSeconds,
      target: "leader",
    },
  });
}

async function growTo(running: Running, from: number, to: number): Promise<GrowthPoint> {
  const fill = { mode: "fill", clients: FILL_CLIENTS, connections: CONNECTIONS };
  const filled = await load(running, fill, { count: to, first: from });
  if (filled.errors > 0) throw new BenchError(`fill: ${filled.firstError ?? "errors"}`);
  const [putLoad, getLoad] = LOADS;
  const puts = await load(running, putLoad, { count: to });
  const gets = await load(running, getLoad, { count: to });
  return {
    system: running.system,
    keys: to,
    fillPerSecond: filled.operationsPerSecond,
    putsPerSecond: puts.operationsPerSecond,
    putP50Ms: puts.p50Ms,
    putP99Ms: puts.p99Ms,
    getsPerSecond: gets.operationsPerSecond,
    getP50Ms: gets.p50Ms,
    getP99Ms: gets.p99Ms,
    residentBytes: running.cluster.residentBytes(),
    errors: puts.errors + gets.errors,
  };
}

function assertRoom(directory: string, keys: number): void {
  const { bavail, bsize } = statfsSync(directory);
  const wanted = keys * DISK_BYTES_PER_KEY;
  if (bavail * bsize >= wanted) return;
  throw new BenchError(
    `growth to ${inThousands(keys)} keys may need ${(wanted / 1e9).toFixed(0)} GB of disk and there are ` +
      `${((bavail * bsize) / 1e9).toFixed(0)} GB: choose a folder with --data, or fewer keys with --scale`,
  );
}

/** Puts and gets against more and more keys. */
export async function runGrowth(context: BenchContext): Promise<readonly GrowthPoint[]> {
  const { options, say } = context;
  const all: GrowthPoint[] = [];
  const steps = [...new Set(STEPS.map((step) => Math.max(100, scaled(options, step))))];
  for (const system of options.systems.filter((one) => one !== "lockstep-etcd-api")) {
    const own = steps.filter((step) => system !== "etcd" || step <= scaled(options, ETCD_KEYS_MAX));
    assertRoom(context.runDirectory, own.at(-1) ?? 0);
    say(`growth: ${system}, up to ${inThousands(own.at(-1) ?? 0)} keys`);
    try {
      await withCluster({ system, name: `growth-${system}` }, context, async (running) => {
        let from = 0;
        for (const step of own) {
          const point = await growTo(running, from, step);
          say(
            `  ${inThousands(step)} keys: put p50 ${point.putP50Ms.toFixed(2)} ms, ` +
              `get p50 ${point.getP50Ms.toFixed(2)} ms, filled with ${inThousands(point.fillPerSecond)}/s`,
          );
          all.push(point);
          from = step;
        }
      });
    } catch (error) {
      // What was reached is worth showing; the result says where it ends.
      say(`  FAILED: ${describeError(error)}`);
    }
  }
  return all;
}
