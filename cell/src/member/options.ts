import type { AdmissionLimits } from "../admission/admission.ts";
import { ETCD_DOOR_LIMITS, NATIVE_DOOR_LIMITS, isCellUid } from "@lockstep/gateway";
import type { RetentionPolicy } from "../machine/types.ts";
import { isLoopback } from "../transport/address.ts";
import type { MemberTlsOptions } from "./tls-source.ts";

/** Where a member listens: HOST:PORT each. */
export interface ListenAddresses {
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  /** Plain HTTP also with TLS, on any host: probes and metrics hold no state of the cell and no secrets. */
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
  /** Host names that a namespace may stand in front of in an etcd client's `:authority`, beside the members' own. */
  readonly hostSuffixes: readonly string[];
  /** How often etcd's watches with `progress_notify` are told that nothing happened, in milliseconds. */
  readonly etcdProgressMs: number;
  /** Absent: plain text, and only loopback hosts may be bound. */
  readonly tls?: MemberTlsOptions;
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
  /** Streams of the native protocol that clients may have open; a stream is a client process. */
  readonly streamsMax: number;
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
  | "streamsMax"
  | "watchRingBytes"
  | "watchPendingBytesMax"
  | "checkpointIntervalMs"
  | "retentionIntervalMs"
  | "hostSuffixes"
  | "etcdProgressMs"
> = {
  tickMs: 25,
  electionTimeoutTicks: 20,
  heartbeatTicks: 2,
  reserveBytes: 256 * 1024 * 1024,
  retention: { ageMs: 60 * 60 * 1000 },
  logKeepBytes: 16 * 1024 * 1024,
  segmentBytes: 16 * 1024 * 1024,
  watchesMax: 1_000_000,
  streamsMax: NATIVE_DOOR_LIMITS.streamsMax,
  watchRingBytes: 8 * 1024 * 1024,
  watchPendingBytesMax: 4 * 1024 * 1024,
  checkpointIntervalMs: 5 * 60_000,
  retentionIntervalMs: 10_000,
  hostSuffixes: [],
  etcdProgressMs: ETCD_DOOR_LIMITS.progressIntervalMs,
};

/** What a flag may be set to, ends included. */
export interface CountBounds {
  readonly min: number;
  readonly max: number;
}

/** What a member has room for: a stream costs some 20 KB with its connection, a watch about 300 bytes. */
export const STREAMS_MAX_BOUNDS: CountBounds = { min: 1, max: 1_000_000 };
export const WATCHES_MAX_BOUNDS: CountBounds = { min: 0, max: 8_000_000 };

/** @throws TypeError that says what is wanted */
export function parseCount(
  text: string,
  { min, max }: CountBounds = { min: 0, max: Number.MAX_SAFE_INTEGER },
): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  const between = max === Number.MAX_SAFE_INTEGER ? "" : ` from ${String(min)} to ${String(max)}`;
  throw new TypeError(`a whole number${between} is wanted`);
}

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

/** Where the flags of TLS stand. */
export interface TlsFlags {
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsCa?: string;
  readonly tlsCellUid?: string;
}

/**
 * The flags of TLS go together: half of them would be a member that looks protected and is not.
 * @returns undefined when there are none
 * @throws TypeError that names what is missing
 */
export function tlsOptionsOf(flags: TlsFlags): MemberTlsOptions | undefined {
  const { tlsCert: cert, tlsKey: key, tlsCa: ca, tlsCellUid: cellUid } = flags;
  const named = Object.entries({ cert, key, ca, "cell-uid": cellUid });
  const missing = named.filter(([, value]) => value === undefined).map(([name]) => `--tls-${name}`);
  if (missing.length === named.length) return undefined;
  if (cert === undefined || key === undefined || ca === undefined || cellUid === undefined) {
    throw new TypeError(`the flags of TLS go together, and ${missing.join(" and ")} is missing`);
  }
  if (!isCellUid(cellUid)) {
    throw new TypeError(
      `--tls-cell-uid must be 1 to 63 letters, digits, '.' and '-', not ${JSON.stringify(cellUid)}`,
    );
  }
  return { cert, key, ca, cellUid };
}

/**
 * Without TLS whoever reaches a port owns every lock, so only this machine may.
 * @throws TypeError that names the flag and what to do
 */
export function assertListenAllowed(listen: ListenAddresses, tls: MemberTlsOptions | undefined): void {
  if (tls !== undefined) return;
  for (const what of ["client", "http", "peer", "admin"] as const) {
    const { host } = parseAddress(what, listen[what]);
    if (!isLoopback(host)) {
      throw new TypeError(
        `--${what} ${listen[what]} could be reached from other machines, and nothing would ask who calls: ` +
          "give --tls-cert, --tls-key, --tls-ca and --tls-cell-uid, or listen on 127.0.0.1",
      );
    }
  }
}
