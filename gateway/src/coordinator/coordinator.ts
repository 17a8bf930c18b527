import type { Failure } from "./failures.ts";
import type {
  ClientId,
  KeyRange,
  KeyValue,
  LeaseId,
  ReadOperation,
  Revision,
  WriteOperation,
} from "./operations.ts";
import type { ReadResult, WriteResult } from "./results.ts";

/** How a retry of a mutation is recognised, so that it returns the first outcome and runs once. */
export type RequestIdentity =
  | { readonly kind: "none" }
  /** A registered client: its sequence number, and the lowest sequence it still waits for. */
  | {
      readonly kind: "client";
      readonly clientId: ClientId;
      readonly sequence: number;
      readonly acknowledgedBelow: number;
    }
  /** A free-form id (HTTP `Request-ID`), 1 to 128 bytes; remembered for 10 minutes or 100,000 ids. */
  | { readonly kind: "token"; readonly token: string };

export const NO_IDENTITY: RequestIdentity = { kind: "none" };

export interface Mutation {
  readonly namespace: string;
  /** Routing epoch the client knows; 0: any. */
  readonly epoch: number;
  readonly identity: RequestIdentity;
  readonly operation: WriteOperation;
  /** Give up after this long; absent: the cell's default (10 s). The outcome may then be `unknown`. */
  readonly deadlineMs?: number;
}

export type MutationOutcome =
  | {
      readonly ok: true;
      readonly result: WriteResult;
      /** The answer is a remembered one: this call was a retry. */
      readonly replayed: boolean;
    }
  | { readonly ok: false; readonly failure: Failure };

export type Consistency =
  /** Reflects every write acknowledged before the call. */
  | "linearizable"
  /** At once from this member; possibly stale. */
  | "serializable";

export interface Read {
  readonly namespace: string;
  readonly epoch: number;
  readonly operation: ReadOperation;
  readonly consistency: Consistency;
  /**
   * Nobody wants to know how many keys a range holds beyond those it answers with, which costs as much as reading them:
   * `count` is then the number answered, and `more` says whether there is another.
   */
  readonly uncounted?: boolean;
  /** Wait until this member reflects at least this revision (serializable reads). */
  readonly minRevision?: Revision;
  readonly deadlineMs?: number;
}

export type ReadOutcome =
  { readonly ok: true; readonly result: ReadResult } | { readonly ok: false; readonly failure: Failure };

export interface Renewal {
  readonly namespace: string;
  readonly epoch: number;
  /** At most 10,000 a call. */
  readonly leaseIds: readonly LeaseId[];
}

export type RenewalOutcome =
  | {
      readonly ok: true;
      readonly revision: Revision;
      /** One for each asked lease, in order. 0: there is no such lease (it ended). */
      readonly remainingMs: readonly number[];
    }
  | { readonly ok: false; readonly failure: Failure };

/** Why a key or a lease went away. */
export type Cause = "client" | "lease-expired" | "lease-revoked" | "forced" | "moved";

/** One change of one key. `kv` of a deletion has only key and modRevision (version 0, empty value). */
export interface WatchEvent {
  readonly kind: "put" | "delete";
  readonly kv: KeyValue;
  /** Set when the watch asked for it and the key existed before and its history is retained. */
  readonly previous?: KeyValue;
  readonly cause: Cause;
}

export interface WatchRequest {
  readonly namespace: string;
  readonly epoch: number;
  readonly range: KeyRange;
  /** First revision wanted; absent: the one after the current revision. May be in the future. */
  readonly startRevision?: Revision;
  readonly returnPrevious?: boolean;
  /** Leave out puts or deletions. */
  readonly omit?: "put" | "delete";
}

export type WatchEnd =
  | { readonly kind: "compacted"; readonly compactRevision: Revision }
  /** The consumer did not drain: go on from `resumeRevision`. */
  | { readonly kind: "slow-consumer"; readonly resumeRevision: Revision }
  | { readonly kind: "cancelled"; readonly failure: Failure };

/**
 * Where a watch delivers. All calls are synchronous and ordered; nothing comes after `end`.
 */
export interface WatchSink {
  /**
   * All events of one or more whole revisions, in order; `revision` is the last one covered.
   * @returns false when the consumer is full: the hub then holds back until {@link WatchHandle.resume}, and ends
   *   the watch with `slow-consumer` if too much piles up.
   */
  events(events: readonly WatchEvent[], revision: Revision): boolean;
  /** Every event up to and including `revision` has been delivered. */
  progress(revision: Revision): void;
  end(end: WatchEnd): void;
}

export interface WatchHandle {
  /** The cell's revision that registration was atomic with. */
  readonly createdRevision: Revision;
  /** No more deliveries after this returns; `end` is not called. */
  cancel(): void;
  /** The consumer drained. */
  resume(): void;
  /** Ask for one `progress` as soon as the watch is in step. */
  requestProgress(): void;
}

/** Told once for every lease that ends, on every member, in apply order. */
export interface LeaseEnd {
  readonly namespace: string;
  readonly leaseId: LeaseId;
  readonly cause: Cause;
  readonly revision: Revision;
}

/** Who leads, as far as this member knows. `address` is the client (gRPC) address. */
export interface LeaderHint {
  readonly memberId: number;
  readonly clientAddress: string;
  readonly httpAddress: string;
}

export interface CoordinatorInfo {
  readonly cellId: string;
  readonly memberId: number;
  readonly term: number;
  readonly revision: Revision;
  /** Absent: no leader known. */
  readonly leader?: LeaderHint;
  /** Client (gRPC) addresses of all members. Absent: not known. */
  readonly clientAddresses?: readonly string[];
}

/**
 * One interface behind every door (native channel, etcd, HTTP), served in-process by a cell's member and, over the
 * client, by a router. Deliveries are callbacks, called exactly once, never before the call has returned: no
 * promise per operation on the hot path. All deliveries of one committed entry happen in one synchronous block, so
 * a door that flushes its streams in a microtask sends one frame per stream per turn; only events that go to some
 * thousand watches at once go on in later turns.
 */
export interface Coordinator {
  mutate(mutation: Mutation, deliver: (outcome: MutationOutcome) => void): void;
  read(read: Read, deliver: (outcome: ReadOutcome) => void): void;
  renew(renewal: Renewal, deliver: (outcome: RenewalOutcome) => void): void;
  /** @returns the handle, or a failure (unknown namespace, too many watches); compaction is told through the sink. */
  watch(request: WatchRequest, sink: WatchSink): WatchHandle | Failure;
  /** @returns the function that unsubscribes. */
  onLeaseEnd(listener: (end: LeaseEnd) => void): () => void;
  /**
   * Called when the known leader or the membership changes (read `info()` for both), and with `undefined` after three
   * election timeouts without a leader.
   */
  onLeaderChange(listener: (leader: LeaderHint | undefined) => void): () => void;
  info(): CoordinatorInfo;
}
