import { join } from "node:path";
import type { Binaries } from "./build.ts";
import type { Cluster } from "./cluster.ts";
import { parseLoadReport, parseStage, type LoadReport, type Stage } from "./load-report.ts";
import type { SystemName } from "./options.ts";
import { BenchError, runToEnd } from "./processes.ts";

export const VALUE_BYTES = 256;

/** One run of a load generator; both generators know every mode unless the README says otherwise. */
export interface LoadRequest {
  readonly mode: string;
  readonly clients: number;
  /** Of the etcd generator, and of the native modes that open their own (scale, storm). */
  readonly connections: number;
  readonly keys: number;
  /** fill: the first key to write. Default 0. */
  readonly firstKey?: number;
  /** Leases, sessions or watchers. */
  readonly leases: number;
  /** scale: watches at the end. */
  readonly watches?: number;
  /** expiry: of the sessions that end. */
  readonly ttlSeconds?: number;
  readonly warmupSeconds: number;
  readonly measureSeconds: number;
  /** failover, storm: the process that the generator kills. */
  readonly killPid?: number;
  /** scale: whose resident memory is read. */
  readonly serverPids?: readonly number[];
  /** scale, native: where the leader tells how long its log is. */
  readonly metricsUrl?: string;
  /** Which of etcd's members the connections go to. */
  readonly target: "leader" | "all";
}

export interface Generator {
  readonly command: string;
  readonly args: readonly string[];
}

function optional(name: string, value: number | string | undefined): readonly [string, string][] {
  return value === undefined ? [] : [[name, String(value)]];
}

function commonFlags(cluster: Cluster, request: LoadRequest): readonly [string, string][] {
  const { serverPids } = request;
  return [
    ["endpoints", cluster.endpoints.join(",")],
    ["mode", request.mode],
    ["clients", String(request.clients)],
    ["connections", String(request.connections)],
    ["keys", String(request.keys)],
    ["value-bytes", String(VALUE_BYTES)],
    ["leases", String(request.leases)],
    ...optional("first-key", request.firstKey),
    ...optional("watches", request.watches),
    ...optional("kill-pid", request.killPid),
    ...(serverPids === undefined ? [] : [["server-pids", serverPids.join(",")] as [string, string]]),
  ];
}

function nativeGenerator(cluster: Cluster, request: LoadRequest): Generator {
  const flags = [
    ...commonFlags(cluster, request),
    ...optional("ttl", request.ttlSeconds),
    ...optional("warmup", request.warmupSeconds),
    ...optional("seconds", request.measureSeconds),
    ...optional("metrics-url", request.metricsUrl),
  ];
  return {
    command: process.execPath,
    args: [
      join(import.meta.dirname, "native-load.ts"),
      ...flags.flatMap(([name, value]) => [`--${name}`, value]),
    ],
  };
}

function etcdGenerator(binary: string, cluster: Cluster, request: LoadRequest): Generator {
  const { ttlSeconds } = request;
  const flags: readonly [string, string][] = [
    ...commonFlags(cluster, request),
    ["target", request.target],
    ["warmup", `${String(request.warmupSeconds)}s`],
    ["duration", `${String(request.measureSeconds)}s`],
    ...(ttlSeconds === undefined ? [] : [["ttl", `${String(ttlSeconds)}s`] as [string, string]]),
  ];
  return { command: binary, args: flags.flatMap(([name, value]) => [`-${name}`, value]) };
}

/** @throws BenchError when the generator is etcd's and was not built. */
export function generatorOf(
  system: SystemName,
  binaries: Binaries | undefined,
  cluster: Cluster,
  request: LoadRequest,
): Generator {
  if (system === "lockstep") return nativeGenerator(cluster, request);
  if (binaries === undefined) throw new BenchError("etcd's binaries were not built");
  return etcdGenerator(binaries.etcdload, cluster, request);
}

export interface LoadRun {
  readonly generator: Generator;
  readonly logFile: string;
  /** Told of each stage as it is reached, by modes that have some. */
  readonly onStage?: (stage: Stage) => void;
}

/** Runs a generator to its end. @throws BenchError with the end of its log when it fails. */
export async function runLoad({ generator, logFile, onStage }: LoadRun): Promise<LoadReport> {
  const output = await runToEnd({
    ...generator,
    logFile,
    onLine: (line) => {
      const stage = parseStage(line);
      if (stage !== undefined) onStage?.(stage);
    },
  });
  return parseLoadReport(output.trimEnd().split("\n").at(-1) ?? "");
}
