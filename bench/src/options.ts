import { parseArgs } from "node:util";
import { selectWorkloads, WORKLOADS, type Workload } from "./workloads.ts";

export type SystemName = "etcd" | "lockstep" | "lockstep-etcd-api";

/** In the order in which they run. */
export const SUITES = [
  "table",
  "failover",
  "large",
  "sessions",
  "growth",
  "storm",
  "startup",
  "locks",
] as const;
export type SuiteName = (typeof SUITES)[number];

/** What the suites do by default, and what --scale makes of it. */
export interface Sizes {
  /** fill, put, get and so on of the table. */
  readonly keys: number;
  /** Divides every other large number: sessions, watches, keys of large and growth, streams. 1 but for smoke runs. */
  readonly divisor: number;
  /** Leaders killed. */
  readonly kills: number;
  /** expiry: seconds that the sessions live. All must be there before the first ends. */
  readonly ttlSeconds: number;
}

export interface BenchOptions {
  readonly suites: readonly SuiteName[];
  readonly workloads: readonly Workload[];
  readonly systems: readonly SystemName[];
  readonly sizes: Sizes;
  readonly measureSeconds: number;
  readonly warmupSeconds: number;
  readonly rounds: number;
  readonly etcdTarget: "leader" | "all";
  readonly basePort: number;
  /** Where the members' folders go; undefined: bench/.cache. */
  readonly dataDirectory: string | undefined;
  readonly jsonFile: string | undefined;
  /** undefined: none. */
  readonly chartFile: string | undefined;
  /** Every row is measured in full: the result is kept in bench/results. */
  readonly isFull: boolean;
  /** Members write CPU profiles here. */
  readonly profileDirectory: string | undefined;
}

export const HELP: string = `Lockstep and etcd under the same load, on this machine, side by side.

  npm run bench                           every row of the table: about 30 minutes, up to 4 GB of disk
  npm run bench -- --quick                the everyday loads once, 3 s each: about 5 minutes, 2 GB
  npm run bench -- --only put,get         some workloads of the table
  npm run bench -- --suite failover       one suite; several with commas; "all" is everything: about 60 minutes

Starts three members of each system (one system at a time, data on disk, fsync on), drives them in turn and prints
medians with the ratio of Lockstep to etcd, then each row of the table of targets with whether it was met. Absolute
figures hold for this machine only; compare the ratios. The first run builds etcd and its load generator with Go, into
bench/.cache (some minutes). Ctrl-C stops everything and leaves nothing behind. Linux only (it reads /proc).

Suites                                                                                     time      disk, at most
  table      puts, gets, locks, leases, watches, mass expiry                               19 min    2 GB
  failover   kill -9 of the leader, 5 times: the longest time without an acknowledged put   2 min    1 GB
  large      1,000,000 keys: fill, memory, restart to the first linearizable read           3 min    4 GB
  sessions   100 to 1,000,000 sessions and 2,000,000 watches: memory, renewals, latency     6 min    4 GB
  growth     put and get against 1,000 to 10,000,000 keys (etcd: to 1,000,000)             20 min   30 GB
  storm      50,000 streams over 500 connections, and 5,000 connections, lose their
             member: how long until all are served again (Lockstep only)                    3 min    1 GB
  startup    programs that begin: from the import of the built client to the first answer,
             15 with its thread and 15 without (Lockstep only)                             30 s     1 GB
  locks      10,000 locks that one process only holds: heap and processor time of each;
             hand-overs (Lockstep only)                                                     2 min    1 GB
  Without --suite: table, failover, large, sessions, startup and locks.

Options
  --quick              3 s a workload after 2 s of warm-up, 1 round, without the suites and workloads that take minutes
  --only NAMES         workloads of the table, comma separated: ${WORKLOADS.map((workload) => workload.name).join(", ")}
                       ("put" means put-1, put-64 and put-1000; fill always runs, it writes the keys)
  --suite NAMES        ${SUITES.join(", ")} or all
  --seconds N          time to measure each workload (default 5), after 5 s of warm-up
  --repeats N          rounds of the table, each on empty data (default 3); medians are printed
  --kills N            of failover, on each system (default 5)
  --scale N            divide the large numbers (sessions, watches, keys, streams) by N: to try the bench, not to quote
  --skip-etcd          Lockstep only, no ratios; needs no Go
  --skip-lockstep      etcd only
  --etcd-api           also drive all of the table through Lockstep's etcd API, with etcd's own Go client
                       (without it: the row of the targets alone, put-1000)
  --etcd-target WHERE  leader (default, what the native client does) or all: spread etcd's clients over the members
  --json FILE          write every single figure there
  --chart FILE         write the chart there (SVG). A full run writes bench/results/latest.svg by itself
  --cpu-prof DIR       Lockstep's members write CPU profiles there when they stop
  --data DIR           where the members' data goes (default bench/.cache); must not be in memory (tmpfs)
  --base-port N        first of 40 loopback ports (default 24100)
  --help               this text

How to read the result: bench/README.md and docs/performance.md`;

const DEFAULT_SUITES: readonly SuiteName[] = ["table", "failover", "large", "sessions", "startup", "locks"];
const KEYS = 100_000;
const KILLS = 5;
const TTL_SECONDS = 60;
const TTL_SECONDS_MIN = 5;

function positive(text: string, name: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0)
    throw new TypeError(`--${name} needs a number above 0, not "${text}"`);
  return value;
}

function suitesOf(text: string | undefined, isPartial: boolean): readonly SuiteName[] {
  if (text === undefined) return isPartial ? ["table"] : DEFAULT_SUITES;
  const wanted = text.split(",").filter((name) => name !== "");
  if (wanted.includes("all")) return SUITES;
  for (const name of wanted) {
    if (!SUITES.some((suite) => suite === name)) {
      throw new TypeError(`there is no suite "${name}"; there are ${SUITES.join(", ")} and all`);
    }
  }
  return SUITES.filter((suite) => wanted.includes(suite));
}

function systemsOf(values: {
  skipEtcd: boolean;
  skipLockstep: boolean;
  etcdApi: boolean;
}): readonly SystemName[] {
  const systems: SystemName[] = [];
  if (!values.skipEtcd) systems.push("etcd");
  if (!values.skipLockstep) systems.push("lockstep");
  if (values.etcdApi) systems.push("lockstep-etcd-api");
  if (systems.length === 0) throw new TypeError("nothing left to run");
  return systems;
}

function sizesOf(scale: string | undefined, kills: string | undefined): Sizes {
  const divisor = positive(scale ?? "1", "scale");
  return {
    keys: Math.max(1_000, Math.round(KEYS / divisor)),
    divisor,
    kills: Math.ceil(positive(kills ?? String(KILLS), "kills")),
    ttlSeconds: Math.max(TTL_SECONDS_MIN, Math.round(TTL_SECONDS / Math.sqrt(divisor))),
  };
}

const FLAGS = {
  quick: { type: "boolean", default: false },
  only: { type: "string" },
  suite: { type: "string" },
  seconds: { type: "string" },
  repeats: { type: "string" },
  kills: { type: "string" },
  scale: { type: "string" },
  "skip-etcd": { type: "boolean", default: false },
  "skip-lockstep": { type: "boolean", default: false },
  "etcd-api": { type: "boolean", default: false },
  "etcd-target": { type: "string", default: "leader" },
  json: { type: "string" },
  chart: { type: "string" },
  "cpu-prof": { type: "string" },
  data: { type: "string" },
  "base-port": { type: "string", default: "24100" },
  help: { type: "boolean", default: false },
} as const;

/** @throws TypeError with a sentence for the user; undefined when help was asked for. */
export function parseOptions(args: readonly string[]): BenchOptions | undefined {
  const { values } = parseArgs({ args: [...args], options: FLAGS });
  if (values.help) return undefined;
  const target = values["etcd-target"];
  if (target !== "leader" && target !== "all") throw new TypeError("--etcd-target is leader or all");
  const only = values.only?.split(",").filter((name) => name !== "");
  const workloads = selectWorkloads(only).filter(
    (workload) => only !== undefined || !values.quick || workload.once !== true,
  );
  const suites = suitesOf(values.suite, values.quick || only !== undefined);
  const systems = systemsOf({
    skipEtcd: values["skip-etcd"],
    skipLockstep: values["skip-lockstep"],
    etcdApi: values["etcd-api"],
  });
  const sizes = sizesOf(values.scale, values.kills);
  return {
    suites,
    workloads,
    systems,
    sizes,
    measureSeconds: positive(values.seconds ?? (values.quick ? "3" : "5"), "seconds"),
    warmupSeconds: values.quick ? 2 : 5,
    rounds: Math.ceil(positive(values.repeats ?? (values.quick ? "1" : "3"), "repeats")),
    etcdTarget: target,
    basePort: positive(values["base-port"], "base-port"),
    dataDirectory: values.data,
    jsonFile: values.json,
    chartFile: values.chart,
    isFull:
      sizes.divisor === 1 &&
      !values.quick &&
      only === undefined &&
      systems.includes("etcd") &&
      systems.includes("lockstep") &&
      DEFAULT_SUITES.every((suite) => suites.includes(suite)),
    profileDirectory: values["cpu-prof"],
  };
}
