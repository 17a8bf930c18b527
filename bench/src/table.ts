import type { LoadReport } from "./load-report.ts";
import type { SystemName } from "./options.ts";
import type { Labels } from "./results.ts";
import type { Measurement } from "./suites/table.ts";
import type { Workload } from "./workloads.ts";

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** The medians of one workload's rounds on one system; operations and errors are sums. */
export interface Summary {
  readonly rounds: number;
  readonly failures: readonly string[];
  readonly operationsPerSecond: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
  readonly p999Ms: number;
  readonly maxMs: number;
  readonly operations: number;
  readonly errors: number;
  readonly firstError: string | undefined;
  /** Processor time of all members together by operation, with what the generator's set-up took. */
  readonly serverMicros: number;
  /** Of the generator's process by operation, with its start. */
  readonly loadMicros: number;
  /** What the mode found beside. */
  readonly figures: ReadonlyMap<string, number>;
}

function mediansOf(reports: readonly LoadReport[]): ReadonlyMap<string, number> {
  const names = new Set(reports.flatMap((report) => Object.keys(report.figures ?? {})));
  return new Map(
    [...names].map((name) => [name, median(reports.flatMap((report) => report.figures?.[name] ?? []))]),
  );
}

/** The unit is the end of a figure's name. */
function figuresText(figures: ReadonlyMap<string, number>): string {
  return [...figures]
    .map(([name, value]) => {
      const [, what = name, unit = ""] = /^(.*?)(Ms|Seconds)$/.exec(name) ?? [];
      const words = what.replaceAll(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`);
      return `${words} ${value.toFixed(1)} ${unit === "Ms" ? "ms" : "s"}`;
    })
    .join(", ");
}

export function summarise(measurements: readonly Measurement[]): Summary {
  const reports = measurements.flatMap((one) => one.report ?? []);
  const of = (pick: (report: LoadReport) => number): number => median(reports.map(pick));
  const sum = (pick: (report: LoadReport) => number): number =>
    reports.reduce((all, one) => all + pick(one), 0);
  return {
    rounds: measurements.length,
    failures: measurements.flatMap((one) => one.failure ?? []),
    operationsPerSecond: of((report) => report.operationsPerSecond),
    p50Ms: of((report) => report.p50Ms),
    p90Ms: of((report) => report.p90Ms),
    p99Ms: of((report) => report.p99Ms),
    p999Ms: of((report) => report.p999Ms),
    maxMs: of((report) => report.maxMs),
    operations: sum((report) => report.operations),
    errors: sum((report) => report.errors),
    firstError: reports.find((report) => report.firstError !== undefined)?.firstError,
    serverMicros: median(
      measurements.flatMap(({ report, serverCpuSeconds }) =>
        report === undefined ? [] : (serverCpuSeconds * 1e6) / report.completed,
      ),
    ),
    loadMicros: of((report) => (report.cpuSeconds * 1e6) / report.completed),
    figures: mediansOf(reports),
  };
}

const HEADER = ["", "ops/s", "p50", "p90", "p99", "p99.9", "max ms", "ops", "errors", "server us", "load us"];
const WIDTHS = [20, 10, 9, 9, 9, 9, 9, 11, 7, 10, 9];

function line(cells: readonly string[]): string {
  return cells
    .map((cell, column) => {
      const width = WIDTHS[column] ?? 10;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    })
    .join(" ")
    .trimEnd();
}

function latency(milliseconds: number): string {
  return Number.isNaN(milliseconds)
    ? "-"
    : milliseconds.toFixed(milliseconds < 10 ? 2 : milliseconds < 100 ? 1 : 0);
}

function micros(value: number): string {
  return Number.isFinite(value) ? value.toFixed(value < 10 ? 1 : 0) : "-";
}

const count = (value: number): string => (Number.isNaN(value) ? "-" : Math.round(value).toLocaleString("en"));

function summaryLine(label: string, summary: Summary): string {
  return line([
    `  ${label}`,
    count(summary.operationsPerSecond),
    latency(summary.p50Ms),
    latency(summary.p90Ms),
    latency(summary.p99Ms),
    latency(summary.p999Ms),
    latency(summary.maxMs),
    count(summary.operations),
    count(summary.errors),
    micros(summary.serverMicros),
    micros(summary.loadMicros),
  ]);
}

function ratio(ours: number, theirs: number): string {
  const value = ours / theirs;
  return Number.isFinite(value) ? `${value.toFixed(value < 10 ? 2 : 1)}x` : "-";
}

function ratioLine(label: string, ours: Summary, theirs: Summary): string {
  return line([
    `  ${label}`,
    ratio(ours.operationsPerSecond, theirs.operationsPerSecond),
    ratio(ours.p50Ms, theirs.p50Ms),
    ratio(ours.p90Ms, theirs.p90Ms),
    ratio(ours.p99Ms, theirs.p99Ms),
    ratio(ours.p999Ms, theirs.p999Ms),
    ratio(ours.maxMs, theirs.maxMs),
    "",
    "",
    ratio(ours.serverMicros, theirs.serverMicros),
    ratio(ours.loadMicros, theirs.loadMicros),
  ]);
}

function workloadLines(
  workload: Workload,
  measurements: readonly Measurement[],
  labels: Labels,
): readonly string[] {
  const summaries = new Map<SystemName, Summary>();
  for (const system of ["etcd", "lockstep", "lockstep-etcd-api"] as const) {
    const own = measurements.filter((one) => one.system === system && one.workload === workload.name);
    if (own.length > 0) summaries.set(system, summarise(own));
  }
  const lines = ["", workload.title + (workload.counts === undefined ? "" : ` (counts ${workload.counts})`)];
  for (const [system, summary] of summaries) lines.push(summaryLine(labels[system], summary));
  for (const [system, summary] of summaries) {
    if (summary.figures.size > 0) lines.push(`  ${labels[system]}: ${figuresText(summary.figures)}`);
  }
  const etcd = summaries.get("etcd");
  for (const [system, summary] of summaries) {
    if (etcd !== undefined && system !== "etcd")
      lines.push(ratioLine(`${labels[system]} / etcd`, summary, etcd));
  }
  for (const [system, summary] of summaries) {
    for (const failure of summary.failures) lines.push(`  FAILED on ${labels[system]}: ${failure}`);
    if (summary.errors > 0)
      lines.push(`  errors on ${labels[system]}, the first: ${summary.firstError ?? "unknown"}`);
  }
  return lines;
}

function memoryLines(measurements: readonly Measurement[], labels: Labels): readonly string[] {
  const lines = ["", "resident memory of a member, MB: smallest - largest, at the end of each round"];
  const last = new Map<string, Measurement>();
  for (const one of measurements) last.set(`${one.system} ${String(one.round)}`, one);
  for (const one of last.values()) {
    const megabytes = one.residentBytes.map((bytes) => Math.round(bytes / 1e6));
    const range =
      megabytes.length === 0
        ? "not known"
        : `${count(Math.min(...megabytes))} - ${count(Math.max(...megabytes))}`;
    lines.push(`  ${labels[one.system].padEnd(20)} round ${String(one.round)}: ${range}`);
  }
  return lines;
}

/** The whole result, for people. */
export function renderTable(
  workloads: readonly Workload[],
  measurements: readonly Measurement[],
  labels: Labels,
): string {
  const lines = [line(HEADER)];
  for (const workload of workloads) lines.push(...workloadLines(workload, measurements, labels));
  lines.push(...memoryLines(measurements, labels));
  return lines.join("\n");
}
