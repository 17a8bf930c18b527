import type { AdmissionLimits } from "../admission/admission.ts";
import type { RetentionPolicy } from "../machine/types.ts";

/** Where a member listens: HOST:PORT each. Without TLS only loopback hosts are accepted. */
export interface ListenAddresses {
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  readonly ops: string;
}

/** How a fresh folder becomes a member. A folder that is one already ignores it. */
export type Origin =
  /** The first voter of a new cell: happens once, draws a random cell id. */
  | { readonly kind: "bootstrap" }
  /** Joins an existing cell as a learner; admin addresses of its members. */
  | { readonly kind: "join"; readonly targets: readonly string[] }
  | { readonly kind: "existing" };

export interface MemberOptions {
  readonly directory: string;
  /** Unique in the cell; a removed member's name may be taken again only by a fresh folder. */
  readonly name: string;
  readonly origin: Origin;
  readonly listen: ListenAddresses;
  /** What others are told to dial: differs from `listen` behind a proxy or a service name. */
  readonly advertise: ListenAddresses;
  readonly version: string;
  readonly tickMs: number;
  readonly electionTimeoutTicks: number;
  readonly heartbeatTicks: number;
  readonly admission: AdmissionLimits;
  /** Below this much free space on the data volume the cell refuses growth. */
  readonly reserveBytes: number;
  /** undefined: the cell never compacts by itself. */
  readonly retention: RetentionPolicy | undefined;
  /** Log kept behind the barrier for members that lag a little. */
  readonly logKeepBytes: number;
  /** Size of a new segment of the log. */
  readonly segmentBytes: number;
  readonly watchesMax: number;
  /** Recent events kept in memory for watches that lag a little. */
  readonly watchRingBytes: number;
  /** Events that wait for one watch; beyond it the watch is cut with its resume revision. */
  readonly watchPendingBytesMax: number;
  /** A lease that nobody renewed for this long gets its remaining time written down, for the next leader. */
  readonly checkpointIntervalMs: number;
  /** How often the leader looks whether history is due to be given up. */
  readonly retentionIntervalMs: number;
}

export const MEMBER_DEFAULTS: Pick<
  MemberOptions,
  | "tickMs"
  | "electionTimeoutTicks"
  | "heartbeatTicks"
  | "reserveBytes"
  | "retention"
  | "logKeepBytes"
  | "segmentBytes"
  | "watchesMax"
  | "watchRingBytes"
  | "watchPendingBytesMax"
  | "checkpointIntervalMs"
  | "retentionIntervalMs"
> = {
  tickMs: 25,
  electionTimeoutTicks: 20,
  heartbeatTicks: 2,
  reserveBytes: 256 * 1024 * 1024,
  retention: { ageMs: 60 * 60 * 1000 },
  logKeepBytes: 16 * 1024 * 1024,
  segmentBytes: 16 * 1024 * 1024,
  watchesMax: 1_000_000,
  watchRingBytes: 8 * 1024 * 1024,
  watchPendingBytesMax: 4 * 1024 * 1024,
  checkpointIntervalMs: 5 * 60_000,
  retentionIntervalMs: 10_000,
};

/** Splits HOST:PORT (or [V6]:PORT). Throws a TypeError that names what it was for. */
export function parseAddress(
  what: string,
  address: string,
): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(address);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new TypeError(`--${what} must be HOST:PORT, not ${JSON.stringify(address)}`);
  }
  return { host, port };
}
