// `npm run bench`: Lockstep and etcd under the same load. See bench/README.md.
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { arch, cpus, platform, release, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { buildBinaries, cacheDirectory, etcdVersion } from "./build.ts";
import { renderChart } from "./chart.ts";
import type { BenchContext } from "./context.ts";
import { makeRunDirectory, syncMedianMs } from "./disk.ts";
import { VALUE_BYTES } from "./generator.ts";
import { HELP, parseOptions, type BenchOptions } from "./options.ts";
import { BenchError, killEverything } from "./processes.ts";
import { hasFailures, type Labels, type Results } from "./results.ts";
import { renderSuites } from "./suite-text.ts";
import { runFailover } from "./suites/failover.ts";
import { runGrowth } from "./suites/growth.ts";
import { runLarge } from "./suites/large.ts";
import { runLocks } from "./suites/locks.ts";
import { runSessions } from "./suites/sessions.ts";
import { runStartup } from "./suites/startup.ts";
import { runStorm } from "./suites/storm.ts";
import { runTable } from "./suites/table.ts";
import { renderTable } from "./table.ts";
import { judge, renderTargets } from "./targets.ts";

/** Of the last full run. */
const RESULTS = join(import.meta.dirname, "../results");

const say = (line: string): void => console.error(line);

type Machine = Readonly<Record<string, string | number>>;

function machineOf(directory: string): Machine {
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
    date: new Date().toISOString().slice(0, 10),
  };
}

function factsOf(machine: Machine): string {
  return Object.entries(machine)
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(", ");
}

function intro(machine: Machine, options: BenchOptions): string {
  const { sizes, measureSeconds, rounds, etcdTarget } = options;
  const scaledDown =
    sizes.divisor === 1 ? "" : `\nLarge numbers divided by ${String(sizes.divisor)}: not a result.`;
  return (
    `${factsOf(machine)}\n` +
    `3 members on the same machine as the load; ${String(VALUE_BYTES)}-byte values, ${sizes.keys.toLocaleString("en")} keys; ` +
    `${String(measureSeconds)} s a workload, medians of ${String(rounds)} round(s); etcd's clients connect to: ${etcdTarget}${scaledDown}\n`
  );
}

async function runSuites(context: BenchContext): Promise<Results> {
  const wanted = new Set(context.options.suites);
  return {
    table: wanted.has("table") ? await runTable(context) : [],
    failover: wanted.has("failover") ? await runFailover(context) : [],
    large: wanted.has("large") ? await runLarge(context) : [],
    sessions: wanted.has("sessions") ? await runSessions(context) : [],
    growth: wanted.has("growth") ? await runGrowth(context) : [],
    storm: wanted.has("storm") ? await runStorm(context) : [],
    startup: wanted.has("startup") ? await runStartup(context) : [],
    locks: wanted.has("locks") ? await runLocks(context) : [],
  };
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  say(`written: ${file}`);
}

async function bench(options: BenchOptions, runDirectory: string): Promise<boolean> {
  say(`suites: ${options.suites.join(", ")}; --help says how long each takes and what it needs of the disk`);
  const needsGo = options.systems.some((system) => system !== "lockstep");
  const binaries = needsGo ? await buildBinaries(say) : undefined;
  const machine = machineOf(runDirectory);
  const results = await runSuites({ options, binaries, runDirectory, say });
  const labels: Labels = {
    etcd: `etcd ${etcdVersion()}`,
    lockstep: "Lockstep",
    "lockstep-etcd-api": "Lockstep, etcd API",
  };
  const verdicts = judge(results);
  const parts = [intro(machine, options)];
  if (results.table.length > 0) parts.push(renderTable(options.workloads, results.table, labels));
  parts.push(renderSuites(results, labels), "", renderTargets(verdicts, labels));
  const text = parts.join("\n");
  console.log(text);
  if (options.jsonFile !== undefined) {
    const everything = { machine, settings: options, results, verdicts };
    write(options.jsonFile, `${JSON.stringify(everything, undefined, 2)}\n`);
  }
  const chart = renderChart(results, verdicts, { labels, facts: factsOf(machine) });
  if (options.chartFile !== undefined) write(options.chartFile, chart);
  if (options.isFull) {
    write(join(RESULTS, "latest.txt"), `${text}\n`);
    write(join(RESULTS, "latest.svg"), chart);
  }
  return !hasFailures(results);
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
