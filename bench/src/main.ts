// `npm run bench`: Lockstep and etcd under the same load. See bench/README.md.
import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { arch, cpus, platform, release, totalmem } from "node:os";
import { join } from "node:path";
import { buildBinaries, cacheDirectory, etcdVersion } from "./build.ts";
import { makeRunDirectory, syncMedianMs } from "./disk.ts";
import { HELP, parseOptions, type BenchOptions } from "./options.ts";
import { BenchError, killEverything } from "./processes.ts";
import { KEYS, LEASES, runRound, VALUE_BYTES, WATCHERS, type Measurement } from "./run.ts";
import { renderTable, type Labels } from "./table.ts";

const say = (line: string): void => console.error(line);

function machineOf(directory: string): Readonly<Record<string, string | number>> {
  const commit = spawnSync("git", ["rev-parse", "--short", "HEAD"], {
    cwd: import.meta.dirname,
    encoding: "utf8",
  });
  return {
    cores: cpus().length,
    processor: cpus()[0]?.model ?? "unknown",
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: `${platform()} ${arch()} ${release()}`,
    node: process.version,
    etcd: etcdVersion(),
    commit: commit.status === 0 ? commit.stdout.trim() : "unknown",
    fdatasyncMs: Number(syncMedianMs(directory).toFixed(3)),
  };
}

function intro(machine: ReturnType<typeof machineOf>, options: BenchOptions): string {
  const facts = Object.entries(machine).map(([name, value]) => `${name} ${String(value)}`);
  return [
    facts.join(", "),
    `3 members on the same machine as the load; ${String(VALUE_BYTES)}-byte values, ${KEYS.toLocaleString("en")} keys; ` +
      `${String(options.measureSeconds)} s a workload, medians of ${String(options.rounds)} round(s); etcd's clients connect to: ${options.etcdTarget}`,
    "",
  ].join("\n");
}

async function bench(options: BenchOptions, runDirectory: string): Promise<boolean> {
  const needsGo = options.systems.some((system) => system !== "lockstep");
  const binaries = needsGo ? await buildBinaries(say) : undefined;
  const machine = machineOf(runDirectory);
  const measurements: Measurement[] = [];
  for (let round = 1; round <= options.rounds; round += 1) {
    // The order changes, so that neither system always finds the disk as the other left it.
    const systems = round % 2 === 1 ? options.systems : options.systems.toReversed();
    for (const system of systems) {
      measurements.push(...(await runRound(system, round, { options, binaries, runDirectory, say })));
    }
  }
  const labels: Labels = {
    etcd: `etcd ${etcdVersion()}`,
    lockstep: "Lockstep",
    "lockstep-etcd-api": "Lockstep, etcd API",
  };
  console.log(intro(machine, options));
  console.log(renderTable(options.workloads, measurements, labels));
  if (options.jsonFile !== undefined) {
    const settings = { ...options, keys: KEYS, valueBytes: VALUE_BYTES, leases: LEASES, watchers: WATCHERS };
    writeFileSync(options.jsonFile, `${JSON.stringify({ machine, settings, measurements }, undefined, 2)}\n`);
  }
  return measurements.every((one) => one.failure === undefined);
}

async function main(): Promise<number> {
  let options: BenchOptions | undefined;
  try {
    options = parseOptions(process.argv.slice(2));
  } catch (error) {
    say(`${(error as Error).message}\nnpm run bench -- --help says what there is.`);
    return 2;
  }
  if (options === undefined) {
    console.log(HELP);
    return 0;
  }
  const runDirectory = makeRunDirectory(options.dataDirectory ?? join(cacheDirectory, "data"));
  const cleanUp = (): void => {
    killEverything();
    rmSync(runDirectory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  };
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(name, () => {
      say(`${name}: stopping the servers`);
      cleanUp();
      process.exit(130);
    });
  }
  try {
    return (await bench(options, runDirectory)) ? 0 : 1;
  } finally {
    cleanUp();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  say(error instanceof BenchError ? error.message : String((error as Error).stack));
  process.exitCode = 1;
}
