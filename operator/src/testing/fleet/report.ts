import type { Usage } from "./operator-process.ts";

/** What is counted at one moment; two of them make a measurement. */
export interface Sample {
  readonly usage: Usage;
  /** The apiserver's own count; undefined: it is not asked. */
  readonly requests: ReadonlyMap<string, number> | undefined;
  readonly metrics: ReadonlyMap<string, number>;
  readonly adminCalls: number;
}

export interface Measured {
  readonly minutes: number;
  /** Percent of one core. */
  readonly cpu: number;
  readonly residentBytes: number;
  readonly residentBytesMax: number;
  /** In the whole time, by verb and resource. */
  readonly requests: ReadonlyMap<string, number>;
  /** The operator's own count of the same, but for watches, which it counts elsewhere. */
  readonly ownRequests: ReadonlyMap<string, number>;
  readonly adminCalls: number;
  readonly passes: number;
}

const OWN_REQUESTS = /^lockstep_operator_api_request_seconds_count\{(.*)\}$/;
const OWN_PASSES = /^lockstep_operator_queue_work_seconds_count\{.*queue="cells"/;

export function measured(before: Sample, after: Sample): Measured {
  const elapsedMs = after.usage.atMs - before.usage.atMs;
  const own = difference(ownRequests(before.metrics), ownRequests(after.metrics));
  const seen =
    before.requests === undefined || after.requests === undefined
      ? own
      : difference(before.requests, after.requests);
  return {
    minutes: elapsedMs / 60_000,
    cpu: ((after.usage.cpuSeconds - before.usage.cpuSeconds) / (elapsedMs / 1_000)) * 100,
    residentBytes: after.usage.residentBytes,
    residentBytesMax: after.usage.residentBytesMax,
    requests: seen,
    ownRequests: own,
    adminCalls: after.adminCalls - before.adminCalls,
    passes: sumOf(after.metrics, OWN_PASSES) - sumOf(before.metrics, OWN_PASSES),
  };
}

/** Requests that change something, without the renewals of the operator's Lease: an idle fleet needs none. */
export function writesOf({ requests }: Measured): number {
  return total(requests, (key) => !/^(get|list|watch) /.test(key) && !key.includes(" leases"));
}

export function table(
  measured: Measured,
  fleet: { readonly cells: number; readonly members: number },
): string {
  const { minutes, requests } = measured;
  const perCell = (count: number): string => (count / minutes / fleet.cells).toFixed(2);
  const forCells = total(requests, (key) => !key.includes(" leases"));
  const own = total(measured.ownRequests, (key) => !key.includes(" leases"));
  const watches = total(requests, (key) => key.startsWith("watch "));
  const rows: readonly (readonly [string, string])[] = [
    ["CPU of the operator", `${measured.cpu.toFixed(2)} % of a core`],
    ["resident memory at the end", megabytes(measured.residentBytes)],
    ["resident memory at most, creation included", megabytes(measured.residentBytesMax)],
    ["API requests per idle cell and minute", perCell(forCells)],
    ...[...requests]
      .sort(([, a], [, b]) => b - a)
      .map(([key, count]): readonly [string, string] => [
        `  ${key}`,
        key.includes(" leases")
          ? `${(count / minutes).toFixed(1)} a minute for the whole operator`
          : perCell(count),
      ]),
    [
      "the same by the operator's own count, watches apart",
      `${perCell(own)} (${perCell(forCells - watches)})`,
    ],
    ["looks at a cell per minute", perCell(measured.passes)],
    ["admin calls per member and minute", (measured.adminCalls / minutes / fleet.members).toFixed(2)],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join("\n");
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}

function ownRequests(metrics: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [name, value] of metrics) {
    const labels = OWN_REQUESTS.exec(name)?.[1];
    if (labels === undefined) continue;
    const label = (key: string): string => new RegExp(`${key}="([^"]*)"`).exec(labels)?.[1] ?? "";
    const key = `${label("verb")} ${label("resource")}`;
    counts.set(key, (counts.get(key) ?? 0) + value);
  }
  return counts;
}

function difference(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  const changed = [...after].map(([key, count]) => [key, count - (before.get(key) ?? 0)] as const);
  return new Map(changed.filter(([, count]) => count > 0));
}

function sumOf(metrics: ReadonlyMap<string, number>, pattern: RegExp): number {
  return total(metrics, (key) => pattern.test(key));
}

function total(counts: ReadonlyMap<string, number>, counted: (key: string) => boolean): number {
  return [...counts].reduce((sum, [key, count]) => (counted(key) ? sum + count : sum), 0);
}
