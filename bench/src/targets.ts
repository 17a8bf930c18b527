import type { SystemName } from "./options.ts";
import { largestResident, type Labels, type Results } from "./results.ts";
import { median, summarise, type Summary } from "./table.ts";

/** What a figure must reach: Lockstep's by etcd's, or an absolute value in the figure's unit. */
type Bound =
  { readonly kind: "ratio"; readonly value: number } | { readonly kind: "absolute"; readonly value: number };

type Unit = "/s" | "ms" | "s" | "MB" | "x";

/** One figure of a row of the table of targets. */
export interface Target {
  readonly work: string;
  readonly figure: string;
  readonly unit: Unit;
  readonly better: "higher" | "lower";
  readonly must: Bound;
  /** undefined: none was set. */
  readonly aim: Bound | undefined;
  /** Whose figure stands in Lockstep's place. Default: through the native client. */
  readonly through?: SystemName;
  /** undefined: not measured, or that system has none. */
  readonly read: (results: Results, system: SystemName) => number | undefined;
}

const ratio = (value: number): Bound => ({ kind: "ratio", value });
const absolute = (value: number): Bound => ({ kind: "absolute", value });

function ofWorkload(name: string, pick: (summary: Summary) => number | undefined): Target["read"] {
  return (results, system) => {
    const own = results.table.filter(
      (one) => one.system === system && one.workload === name && one.report !== undefined,
    );
    return own.length === 0 ? undefined : pick(summarise(own));
  };
}

const rateOf = (name: string): Target["read"] => ofWorkload(name, (summary) => summary.operationsPerSecond);
const p99Of = (name: string): Target["read"] => ofWorkload(name, (summary) => summary.p99Ms);
const figureOf = (name: string, figure: string): Target["read"] =>
  ofWorkload(name, (summary) => summary.figures.get(figure));

function throughput(work: string, workload: string, must: number, aim: Bound): Target {
  return {
    work,
    figure: "",
    unit: "/s",
    better: "higher",
    must: ratio(must),
    aim,
    read: rateOf(workload),
  };
}

const gaps: Target["read"] = (results, system) => {
  const own = results.failover.flatMap((one) => (one.system === system ? (one.gapMs ?? []) : []));
  return own.length === 0 ? undefined : median(own);
};

const largeOf =
  (pick: (one: Results["large"][number]) => number | undefined): Target["read"] =>
  (results, system) => {
    const own = results.large.find((one) => one.system === system);
    return own === undefined ? undefined : pick(own);
  };

/** With all sessions and watches that were wanted; a curve that ended before has no figure here. */
const everySession: Target["read"] = (results, system) => {
  const own = results.sessions.find((one) => one.system === system);
  const last = own?.stages.at(-1);
  if (own === undefined || last === undefined) return undefined;
  if (last.sessions < 1_000_000 || last.watches < 2_000_000) return undefined;
  return (last.residentBytes[0] ?? Number.NaN) / 1e6;
};

const renewalRate: Target["read"] = (results, system) => {
  const own = results.table.filter((one) => one.system === system && one.workload === "renew");
  return own.length === 0 ? undefined : summarise(own).operationsPerSecond;
};

/** The worst of the loads that make RocksDB compact. */
const stall: Target["read"] = (results, system) => {
  const compacting = [
    ...results.table.filter((one) => one.workload === "put-1000" && one.system === system),
    ...results.large.filter((one) => one.system === system),
  ].flatMap((one) => one.stall ?? []);
  if (compacting.length === 0) return undefined;
  return Math.max(...compacting.map((one) => one.p9999Ms ?? one.maxMs));
};

const expirySlowdown: Target["read"] = (results, system) => {
  const before = figureOf("expiry", "p99BeforeMs")(results, system);
  const during = figureOf("expiry", "p99DuringMs")(results, system);
  return before === undefined || during === undefined ? undefined : during / before;
};

/** As a client is by default: with its thread. */
const startup: Target["read"] = (results, system) =>
  system === "lockstep" ? results.startup.find((one) => one.where === "thread")?.parts?.totalMs : undefined;

/** The rows of the table of targets, in its order. */
export const TARGETS: readonly Target[] = [
  {
    ...{ work: "put, 1 in flight", figure: "p50", unit: "ms", better: "lower" },
    ...{ must: ratio(1), aim: ratio(0.5), read: ofWorkload("put-1", (summary) => summary.p50Ms) },
  },
  throughput("put, 64 in flight", "put-64", 3, ratio(8)),
  throughput("put, 1,000 in flight", "put-1000", 4, ratio(10)),
  {
    ...{ work: "put, 1,000 in flight", figure: "p99", unit: "ms", better: "lower" },
    ...{ must: ratio(0.3), aim: undefined, read: p99Of("put-1000") },
  },
  {
    ...throughput("put, 1,000 in flight, over the etcd API", "put-1000", 1, ratio(2)),
    through: "lockstep-etcd-api",
  },
  throughput("linearizable get, 1,000", "get", 5, ratio(15)),
  throughput("serializable get, 1,000", "serializable", 5, ratio(15)),
  throughput("mixed 80/20, 1,000", "mixed", 5, absolute(100_000)),
  throughput("lock + unlock by transaction, 256 clients", "txnlock", 5, ratio(15)),
  throughput("contended fair mutex, 4 contenders a lock, 256", "mutex", 5, ratio(20)),
  throughput("lease grant, 256", "grant", 4, ratio(10)),
  {
    ...{ work: "lease renewals", figure: "", unit: "/s", better: "higher" },
    ...{ must: absolute(100_000), aim: absolute(300_000), read: renewalRate },
  },
  {
    ...{ work: "mass expiry of 100,000 sessions", figure: "all gone", unit: "s", better: "lower" },
    ...{ must: absolute(10), aim: undefined, read: figureOf("expiry", "untilGoneSeconds") },
  },
  {
    ...{ work: "mass expiry of 100,000 sessions", figure: "foreground p99", unit: "x", better: "lower" },
    ...{ must: absolute(3), aim: undefined, read: expirySlowdown },
  },
  throughput("watch fan-out, 1,000 watchers of one key", "watch-1000", 2, ratio(5)),
  throughput("watch fan-out, 10,000 watchers of one key", "watch-10000", 2, ratio(5)),
  {
    ...{ work: "watch fan-out, 10,000 watchers of one key", figure: "p99", unit: "ms", better: "lower" },
    ...{ must: ratio(0.5), aim: undefined, read: p99Of("watch-10000") },
  },
  {
    ...{
      work: "longest write gap after kill -9 of the leader",
      figure: "median",
      unit: "ms",
      better: "lower",
    },
    ...{ must: absolute(700), aim: absolute(250), read: gaps },
  },
  {
    ...{ work: "1,000,000 keys: fill, 64 puts a transaction", figure: "", unit: "/s", better: "higher" },
    ...{ must: ratio(1.5), aim: ratio(4), read: largeOf((one) => one.keysPerSecond) },
  },
  {
    ...{
      work: "1,000,000 keys: resident memory of a member",
      figure: "largest",
      unit: "MB",
      better: "lower",
    },
    ...{ must: ratio(0.5), aim: ratio(0.25) },
    read: largeOf((one) => {
      const bytes = largestResident(one.residentBytes);
      return bytes === undefined ? undefined : bytes / 1e6;
    }),
  },
  {
    ...{ work: "1,000,000 keys: restart of all to the first read", figure: "", unit: "s", better: "lower" },
    ...{ must: ratio(1), aim: ratio(0.3) },
    read: largeOf((one) => (one.restartMs === undefined ? undefined : one.restartMs / 1000)),
  },
  {
    ...{ work: "1,000,000 sessions + 2,000,000 watches", figure: "resident", unit: "MB", better: "lower" },
    ...{ must: absolute(2 * 2 ** 10 * 1.048576), aim: absolute(2 ** 10 * 1.048576), read: everySession },
  },
  {
    ...{
      work: "event-loop stall while RocksDB compacts",
      figure: "p99.99 or max",
      unit: "ms",
      better: "lower",
    },
    ...{ must: absolute(100), aim: absolute(20), read: stall },
  },
  {
    ...{ work: "start of a client to its first answer", figure: "median", unit: "ms", better: "lower" },
    ...{ must: absolute(100), aim: absolute(50), read: startup },
  },
];

export interface Verdict {
  readonly target: Target;
  readonly etcd: number | undefined;
  readonly lockstep: number | undefined;
  /** Lockstep's by etcd's. */
  readonly ratio: number | undefined;
  readonly must: "met" | "missed" | "not measured";
  /** undefined: no aim, or not measured. */
  readonly aim: boolean | undefined;
}

function holds(verdict: Omit<Verdict, "must" | "aim">, bound: Bound): boolean | undefined {
  const value = bound.kind === "ratio" ? verdict.ratio : verdict.lockstep;
  if (value === undefined || Number.isNaN(value)) return undefined;
  return verdict.target.better === "higher" ? value >= bound.value : value <= bound.value;
}

/** Every row, measured or not. */
export function judge(results: Results): readonly Verdict[] {
  return TARGETS.map((target) => {
    const etcd = target.read(results, "etcd");
    const lockstep = target.read(results, target.through ?? "lockstep");
    const quotient = etcd === undefined || lockstep === undefined ? undefined : lockstep / etcd;
    const measured = { target, etcd, lockstep, ratio: quotient };
    const must = holds(measured, target.must);
    return {
      ...measured,
      must: must === undefined ? "not measured" : must ? "met" : "missed",
      aim: target.aim === undefined ? undefined : holds(measured, target.aim),
    };
  });
}

function figureText(value: number | undefined, unit: Unit): string {
  if (value === undefined || Number.isNaN(value)) return "-";
  const digits = unit === "/s" || unit === "MB" || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const number = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return unit === "/s" || unit === "x" ? `${number}${unit}` : `${number} ${unit}`;
}

function boundText(bound: Bound | undefined, target: Target): string {
  if (bound === undefined) return "";
  const sign = target.better === "higher" ? ">=" : "<=";
  return bound.kind === "ratio"
    ? `${sign} ${String(bound.value)}x`
    : `${sign} ${figureText(bound.value, target.unit)}`;
}

const WIDTHS = [62, 12, 12, 8, 12, 12, 12] as const;

function row(cells: readonly string[]): string {
  return cells
    .map((cell, column) => {
      const width = WIDTHS[column] ?? 12;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    })
    .join(" ")
    .trimEnd();
}

/** The table of targets, for people. */
export function renderTargets(verdicts: readonly Verdict[], labels: Labels): string {
  const lines = [row(["targets", labels.etcd, labels.lockstep, "ratio", "must", "aim", ""])];
  for (const { target, etcd, lockstep, ratio: quotient, must, aim } of verdicts) {
    // What a part of the bench leaves out is counted below; a figure of etcd's alone is worth its line.
    if (etcd === undefined && lockstep === undefined) continue;
    lines.push(
      row([
        target.figure === "" ? target.work : `${target.work}: ${target.figure}`,
        figureText(etcd, target.unit),
        figureText(lockstep, target.unit),
        quotient === undefined ? "-" : `${quotient.toFixed(quotient < 10 ? 2 : 1)}x`,
        boundText(target.must, target),
        boundText(target.aim, target),
        must === "met" && aim === true ? "met, aim too" : must,
      ]),
    );
  }
  const counts = new Map<string, number>();
  for (const { must } of verdicts) counts.set(must, (counts.get(must) ?? 0) + 1);
  lines.push("", [...counts].map(([what, count]) => `${String(count)} ${what}`).join(", "));
  return lines.join("\n");
}
