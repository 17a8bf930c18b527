import { parseArgs } from "node:util";
import { selectWorkloads, WORKLOADS, type Workload } from "./workloads.ts";

export type SystemName = "etcd" | "lockstep" | "lockstep-etcd-api";

export interface BenchOptions {
  readonly workloads: readonly Workload[];
  readonly systems: readonly SystemName[];
  readonly measureSeconds: number;
  readonly warmupSeconds: number;
  readonly rounds: number;
  readonly etcdTarget: "leader" | "all";
  readonly basePort: number;
  /** Where the members' folders go; undefined: bench/.cache. */
  readonly dataDirectory: string | undefined;
  readonly jsonFile: string | undefined;
  /** Members write CPU profiles here. */
  readonly profileDirectory: string | undefined;
}

export const HELP: string = `Lockstep and etcd under the same load, on this machine, side by side.

  npm run bench                       everything: 5 s a workload, 3 rounds, about 10 minutes
  npm run bench -- --quick            everything once, 3 s a workload, under 3 minutes
  npm run bench -- --only put,get     some workloads

Starts three members of each system (one system at a time, data on disk, fsync on), drives them in turn and prints
medians with the ratio of Lockstep to etcd. Absolute figures hold for this machine only; compare the ratios.
The first run builds etcd and its load generator with Go, into bench/.cache (some minutes).

Options
  --quick              3 s a workload after 1 s of warm-up, 1 round
  --only NAMES         comma separated: ${WORKLOADS.map((workload) => workload.name).join(", ")}
                       ("put" means put-1, put-64 and put-1000; fill always runs, it writes the keys)
  --seconds N          time to measure each workload (default 5), after 2 s of warm-up
  --repeats N          rounds, each on empty data (default 3); medians are printed
  --skip-etcd          Lockstep only, no ratios; needs no Go
  --skip-lockstep      etcd only
  --etcd-api           also drive Lockstep through its etcd API, with etcd's own Go client
  --etcd-target WHERE  leader (default, what the native client does) or all: spread etcd's clients over the members
  --json FILE          write every single figure there
  --cpu-prof DIR       Lockstep's members write CPU profiles there when they stop
  --data DIR           where the members' data goes (default bench/.cache); must not be in memory (tmpfs)
  --base-port N        first of 40 loopback ports (default 24100)
  --help               this text

How to read the result: bench/README.md`;

function positive(text: string, name: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0)
    throw new TypeError(`--${name} needs a number above 0, not "${text}"`);
  return value;
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

/** @throws TypeError with a sentence for the user; undefined when help was asked for. */
export function parseOptions(args: readonly string[]): BenchOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      seconds: { type: "string" },
      repeats: { type: "string" },
      "skip-etcd": { type: "boolean", default: false },
      "skip-lockstep": { type: "boolean", default: false },
      "etcd-api": { type: "boolean", default: false },
      "etcd-target": { type: "string", default: "leader" },
      json: { type: "string" },
      "cpu-prof": { type: "string" },
      data: { type: "string" },
      "base-port": { type: "string", default: "24100" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return undefined;
  const target = values["etcd-target"];
  if (target !== "leader" && target !== "all") throw new TypeError("--etcd-target is leader or all");
  return {
    workloads: selectWorkloads(values.only?.split(",").filter((name) => name !== "")),
    systems: systemsOf({
      skipEtcd: values["skip-etcd"],
      skipLockstep: values["skip-lockstep"],
      etcdApi: values["etcd-api"],
    }),
    measureSeconds: positive(values.seconds ?? (values.quick ? "3" : "5"), "seconds"),
    warmupSeconds: values.quick ? 1 : 2,
    rounds: Math.ceil(positive(values.repeats ?? (values.quick ? "1" : "3"), "repeats")),
    etcdTarget: target,
    basePort: positive(values["base-port"], "base-port"),
    dataDirectory: values.data,
    jsonFile: values.json,
    profileDirectory: values["cpu-prof"],
  };
}
