/**
 * The words of the consensus core, as in Ongaro's thesis. The core is pure: it does no I/O, reads no clock and
 * draws no randomness of its own. Its host calls {@link RaftNode} and carries out what {@link Ready} says.
 */

declare const brand: unique symbol;

export type Term = number & { readonly [brand]: "Term" };
export type LogIndex = number & { readonly [brand]: "LogIndex" };
/** A member's id: positive, assigned by the cell, never reused (R42). 0 stands for "none". */
export type MemberId = number & { readonly [brand]: "MemberId" };

export const NO_MEMBER: MemberId = 0 as MemberId;

export type EntryKind = "normal" | "configuration";

/** One entry of the log. `data` is encoded once by the proposer; disk and peers get the same bytes. */
export interface Entry {
  readonly term: Term;
  readonly index: LogIndex;
  readonly kind: EntryKind;
  readonly data: Uint8Array;
}

/** What must survive a crash besides the entries. */
export interface HardState {
  readonly term: Term;
  /** {@link NO_MEMBER}: no vote cast in this term. */
  readonly vote: MemberId;
  /** May lag what was applied (R2). */
  readonly commit: LogIndex;
}

/**
 * The membership as of some applied index. Exact under save and restore (R32). All lists ascend.
 * `outgoing` non-empty: a joint configuration, decisions need a majority of `voters` and one of `outgoing`.
 */
export interface Configuration {
  readonly voters: readonly MemberId[];
  readonly outgoing: readonly MemberId[];
  readonly learners: readonly MemberId[];
  /** Voters of `outgoing` that become learners when the joint configuration is left. */
  readonly learnersNext: readonly MemberId[];
  /** The leader leaves the joint configuration by itself. */
  readonly autoLeave: boolean;
}

export type ConfigurationStep =
  | { readonly kind: "add-voter"; readonly id: MemberId }
  | { readonly kind: "add-learner"; readonly id: MemberId }
  | { readonly kind: "remove"; readonly id: MemberId };

/**
 * A proposed change. No steps: leave the joint configuration.
 * `auto`: simple when at most one voter changes, else joint with automatic leave. `joint-explicit`: stays joint
 * until a change without steps is proposed.
 * `context` is opaque to the core (the cell keeps names, incarnations and the planned-on index there).
 */
export interface ConfigurationChange {
  readonly transition: "auto" | "joint-implicit" | "joint-explicit";
  readonly steps: readonly ConfigurationStep[];
  readonly context: Uint8Array;
}

/** What a snapshot of the state machine says about itself; the data travels outside the core. */
export interface SnapshotMetadata {
  readonly index: LogIndex;
  readonly term: Term;
  /** As of `index`, never later or uncommitted (R32). */
  readonly configuration: Configuration;
}

interface Addressed {
  readonly from: MemberId;
  readonly to: MemberId;
  /** The sender's term; a pre-vote carries the term it asks for (R12). */
  readonly term: Term;
}

export interface AppendMessage extends Addressed {
  readonly kind: "append";
  readonly prevIndex: LogIndex;
  readonly prevTerm: Term;
  readonly entries: readonly Entry[];
  readonly commit: LogIndex;
}

export interface AppendResponse extends Addressed {
  readonly kind: "append-response";
  /** Accepted: the last index known to match. Rejected: the refused `prevIndex`. */
  readonly index: LogIndex;
  readonly rejected: boolean;
  /** With a rejection: where to try next, and the term there (R22). */
  readonly hintIndex: LogIndex;
  readonly hintTerm: Term;
}

export interface HeartbeatMessage extends Addressed {
  readonly kind: "heartbeat";
  /** min(leader's commit, match of the receiver) (R9). */
  readonly commit: LogIndex;
  /**
   * The number of this heartbeat's round: made by the leader, rising with every round of its term, whether reads wait
   * or not. An answer confirms every read that arrived before the round left (R47).
   */
  readonly readRound: number;
}

export interface HeartbeatResponse extends Addressed {
  readonly kind: "heartbeat-response";
  readonly readRound: number;
}

export interface VoteMessage extends Addressed {
  readonly kind: "vote" | "pre-vote";
  readonly lastIndex: LogIndex;
  readonly lastTerm: Term;
  /** The campaign was ordered by the leader: voters with a live leader do not ignore it (R13). */
  readonly transfer: boolean;
}

export interface VoteResponse extends Addressed {
  readonly kind: "vote-response" | "pre-vote-response";
  readonly granted: boolean;
  /**
   * With a refusal: an entry that the refuser knows to be committed. A candidate that holds it learns so. It frees a
   * member that does not know it is the only one left of a joint configuration from members that were removed and
   * hold longer logs. Without it (an older wire format) such a member waits for a human.
   */
  readonly committed?: { readonly index: LogIndex; readonly term: Term };
}

/**
 * To the follower: install this state. The hosts make this message: the data travels over a connection of theirs
 * first, then the receiving host steps it with the term the sender led in when it started. When the next
 * {@link Ready.append} carries no `snapshot`, the core had no use for the state and the data is discarded.
 */
export interface SnapshotMessage extends Addressed {
  readonly kind: "snapshot";
  readonly snapshot: SnapshotMetadata;
}

export interface TimeoutNowMessage extends Addressed {
  readonly kind: "timeout-now";
}

/** A follower asks the leader for a read index; `request` is the follower's own number. */
export interface ReadIndexMessage extends Addressed {
  readonly kind: "read-index";
  readonly request: number;
}

export interface ReadIndexResponse extends Addressed {
  readonly kind: "read-index-response";
  readonly request: number;
  readonly index: LogIndex;
}

export type Message =
  | AppendMessage
  | AppendResponse
  | HeartbeatMessage
  | HeartbeatResponse
  | VoteMessage
  | VoteResponse
  | SnapshotMessage
  | TimeoutNowMessage
  | ReadIndexMessage
  | ReadIndexResponse;

export type Role = "follower" | "pre-candidate" | "candidate" | "leader";

/** Something the host must make durable, in the order it was handed out (one FIFO append lane, R5). */
export interface Append {
  /** Hand back to {@link RaftNode.appended} once durable. Ascends. */
  readonly token: number;
  /** Present when term, vote or commit changed. */
  readonly hardState?: HardState;
  /** Term, vote or entries changed: must be fsynced before `held` leaves. A commit-only change need not be (R2). */
  readonly mustSync: boolean;
  /**
   * Install before `entries`: replaces the whole log (R31). Committed entries handed out earlier and not yet applied
   * are superseded: they may go on being applied until the state is installed, but not after. Report the append once
   * the state is installed and its marker durable: it then counts as applied.
   */
  readonly snapshot?: SnapshotMetadata;
  /**
   * Drop everything from the first entry's index on, then append (R7). May be empty: the append then only holds
   * messages back until the appends before it are durable.
   */
  readonly entries: readonly Entry[];
  /** Leave only once this append is durable (R1). Never addressed to this member: the core keeps those. */
  readonly held: readonly Message[];
}

/** A confirmed linearizable read: serve once `index` is applied. `request` is the number the host gave. */
export interface ReadState {
  readonly request: number;
  readonly index: LogIndex;
}

/** What the host has to do. Everything in it is the host's; the core does not touch it again. */
export interface Ready {
  /** May leave at once, in parallel with the append (R4). */
  readonly messages: readonly Message[];
  readonly append?: Append;
  /** Committed and locally durable (W13), in order, each exactly once. Bounded by `applyBytesMax` outstanding. */
  readonly committed: readonly Entry[];
  readonly reads: readonly ReadState[];
  /**
   * Read requests the core gave up (leader lost, term changed): the host retries with a new number or fails them.
   */
  readonly readsDropped: readonly number[];
  /** Peers that need entries the log no longer has: stream them the state, then report (R29, R30). */
  readonly snapshotsWanted: readonly MemberId[];
}

export type ProposalRefusal =
  | "not-leader"
  /** A leadership transfer is under way (R51), or the leader was removed and is about to step down (R39). */
  | "transferring"
  /** The uncommitted-size bound (R26). */
  | "too-much-uncommitted"
  /** R35: a change is un-applied, or joint/leave do not fit, or (R40) nothing of this term is committed. */
  | "change-pending"
  | "invalid-change";

export type ProposalResult =
  | { readonly ok: true; readonly term: Term; readonly index: LogIndex }
  | { readonly ok: false; readonly reason: ProposalRefusal };

/** How far one member is, as the leader sees it. */
export interface ProgressView {
  readonly id: MemberId;
  readonly state: "probe" | "replicate" | "snapshot";
  readonly match: LogIndex;
  readonly next: LogIndex;
  readonly recentActive: boolean;
  readonly learner: boolean;
  /** Index of the state being streamed to it; 0 unless `state` is `snapshot`. */
  readonly pendingSnapshot: LogIndex;
}

export interface RaftStatus {
  readonly id: MemberId;
  readonly role: Role;
  readonly term: Term;
  readonly vote: MemberId;
  /** {@link NO_MEMBER}: none known. */
  readonly leader: MemberId;
  readonly firstIndex: LogIndex;
  readonly lastIndex: LogIndex;
  readonly stableIndex: LogIndex;
  readonly commit: LogIndex;
  readonly applied: LogIndex;
  readonly configuration: Configuration;
  readonly transferTarget: MemberId;
  /** On the leader: an entry of its own term is committed, so reads and changes may go (R40, R46). */
  readonly committedInTerm: boolean;
  /** Empty unless leader. */
  readonly progress: readonly ProgressView[];
  /** Bytes of entries held in memory. */
  readonly logBytes: number;
}

export interface RaftOptions {
  readonly id: MemberId;
  /** Base election timeout T; each is drawn uniformly from [T, 2T) (R10). Default 10. */
  readonly electionTimeoutTicks: number;
  /** Default 1. */
  readonly heartbeatTicks: number;
  /** Seeded uniform generator in [0, 1). */
  readonly random: () => number;
  /** Soft bound of one append message; at least one entry always goes (R25). Default 1 MiB. */
  readonly appendBytesMax: number;
  /** Append messages in flight to one peer. Default 256. */
  readonly inflightMessagesMax: number;
  /** Bytes in flight to one peer; at least `appendBytesMax`. Default 16 MiB. */
  readonly inflightBytesMax: number;
  /** Bytes of data proposed in this leader's term and not yet applied by it (R26). Default 64 MiB. */
  readonly uncommittedBytesMax: number;
  /** Bytes handed out in `Ready.committed` and not yet reported applied. Default 16 MiB. */
  readonly applyBytesMax: number;
  /**
   * A commit index that moved alone does not leave at once: it rides with the next append, and leaves at the next tick
   * or at {@link RaftNode.announceCommit} at the latest. Saves a message and an answer for each entry and follower,
   * for followers that apply a little later. Default false.
   */
  readonly lazyCommit: boolean;
}

/** Where a restarted (or fresh) member stands. */
export interface RaftInitialState {
  /** Absent: fresh disk. */
  readonly hardState?: HardState;
  /**
   * The log begins after this index: the newest snapshot marker, or where the log was truncated to. A founder starts
   * behind a made-up snapshot at {1, 1} that holds its configuration (R45), so that whoever joins, starting at {0, 0}
   * with an empty configuration, is always brought in by a snapshot and never replays changes onto nothing.
   */
  readonly logStart: { readonly index: LogIndex; readonly term: Term };
  /** Contiguous from `logStart.index + 1`. */
  readonly entries: readonly Entry[];
  /** What the state machine holds durably or will re-apply from: entries at or below it are not handed out again. */
  readonly applied: LogIndex;
  /** As of `applied` (R55). */
  readonly configuration: Configuration;
}

/**
 * The host's side of the contract (R52–R60):
 * 1. One mailbox: never call back into the node from within its own call.
 * 2. After any input call `ready()` until `hasReady()` is false; send `messages`, start the append, then apply.
 * 3. `appended(token)` in hand-out order once durable; then send `held`.
 * 4. For each committed entry in order: apply it; a `configuration` entry goes through
 *    `applyConfiguration` (or `refuseConfiguration`) *before* `applied(index)`.
 */
export interface RaftNode {
  readonly role: Role;
  readonly term: Term;
  /** {@link NO_MEMBER}: none known. */
  readonly leader: MemberId;
  readonly commit: LogIndex;
  /** The largest commit index that a leader has told since this member started. */
  readonly leaderCommit: LogIndex;
  readonly lastIndex: LogIndex;
  /** Durable here up to this index. */
  readonly stableIndex: LogIndex;
  /** Index of the oldest entry in memory; one above {@link lastIndex} when there is none. */
  readonly firstIndex: LogIndex;
  /** Bytes of entries held in memory. */
  readonly logBytes: number;
  /** How often {@link tick} was called. */
  readonly ticks: number;
  /**
   * On the leader: the value of {@link ticks} when the newest heartbeat round left that a (joint) quorum has answered;
   * -1 when none was in this term, and on everybody else. With a single voter it is the current tick.
   */
  readonly quorumContactTick: number;
  /** One unit of logical time. The host coalesces missed ticks (R57). */
  tick(): void;
  /** A message from a peer. Unknown senders' responses are ignored (R28). */
  step(message: Message): void;
  propose(data: Uint8Array): ProposalResult;
  proposeConfiguration(change: ConfigurationChange): ProposalResult;
  /** Ask for a linearizable read point; answered in `Ready.reads` or `Ready.readsDropped`. On a follower it is forwarded. */
  readIndex(request: number): void;
  /** Leader only; ignored otherwise (R51). */
  transferLeadership(target: MemberId): void;
  /** Campaign now, with pre-vote. Nothing happens on a member that may not campaign (R17, R18). */
  campaign(): void;
  /**
   * Granted a vote or a pre-vote since it last had a leader or lost sight of one: somebody is at work on the election,
   * and who has no better reason than that the leader is gone only gets in the way.
   */
  readonly hasPromised: boolean;
  /** Follower only: drop the leader, keep the term, so that pre-votes are granted (R50). */
  forgetLeader(): void;
  /** With `lazyCommit`: tell the followers now. No-op on a follower. */
  announceCommit(): void;
  /** The transport lost this peer: fall back to probing (R24). */
  reportUnreachable(id: MemberId): void;
  /** The host started streaming the state at `index` to a peer. Ignored unless leader. */
  snapshotStarted(id: MemberId, index: LogIndex): void;
  /** Must be called for every start, on every way it can end (R30). */
  snapshotFinished(id: MemberId, ok: boolean): void;
  hasReady(): boolean;
  ready(): Ready;
  appended(token: number): void;
  /**
   * The entry at `index` is a configuration change and the state machine accepts it.
   *
   * @returns the new configuration
   * @throws ConfigurationError when it does not fit the configuration in force; nothing has changed, and the host must
   * {@link refuseConfiguration} it instead. Better: ask `validateChange` first.
   */
  applyConfiguration(index: LogIndex, change: ConfigurationChange): Configuration;
  /** The state machine vetoed it from replicated state (R36). */
  refuseConfiguration(index: LogIndex): void;
  applied(index: LogIndex): void;
  /** Drop entries up to and including `index` (at most `applied`) from memory; the host keeps W9 and R33. */
  compact(index: LogIndex): void;
  /** The term at `index`, or undefined when it is outside the log. */
  termAt(index: LogIndex): Term | undefined;
  status(): RaftStatus;
}
