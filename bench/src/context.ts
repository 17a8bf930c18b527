import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Binaries } from "./build.ts";
import { assertPortsFree, type Cluster } from "./cluster.ts";
import { generatorOf, runLoad, type LoadRequest } from "./generator.ts";
import type { LoadReport, Stage } from "./load-report.ts";
import type { BenchOptions, SystemName } from "./options.ts";
import { BenchError } from "./processes.ts";
import { PORTS, startEtcd, startLockstep } from "./systems.ts";

/** What every suite is handed. */
export interface BenchContext {
  readonly options: BenchOptions;
  readonly binaries: Binaries | undefined;
  readonly runDirectory: string;
  readonly say: (line: string) => void;
}

/** A system that runs for the time of one suite or round. */
export interface Running {
  readonly system: SystemName;
  readonly cluster: Cluster;
  readonly directory: string;
  readonly context: BenchContext;
}

export interface ClusterNeeds {
  readonly system: SystemName;
  /** Of the folder: unique in the run. */
  readonly name: string;
  /** More arguments of a cell's members. Default: none. */
  readonly memberArguments?: readonly string[];
}

async function start(needs: ClusterNeeds, context: BenchContext, directory: string): Promise<Cluster> {
  const { basePort, profileDirectory } = context.options;
  await assertPortsFree(basePort, PORTS);
  if (needs.system !== "etcd") {
    const { memberArguments = [] } = needs;
    return startLockstep({ basePort, directory, profileDirectory, memberArguments });
  }
  if (context.binaries === undefined) throw new BenchError("etcd's binaries were not built");
  return startEtcd({ binary: context.binaries.etcd, basePort, directory });
}

/** Starts a system on empty data, lets `use` have it, and stops it whatever happened. */
export async function withCluster<T>(
  needs: ClusterNeeds,
  context: BenchContext,
  use: (running: Running) => Promise<T>,
): Promise<T> {
  const directory = join(context.runDirectory, needs.name);
  mkdirSync(directory);
  const cluster = await start(needs, context, directory);
  try {
    return await use({ system: needs.system, cluster, directory, context });
  } finally {
    await cluster.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

export interface RunningLoad {
  /** Of the log file: unique in the round. */
  readonly name: string;
  readonly request: LoadRequest;
  /** Whose generator. Default: that of the system that runs. */
  readonly as?: SystemName;
  readonly onStage?: (stage: Stage) => void;
}

/** Puts one load on a running system. @throws BenchError when the generator fails. */
export function drive(running: Running, load: RunningLoad): Promise<LoadReport> {
  const { system, cluster, directory, context } = running;
  const generator = generatorOf(load.as ?? system, context.binaries, cluster, load.request);
  const logFile = join(directory, `load-${load.name}.log`);
  return runLoad({ generator, logFile, ...(load.onStage === undefined ? {} : { onStage: load.onStage }) });
}

/** A large number of a suite, as --scale makes it. */
export function scaled(options: BenchOptions, count: number): number {
  return Math.max(1, Math.round(count / options.sizes.divisor));
}

export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function inThousands(value: number): string {
  return Math.round(value).toLocaleString("en");
}
