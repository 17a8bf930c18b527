/** What one run of a load generator found: the JSON line that both generators print (bench/etcdload/main.go). */
export interface LoadReport {
  readonly mode: string;
  readonly clients: number;
  readonly connections: number;
  /** Answered in the measured time. */
  readonly operations: number;
  /** Answered at all: in the warm-up and after the end, too. */
  readonly completed: number;
  readonly seconds: number;
  readonly operationsPerSecond: number;
  /** During the warm-up too. */
  readonly errors: number;
  readonly firstError?: string;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
  readonly p999Ms: number;
  readonly maxMs: number;
  /** Of the generator's process, set-up and warm-up included. */
  readonly cpuSeconds: number;
  /** What else the mode found, by name; the unit is the end of the name. */
  readonly figures?: Readonly<Partial<Record<string, number>>>;
}

/** One point of a curve that a generator prints on its way (mode scale). */
export interface Stage {
  /** What grew to get here. */
  readonly kind: "sessions" | "watches";
  readonly sessions: number;
  readonly watches: number;
  /** Of each member, the leader's first. */
  readonly residentBytes: readonly number[];
  /** Grants, or watches created, a second on the way here. */
  readonly openedPerSecond: number;
  /** 0: not measured at this stage. */
  readonly renewalsPerSecond: number;
  /** Renewals for each second of processor time that the leader used meanwhile; absent: not measured at this stage. */
  readonly renewalsPerCore?: number;
  /** Entries that the leader's log grew by while sessions were renewed and nothing else went on; absent: not told. */
  readonly renewalLogEntries?: number;
  readonly putsPerSecond: number;
  readonly putP50Ms: number;
  readonly putP99Ms: number;
  /** Events that the puts of this stage owed the watchers and that came. */
  readonly events: number;
  readonly errors: number;
}

/** @returns undefined for a line that is not a stage. */
export function parseStage(line: string): Stage | undefined {
  if (!line.startsWith('{"stage":')) return undefined;
  return (JSON.parse(line) as { readonly stage: Stage }).stage;
}

const NUMBERS = [
  "clients",
  "connections",
  "operations",
  "completed",
  "seconds",
  "operationsPerSecond",
  "errors",
  "p50Ms",
  "p90Ms",
  "p99Ms",
  "p999Ms",
  "maxMs",
  "cpuSeconds",
] as const;

/** @throws TypeError when the line is not a report: a generator that prints something else is a bug. */
export function parseLoadReport(line: string): LoadReport {
  const parsed = JSON.parse(line) as Partial<Record<string, unknown>>;
  for (const name of NUMBERS) {
    if (typeof parsed[name] !== "number")
      throw new TypeError(`load report without a number ${name}: ${line}`);
  }
  if (typeof parsed["mode"] !== "string") throw new TypeError(`load report without a mode: ${line}`);
  return parsed as unknown as LoadReport;
}
