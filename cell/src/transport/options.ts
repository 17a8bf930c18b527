import type { MemberId } from "../raft/types.ts";
import type { Connection } from "./connection.ts";
import type { PeerNetwork } from "./network.ts";
import type { TransportTimers } from "./timers.ts";
import type { ConnectionPurpose, TransportHandlers, TransportIdentity } from "./types.ts";

/** PEM. Peers prove themselves to each other against `ca`. */
export interface TransportTls {
  readonly key: string | Buffer;
  readonly cert: string | Buffer;
  readonly ca: string | Buffer;
}

export interface TransportBounds {
  /** Bytes queued for one peer's Raft connection; beyond it sends are dropped. Default 64 MiB. */
  readonly raftQueueBytesMax: number;
  /** Bytes queued on one forwarding connection. Default 64 MiB. */
  readonly forwardQueueBytesMax: number;
  /** Forwarded requests without an answer, for one peer. Default 16,384. */
  readonly requestsInFlightMax: number;
  /** Largest frame accepted. Default 64 MiB. */
  readonly frameBytesMax: number;
  /** A connection is pinged this often. Default 1,000. */
  readonly pingIntervalMs: number;
  /** Ping intervals without a sign of life after which a connection is given up. Default 5. */
  readonly silentIntervalsMax: number;
  /** Connecting and shaking hands. Default 2,000. */
  readonly dialTimeoutMs: number;
  /** First and largest pause between attempts to connect; each is jittered. Default 20 and 1,000. */
  readonly backoffMsMin: number;
  readonly backoffMsMax: number;
  /** Snapshot chunks sent ahead of their acknowledgement. Default 4. */
  readonly snapshotWindowChunks: number;
  /** A snapshot stream without progress for this long is given up, on both ends. Default 60,000. */
  readonly snapshotStallMsMax: number;
  /** Installing a received snapshot may take this long. Default 600,000. */
  readonly snapshotFinishMsMax: number;
  /** Strangers' connections that have not shaken hands yet. Default 64. */
  readonly handshakesMax: number;
}

export const TRANSPORT_BOUNDS: TransportBounds = {
  raftQueueBytesMax: 64 * 1024 * 1024,
  forwardQueueBytesMax: 64 * 1024 * 1024,
  requestsInFlightMax: 16 * 1024,
  frameBytesMax: 64 * 1024 * 1024,
  pingIntervalMs: 1_000,
  silentIntervalsMax: 5,
  dialTimeoutMs: 2_000,
  backoffMsMin: 20,
  backoffMsMax: 1_000,
  snapshotWindowChunks: 4,
  snapshotStallMsMax: 60_000,
  snapshotFinishMsMax: 600_000,
  handshakesMax: 64,
};

/** One line for the log; `detail` holds plain values. */
export type TransportLog = (
  level: "info" | "warn",
  message: string,
  detail: Readonly<Record<string, string | number>>,
) => void;

/**
 * For tests: the fate of a frame to or from a member, asked for every frame (and every attempt to connect).
 * `drop` loses it as a broken network would.
 */
export type TransportIntercept = (peer: MemberId, purpose: ConnectionPurpose) => "deliver" | "drop";

export interface TransportOptions {
  readonly identity: TransportIdentity;
  /** Port 0: any free one, see the transport's `address`. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly handlers: TransportHandlers;
  /** Absent: plain TCP, and only a loopback host may be bound. */
  readonly tls?: TransportTls;
  readonly log?: TransportLog;
  readonly bounds?: Partial<TransportBounds>;
  readonly intercept?: TransportIntercept;
  /** Uniform in [0, 1), for the jitter of reconnection. Default `Math.random`. */
  readonly random?: () => number;
  /** Monotonic milliseconds, for time-outs. Default `performance.now`. */
  readonly now?: () => number;
  /** Default: those of Node's event loop. */
  readonly timers?: TransportTimers;
  /** What connects members. Default: sockets. */
  readonly network?: PeerNetwork;
}

/** What all parts of one transport share. */
export interface TransportContext {
  readonly identity: TransportIdentity;
  readonly handlers: TransportHandlers;
  /** Replaced when certificates are renewed. */
  tls: TransportTls | undefined;
  readonly log: TransportLog;
  readonly bounds: TransportBounds;
  readonly intercept: TransportIntercept | undefined;
  readonly random: () => number;
  readonly now: () => number;
  readonly timers: TransportTimers;
  readonly network: PeerNetwork;
  /** Every connection there is, until it has heard that it is closed. */
  readonly connections: Set<Connection>;
}
