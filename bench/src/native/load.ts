import type { Channel, LockstepError } from "@lockstep/client";
import type { Tally } from "./tally.ts";

/** What a run is asked to do. */
export interface LoadSettings {
  readonly mode: string;
  /** Operations in flight. */
  readonly clients: number;
  readonly keys: number;
  readonly valueBytes: number;
  /** fill: the first key to write; 0: all. */
  readonly firstKey: number;
  /** renew, expiry, scale: leases; watch: watchers. */
  readonly leases: number;
  /** scale: watches at the end. */
  readonly watches: number;
  /** expiry: of the leases. */
  readonly ttlSeconds: number;
  /** scale, storm: connections that the mode opens by itself. */
  readonly connections: number;
  /** failover, storm: the process to kill. 0: none. */
  readonly killPid: number;
  /** scale: processes whose memory is read. */
  readonly serverPids: readonly number[];
  /** scale: where the leader tells how long its log is. Empty: it is not asked. */
  readonly metricsUrl: string;
  readonly endpoints: readonly string[];
  readonly readPercent: number;
  readonly warmupSeconds: number;
  readonly measureSeconds: number;
}

export interface LoadResult {
  readonly tally: Tally;
  /** Operations are divided by this. */
  readonly seconds: number;
  /** What else the mode found. */
  readonly figures?: Readonly<Record<string, number>>;
}

export type Load = (channel: Channel, settings: LoadSettings) => Promise<LoadResult>;

export function describe(error: LockstepError): string {
  return `${error.code} (${error.outcome}): ${error.message}`;
}

/** What a slot is told for an operation whose result nobody looks at. */
export function problemOf(error: LockstepError | undefined): string | undefined {
  return error === undefined ? undefined : describe(error);
}
