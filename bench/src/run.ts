import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Binaries } from "./build.ts";
import { parseLoadReport, type LoadReport } from "./load-report.ts";
import type { BenchOptions, SystemName } from "./options.ts";
import { BenchError, runToEnd, usageOf, type Usage } from "./processes.ts";
import { assertPortsFree, startEtcd, startLockstep, type RunningSystem } from "./systems.ts";
import type { Workload } from "./workloads.ts";

const PORTS = 40;
export const KEYS = 100_000;
export const VALUE_BYTES = 256;
export const LEASES = 10_000;
export const WATCHERS = 1_000;

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
}

export interface RoundContext {
  readonly options: BenchOptions;
  readonly binaries: Binaries | undefined;
  readonly runDirectory: string;
  readonly say: (line: string) => void;
}

function binariesOf(context: RoundContext): Binaries {
  if (context.binaries === undefined) throw new BenchError("etcd's binaries were not built");
  return context.binaries;
}

async function start(system: SystemName, context: RoundContext, directory: string): Promise<RunningSystem> {
  const { basePort, profileDirectory } = context.options;
  await assertPortsFree(basePort, PORTS);
  if (system === "etcd") return startEtcd(binariesOf(context).etcd, basePort, directory);
  return startLockstep({ basePort, directory, profileDirectory });
}

interface Generator {
  readonly command: string;
  readonly args: readonly string[];
}

function nativeGenerator(workload: Workload, running: RunningSystem, options: BenchOptions): Generator {
  return {
    command: process.execPath,
    args: [
      join(import.meta.dirname, "native-load.ts"),
      ...["--endpoints", running.endpoints.join(","), "--mode", workload.mode],
      ...[
        "--clients",
        String(workload.clients),
        "--keys",
        String(KEYS),
        "--value-bytes",
        String(VALUE_BYTES),
      ],
      ...["--leases", String(workload.mode === "watch" ? WATCHERS : LEASES)],
      ...["--warmup", String(options.warmupSeconds), "--seconds", String(options.measureSeconds)],
    ],
  };
}

function etcdGenerator(
  workload: Workload,
  running: RunningSystem,
  context: RoundContext,
  target: "leader" | "all",
): Generator {
  const { warmupSeconds, measureSeconds } = context.options;
  return {
    command: binariesOf(context).etcdload,
    args: [
      ...["-endpoints", running.endpoints.join(","), "-mode", workload.mode, "-target", target],
      ...["-clients", String(workload.clients), "-connections", String(workload.etcdConnections)],
      ...["-keys", String(KEYS), "-value-bytes", String(VALUE_BYTES)],
      ...["-leases", String(workload.mode === "watch" ? WATCHERS : LEASES)],
      ...["-warmup", `${String(warmupSeconds)}s`, "-duration", `${String(measureSeconds)}s`],
    ],
  };
}

function usages(running: RunningSystem): readonly Usage[] {
  return running.memberPids().flatMap((pid) => usageOf(pid) ?? []);
}

const sumCpu = (all: readonly Usage[]): number => all.reduce((sum, usage) => sum + usage.cpuSeconds, 0);

async function measure(
  generator: Generator,
  running: RunningSystem,
  logFile: string,
): Promise<Pick<Measurement, "report" | "failure" | "serverCpuSeconds" | "residentBytes">> {
  const before = usages(running);
  let outcome: { report: LoadReport } | { failure: string };
  try {
    outcome = { report: parseLoadReport(await runToEnd({ ...generator, logFile })) };
  } catch (error) {
    outcome = { failure: error instanceof Error ? error.message : String(error) };
  }
  const after = usages(running);
  return {
    ...outcome,
    serverCpuSeconds: sumCpu(after) - sumCpu(before),
    residentBytes: after.map((usage) => usage.residentBytes),
  };
}

function progressLine(workload: Workload, measured: Pick<Measurement, "report" | "failure">): string {
  const { report, failure } = measured;
  if (report === undefined) return `  ${workload.title}: FAILED: ${failure ?? ""}`;
  const rate = Math.round(report.operationsPerSecond).toLocaleString("en");
  const errors = report.errors === 0 ? "" : `, ${String(report.errors)} ERRORS (${report.firstError ?? ""})`;
  return `  ${workload.title}: ${rate}/s, p50 ${report.p50Ms.toFixed(2)} ms, p99 ${report.p99Ms.toFixed(2)} ms${errors}`;
}

/** Starts the system on empty data, puts every workload on it, and stops it. */
export async function runRound(
  system: SystemName,
  round: number,
  context: RoundContext,
): Promise<readonly Measurement[]> {
  const { options, say } = context;
  const directory = join(context.runDirectory, `${system}-${String(round)}`);
  mkdirSync(directory);
  say(`round ${String(round)} of ${String(options.rounds)}: ${system}`);
  const measurements: Measurement[] = [];
  const running = await start(system, context, directory);
  try {
    for (const workload of options.workloads) {
      const generator =
        system === "lockstep"
          ? nativeGenerator(workload, running, options)
          : etcdGenerator(workload, running, context, system === "etcd" ? options.etcdTarget : "leader");
      const measured = await measure(generator, running, join(directory, `load-${workload.name}.log`));
      say(progressLine(workload, measured));
      measurements.push({ system, round, workload: workload.name, ...measured });
      running.assertAlive();
    }
  } finally {
    await running.stop();
    rmSync(directory, { recursive: true, force: true });
  }
  return measurements;
}
