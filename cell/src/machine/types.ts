/**
 * The replicated state machine, pure: commands in; mutations, results and events out. The outcome of a command
 * depends on replicated state at its index and nothing else (W20): not the clock, not who waits, not map order.
 * The hot path allocates little: commands are decoded from the entry's bytes, results are plain objects.
 */
import type {
  Cause,
  Failure,
  KeyValue,
  LeaseId,
  Limits,
  RangeOperation,
  RangeResult,
  LeaseListOperation,
  LeaseListResult,
  RequestIdentity,
  Revision,
  TxnCommand,
  TxnResult,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import type { LogIndex, Term } from "../raft/types.ts";
import type { Keyspace, StoreReader } from "../store/types.ts";

/** Number of a namespace inside the cell: 4 bytes in front of every key. `default` is 1. Never reused. */
export type NamespaceId = number;

/** A client's mutation, as it goes into the log. */
export interface ClientCommand {
  readonly kind: "client";
  readonly namespaceId: NamespaceId;
  /** Checked when the command is applied; 0: any. */
  readonly epoch: number;
  readonly identity: RequestIdentity;
  readonly operation: WriteOperation;
}

/**
 * Leases whose deadline passed, named by the leader of `leaderTerm`. Ignored when the entry's own term is another
 * one (the proposer was deposed meanwhile), and lease by lease when it is gone. Each ended lease has a revision of
 * its own if it held keys.
 */
export interface ExpireCommand {
  readonly kind: "expire";
  readonly namespaceId: NamespaceId;
  readonly leaderTerm: Term;
  readonly leaseIds: readonly LeaseId[];
}

/** Remaining-time checkpoints: what a new leader counts from instead of the full TTL. 0: cleared. */
export interface CheckpointCommand {
  readonly kind: "checkpoint";
  readonly namespaceId: NamespaceId;
  readonly leaderTerm: Term;
  readonly leases: readonly { readonly leaseId: LeaseId; readonly remainingMs: number }[];
}

/** Retention: the leader's own compaction proposal; a revision at or below the present point is ignored. */
export interface RetainCommand {
  readonly kind: "retain";
  readonly namespaceId: NamespaceId;
  readonly compactRevision: Revision;
}

/** Raises the replicated format version (R60); lower or equal is ignored, unknown higher stops the member. */
export interface FormatVersionCommand {
  readonly kind: "format-version";
  readonly version: number;
}

/**
 * Makes a namespace. Refused when the name is in use with another uid; with the same one nothing happens, so that a
 * repeat succeeds.
 */
export interface CreateNamespaceCommand {
  readonly kind: "create-namespace";
  readonly name: string;
  /** Chosen by whoever creates it: tells this namespace from another of the same name, before or after it. */
  readonly uid: string;
}

/**
 * Deletes a namespace with all that is in it, at once for everybody who asks; its rows go later. Changes no revision.
 * `namespace-not-found` when there is none of that name.
 */
export interface DeleteNamespaceCommand {
  readonly kind: "delete-namespace";
  readonly name: string;
  readonly uid: string;
}

export type Command =
  | ClientCommand
  | ExpireCommand
  | CheckpointCommand
  | RetainCommand
  | FormatVersionCommand
  | CreateNamespaceCommand
  | DeleteNamespaceCommand;

/**
 * All commands of one event-loop turn of the leader: the payload of one Raft entry. `timeMs` is the leader's wall
 * clock; the machine's time is the largest seen, so it never goes back.
 */
export interface CommandBatch {
  readonly timeMs: number;
  readonly commands: readonly Command[];
}

/** Builds the bytes of a batch turn by turn without intermediate objects (machine/FORMAT.md). */
export interface CommandEncoder {
  /** Appends one command. @returns the bytes the batch holds now. */
  add(command: Command): number;
  readonly count: number;
  readonly bytes: number;
  /** The finished entry payload; the encoder is empty again afterwards. */
  finish(timeMs: number): Uint8Array;
}

export type CommandOutcome =
  | { readonly ok: true; readonly result: WriteResult; readonly replayed: boolean }
  | { readonly ok: false; readonly failure: Failure }
  /** Not a client's command: nobody waits for it. */
  | { readonly ok: true; readonly result: undefined; readonly replayed: false };

/** One changed key, ready for the watch hub. */
export interface MachineEvent {
  readonly kind: "put" | "delete";
  readonly kv: KeyValue;
  /** The key's mod revision before this change, 0 if it did not exist: where `returnPrevious` finds the old state. */
  readonly previousRevision: number;
  readonly cause: Cause;
}

/** All changes of one revision: atomic for every watcher. Events are in operation order, expiries in key order. */
export interface RevisionEvents {
  readonly namespaceId: NamespaceId;
  readonly revision: Revision;
  readonly events: readonly MachineEvent[];
}

/** What the session keeper must know, in apply order. */
export type LeaseChange =
  | {
      readonly kind: "granted";
      readonly namespaceId: NamespaceId;
      readonly leaseId: LeaseId;
      readonly ttlMs: number;
    }
  | {
      readonly kind: "ended";
      readonly namespaceId: NamespaceId;
      readonly leaseId: LeaseId;
      readonly cause: Cause;
      readonly revision: Revision;
    }
  /** 0: cleared. */
  | {
      readonly kind: "checkpointed";
      readonly namespaceId: NamespaceId;
      readonly leaseId: LeaseId;
      readonly remainingMs: number;
    };

/** A put (`value` set) or deletion of one row. */
export interface RowMutation {
  readonly keyspace: Keyspace;
  readonly key: Uint8Array;
  readonly value: Uint8Array | undefined;
  /** There is no row of this key before it. Absent: not known. */
  readonly isNew?: boolean;
}

export interface AppliedEntry {
  readonly index: LogIndex;
  /** One for each command, in order. Empty for an empty entry (a new leader's). */
  readonly outcomes: readonly CommandOutcome[];
}

/** The product of applying some entries: the caller writes `mutations` in one atomic batch, then publishes the rest. */
export interface Applied {
  readonly entries: readonly AppliedEntry[];
  readonly mutations: readonly RowMutation[];
  readonly events: readonly RevisionEvents[];
  readonly leaseChanges: readonly LeaseChange[];
}

/** Rolling hash of everything that the applies produced, up to an index. */
export interface Digest {
  readonly index: LogIndex;
  /** CRC-32 chain, unsigned. */
  readonly hash: number;
}

export interface NamespaceInfo {
  readonly id: NamespaceId;
  readonly name: string;
  /** Empty for the one that the cell began with. */
  readonly uid: string;
  readonly epoch: number;
  /** Reads and watches below it are `compacted`. 0: nothing compacted. */
  readonly compactRevision: Revision;
  /** Live keys, and bytes of live and retained history rows: for quotas and retention. */
  readonly keys: number;
  readonly historyBytes: number;
}

/** Settings that decide an outcome at apply; replicated, in `meta`. */
export interface MachineSettings {
  readonly limits: Limits;
  /** Outcomes remembered for one registered client. Default 1,024. */
  readonly outcomesPerClientMax: number;
  /** HTTP request ids: how long (10 minutes) and how many (100,000) are remembered. */
  readonly tokenAgeMsMax: number;
  readonly tokensMax: number;
  /** A registered client that sent nothing for this long (1 h) is forgotten. */
  readonly clientIdleMsMax: number;
  /** Namespaces of the cell, `default` among them. Default 1,000. */
  readonly namespacesMax: number;
}

/** Entry handed to {@link Machine.apply}. A configuration entry is handled by the replica, see `membership.ts`. */
export interface MachineEntry {
  readonly index: LogIndex;
  readonly term: Term;
  readonly data: Uint8Array;
}

/** Rows of one entry that is not a command batch (configuration changes) that go into the same digest and batch. */
export interface ExternalRows {
  readonly index: LogIndex;
  readonly mutations: readonly RowMutation[];
}

export interface Machine {
  /** The cell's revision: the newest applied. */
  readonly revision: Revision;
  readonly appliedIndex: LogIndex;
  readonly digest: Digest;
  readonly formatVersion: number;
  readonly settings: MachineSettings;
  /** Replicated time: the largest `timeMs` seen. */
  readonly timeMs: number;

  /**
   * Applies consecutive entries as one batch: one multi-get for the known keys, then every command sees all writes
   * of the earlier ones. The mutations also hold the applied index, revision, digest and counters in `meta`. The
   * machine's own state (and cache) is already advanced when this returns: the caller must write the mutations
   * before it reads again. Throws InvariantError on undecodable bytes or an unknown command (R58): the member stops.
   * `wantEvents` false (default true) leaves `events` empty: making them is a fifth of the garbage of an apply, and
   * changes nothing else, digest included.
   */
  apply(entries: readonly MachineEntry[], reader: StoreReader, wantEvents?: boolean): Applied;

  /** Books an entry that is not a command batch: advances applied index and digest. */
  applyExternal(rows: ExternalRows): Applied;

  namespaceByName(name: string): NamespaceInfo | undefined;
  namespace(id: NamespaceId): NamespaceInfo | undefined;
  namespaces(): readonly NamespaceInfo[];
  /** Moves whenever a namespace is made or deleted, or its compaction point moves: cheaper to look at than all of them. */
  readonly namespacesVersion: number;
  /** Bytes of live and retained history of all namespaces. */
  readonly historyBytes: number;

  /** A hint: the newest state of this key will be read soon. Those of many keys are fetched together. */
  expectRead(namespace: string, key: Uint8Array): void;
  /** The newest state or a retained revision. Bounded by the settings' reply limits. */
  range(
    namespaceId: NamespaceId,
    operation: RangeOperation,
    reader: StoreReader,
    /** `count` need not go beyond what is answered. Default false. */
    uncounted?: boolean,
  ): RangeResult | Failure;
  /** A transaction without puts and deletes, on the newest state. */
  readTxn(namespaceId: NamespaceId, txn: TxnCommand, reader: StoreReader): TxnResult | Failure;
  lease(namespaceId: NamespaceId, leaseId: LeaseId, reader: StoreReader): LeaseRecord | undefined;
  leaseKeys(namespaceId: NamespaceId, leaseId: LeaseId, reader: StoreReader): Uint8Array[];
  listLeases(namespaceId: NamespaceId, operation: LeaseListOperation, reader: StoreReader): LeaseListResult;
  /** For the session keeper at start and after a snapshot: every lease, in slices. */
  scanLeases(
    after: { readonly namespaceId: NamespaceId; readonly leaseId: LeaseId } | undefined,
    limit: number,
    reader: StoreReader,
  ): readonly LeaseRecord[];

  /**
   * Retained history of a namespace (of a deleted one: none): whole revisions in [from, to], at most about `limit` events (never splits a
   * revision). @returns the events and the revision after the last covered one.
   */
  history(
    request: {
      readonly namespaceId: NamespaceId;
      readonly from: Revision;
      readonly to: Revision;
      readonly limit: number;
    },
    reader: StoreReader,
  ): { readonly events: readonly RevisionEvents[]; readonly next: Revision };

  /** A key's state as of `revision`, for a watch event's `previous`; undefined when not retained. */
  stateAt(
    namespaceId: NamespaceId,
    key: Uint8Array,
    revision: Revision,
    reader: StoreReader,
  ): KeyValue | undefined;

  /**
   * The largest revision whose history may be given up to keep `namespaceId` within age, revisions and bytes;
   * undefined when nothing is due. The leader proposes it as a `retain` command.
   */
  retentionDue(
    namespaceId: NamespaceId,
    retention: RetentionPolicy,
    reader: StoreReader,
  ): Revision | undefined;

  /**
   * One bounded slice of physical compaction, and of the removal of deleted namespaces: local, not replicated, changes nothing that a read can see.
   * @returns the rows to delete; empty and `done` when nothing is left.
   */
  compactSlice(
    reader: StoreReader,
    rowsMax: number,
  ): { readonly mutations: readonly RowMutation[]; readonly done: boolean };
}

/** Each bound absent: not limited by it. */
export interface RetentionPolicy {
  /** Default 1 h. */
  readonly ageMs?: number;
  readonly revisions?: number;
  readonly bytes?: number;
}

export interface LeaseRecord {
  readonly namespaceId: NamespaceId;
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  /** 0: no checkpoint; a new leader counts the full TTL. */
  readonly checkpointMs: number;
  readonly owner: string;
}
