import { describeError, drive, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import type { LoadRequest } from "../generator.ts";
import type { LoadReport } from "../load-report.ts";
import { readStall, type Stall } from "../metrics.ts";
import type { SystemName } from "../options.ts";
import { usageOf, type Usage } from "../processes.ts";
import type { Workload } from "../workloads.ts";

const LEASES = 10_000;

/** One run of one workload on one system. */
export interface Measurement {
  readonly system: SystemName;
  readonly round: number;
  readonly workload: string;
  readonly report?: LoadReport;
  /** Why there is no report. */
  readonly failure?: string;
  /** All members together, while the load ran. */
  readonly serverCpuSeconds: number;
  /** Of each member, after the load. */
  readonly residentBytes: readonly number[];
  /** Of the leader's event loop while the load ran; absent where it is not told. */
  readonly stall?: Stall;
}

function requestOf(workload: Workload, system: SystemName, context: BenchContext): LoadRequest {
  const { options } = context;
  return {
    mode: workload.mode,
    clients: workload.clients,
    connections: workload.etcdConnections,
    keys: options.sizes.keys,
    leases: scaled(options, workload.leases ?? LEASES),
    warmupSeconds: options.warmupSeconds,
    measureSeconds: options.measureSeconds,
    ttlSeconds: options.sizes.ttlSeconds,
    target: system === "etcd" ? options.etcdTarget : "leader",
  };
}

function usages(running: Running): readonly Usage[] {
  return running.cluster.memberPids().flatMap((pid) => usageOf(pid) ?? []);
}

const sumCpu = (all: readonly Usage[]): number => all.reduce((sum, usage) => sum + usage.cpuSeconds, 0);

async function outcomeOf(
  running: Running,
  workload: Workload,
  as: SystemName,
): Promise<{ readonly report: LoadReport } | { readonly failure: string }> {
  const request = requestOf(workload, as, running.context);
  try {
    return { report: await drive(running, { name: `${as}-${workload.name}`, request, as }) };
  } catch (error) {
    return { failure: describeError(error) };
  }
}

async function measure(
  running: Running,
  workload: Workload,
  as: SystemName,
): Promise<Omit<Measurement, "round">> {
  const { metricsUrl } = (await running.cluster.leader()).spec;
  // Asking forgets what was before.
  await readStall(metricsUrl);
  const before = usages(running);
  const outcome = await outcomeOf(running, workload, as);
  const after = usages(running);
  running.cluster.assertAlive();
  const stall = await readStall(metricsUrl);
  return {
    system: as,
    workload: workload.name,
    ...outcome,
    serverCpuSeconds: sumCpu(after) - sumCpu(before),
    residentBytes: after.map((usage) => usage.residentBytes),
    ...(stall === undefined ? {} : { stall }),
  };
}

function progressLine(title: string, { report, failure }: Omit<Measurement, "round">): string {
  if (report === undefined) return `  ${title}: FAILED: ${failure ?? ""}`;
  const rate = inThousands(report.operationsPerSecond);
  const errors = report.errors === 0 ? "" : `, ${String(report.errors)} ERRORS (${report.firstError ?? ""})`;
  return `  ${title}: ${rate}/s, p50 ${report.p50Ms.toFixed(2)} ms, p99 ${report.p99Ms.toFixed(2)} ms${errors}`;
}

/** Starts the system on empty data, puts every workload on it, and stops it. */
async function runRound(
  system: SystemName,
  round: number,
  context: BenchContext,
): Promise<readonly Measurement[]> {
  const { options, say, binaries } = context;
  say(`round ${String(round)} of ${String(options.rounds)}: ${system}`);
  const due = options.workloads.filter((workload) => round === 1 || workload.once !== true);
  const overEtcdApi =
    system === "lockstep" && binaries !== undefined && !options.systems.includes("lockstep-etcd-api")
      ? due.filter((workload) => workload.overEtcdApi === true)
      : [];
  return withCluster({ system, name: `${system}-${String(round)}` }, context, async (running) => {
    const measurements: Measurement[] = [];
    const run = async (workload: Workload, as: SystemName): Promise<void> => {
      const measured = await measure(running, workload, as);
      say(progressLine(as === system ? workload.title : `${workload.title}, over the etcd API`, measured));
      measurements.push({ ...measured, round });
    };
    for (const workload of due) await run(workload, system);
    for (const workload of overEtcdApi) await run(workload, "lockstep-etcd-api");
    return measurements;
  });
}

/** Every workload, on every system, in rounds. */
export async function runTable(context: BenchContext): Promise<readonly Measurement[]> {
  const { options } = context;
  const measurements: Measurement[] = [];
  for (let round = 1; round <= options.rounds; round += 1) {
    // The order changes, so that neither system always finds the disk as the other left it.
    const systems = round % 2 === 1 ? options.systems : options.systems.toReversed();
    for (const system of systems) measurements.push(...(await runRound(system, round, context)));
  }
  return measurements;
}
