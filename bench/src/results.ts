import type { SystemName } from "./options.ts";
import type { Failover } from "./suites/failover.ts";
import type { GrowthPoint } from "./suites/growth.ts";
import type { LargeResult } from "./suites/large.ts";
import type { LocksResult } from "./suites/locks.ts";
import type { SessionsResult } from "./suites/sessions.ts";
import type { StartupResult } from "./suites/startup.ts";
import type { StormResult } from "./suites/storm.ts";
import type { Measurement } from "./suites/table.ts";

/** Everything that a run measured; empty: the suite was not run. */
export interface Results {
  readonly table: readonly Measurement[];
  readonly failover: readonly Failover[];
  readonly large: readonly LargeResult[];
  readonly sessions: readonly SessionsResult[];
  readonly growth: readonly GrowthPoint[];
  readonly storm: readonly StormResult[];
  readonly startup: readonly StartupResult[];
  readonly locks: readonly LocksResult[];
}

/** No suite was run. */
export const NOTHING: Results = {
  table: [],
  failover: [],
  large: [],
  sessions: [],
  growth: [],
  storm: [],
  startup: [],
  locks: [],
};

export type Labels = Readonly<Record<SystemName, string>>;

/** Whether something failed to run, as opposed to being slow. */
export function hasFailures(results: Results): boolean {
  const runs: readonly { readonly failure?: string }[] = [
    ...results.table,
    ...results.failover,
    ...results.large,
    ...results.sessions,
    ...results.storm,
    ...results.startup,
    ...results.locks,
  ];
  return runs.some((run) => run.failure !== undefined);
}

/** Resident memory of the members of one system after its fill, the largest. */
export function largestResident(bytes: readonly number[]): number | undefined {
  return bytes.length === 0 ? undefined : Math.max(...bytes);
}
