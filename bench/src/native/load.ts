import type { Channel, LockstepError } from "@lockstep/client";
import type { Tally } from "./tally.ts";

/** What a run is asked to do. */
export interface LoadSettings {
  readonly mode: string;
  /** Operations in flight. */
  readonly clients: number;
  readonly keys: number;
  readonly valueBytes: number;
  /** renew: leases; watch: watchers. */
  readonly leases: number;
  readonly readPercent: number;
  readonly warmupSeconds: number;
  readonly measureSeconds: number;
}

export interface LoadResult {
  readonly tally: Tally;
  /** Operations are divided by this. */
  readonly seconds: number;
}

export type Load = (channel: Channel, settings: LoadSettings) => Promise<LoadResult>;

export function describe(error: LockstepError): string {
  return `${error.code} (${error.outcome}): ${error.message}`;
}

/** What a slot is told for an operation whose result nobody looks at. */
export function problemOf(error: LockstepError | undefined): string | undefined {
  return error === undefined ? undefined : describe(error);
}
