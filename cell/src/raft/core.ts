import { assert } from "../invariant.ts";
import { isJoint } from "./configuration.ts";
import { RaftLog } from "./log.ts";
import { ForwardedReads, ReadRounds } from "./read-index.ts";
import { Tracker } from "./tracker.ts";
import type {
  Configuration,
  LogIndex,
  MemberId,
  Message,
  RaftInitialState,
  RaftOptions,
  ReadState,
  Role,
  SnapshotMetadata,
  Term,
  VoteResponse,
} from "./types.ts";
import { NO_MEMBER } from "./types.ts";

/** What was last handed to the host to be persisted. */
interface SavedState {
  term: Term;
  vote: MemberId;
  commit: LogIndex;
}

/**
 * The state of one member and the steps that every role shares. The roles live beside it: `election.ts`,
 * `follower.ts`, `leader.ts`; `node.ts` is the door.
 */
export class Core {
  readonly options: RaftOptions;
  readonly id: MemberId;
  readonly log: RaftLog;
  readonly tracker: Tracker;

  term: Term;
  vote: MemberId;
  role: Role = "follower";
  leader: MemberId = NO_MEMBER;

  /** Units of logical time since the start of the process. */
  ticks = 0;
  /** Since a follower heard of its leader, or a candidate began, or a leader last checked its quorum. */
  electionElapsedTicks = 0;
  heartbeatElapsedTicks = 0;
  /** Uniform in [T, 2T), drawn anew for every term and campaign (R10). */
  electionTimeoutTicks = 0;

  // Leader only.
  transferTarget: MemberId = NO_MEMBER;
  /** No change may be proposed until this index is applied (R35). */
  pendingConfigurationIndex: LogIndex = 0 as LogIndex;
  /** The first entry of this leader's term: committed, it makes reads and changes possible (R40, R46). */
  termStartIndex: LogIndex = 0 as LogIndex;
  /** Data bytes proposed in this term and not yet applied (R26). */
  uncommittedBytes = 0;
  /** The largest commit index that a leader has told. */
  leaderCommit: LogIndex = 0 as LogIndex;
  /** The leader was removed; it goes once a quorum knows that this index is committed. 0: it was not. */
  retirementIndex: LogIndex = 0 as LogIndex;
  readonly rounds: ReadRounds = new ReadRounds();
  /** Leaves with the next `ready()`: all of a turn's appends, and all its heartbeats, become one. */
  appendDue = false;
  /** A commit index may leave without entries. */
  announceDue = false;
  heartbeatDue = false;

  // Follower only.
  readonly forwarded: ForwardedReads;
  /** It granted a vote or a pre-vote since it last had a leader, or lost sight of one. */
  hasPromised = false;
  /** Accepted and not yet installed. Until then nothing is delivered and nobody campaigns (R8, R17). */
  pendingSnapshot: SnapshotMetadata | undefined;
  /**
   * Until it is installed the host may still be applying entries handed out before. They change this configuration,
   * which is what a crash would fall back to, and not the snapshot's.
   */
  supersededConfiguration: Configuration | undefined;
  /** The part of it that `ready()` has yet to hand out. */
  snapshotToPersist: SnapshotMetadata | undefined;

  // What the next Ready takes along.
  messages: Message[] = [];
  /** Answers that must not leave before the present state is durable (R1). */
  held: Message[] = [];
  ownVotes: VoteResponse[] = [];
  reads: ReadState[] = [];
  readsDropped: number[] = [];
  snapshotsWanted: MemberId[] = [];
  readonly saved: SavedState;
  /** A commit index that nothing else carries to disk is written at most once a tick (R2). */
  commitSaveDue = false;
  /** A change was settled: who loses sight of that by a crash might count votes by the configuration before it. */
  commitSyncDue = false;

  constructor(options: RaftOptions, initial: RaftInitialState) {
    const { hardState, configuration, logStart } = initial;
    assert(
      configuration.voters.length === 0 || logStart.index >= 1,
      "a member with a configuration starts behind a snapshot, made up by the founder if need be (R45)",
      { logStart: logStart.index },
    );
    this.options = options;
    this.id = options.id;
    this.log = new RaftLog(initial);
    this.tracker = new Tracker(options, configuration, this.log.lastIndex);
    this.term = hardState?.term ?? this.log.lastTerm;
    this.vote = hardState?.vote ?? NO_MEMBER;
    this.saved = {
      term: hardState?.term ?? (0 as Term),
      vote: this.vote,
      commit: hardState?.commit ?? (0 as LogIndex),
    };
    assert(this.term >= this.log.lastTerm, "the persisted term is not behind the log", {
      term: this.term,
      lastTerm: this.log.lastTerm,
    });
    this.forwarded = new ForwardedReads(options.random);
    this.drawElectionTimeout();
  }

  get configuration(): Configuration {
    return this.tracker.configuration;
  }

  /** R17. */
  get isPromotable(): boolean {
    return this.tracker.isVoter && this.pendingSnapshot === undefined;
  }

  /** An entry of this leader's term is committed. */
  get committedInTerm(): boolean {
    return this.role === "leader" && this.log.commit >= this.termStartIndex;
  }

  /** Term or vote differ from what was handed out to be persisted. */
  get isVoteUnsaved(): boolean {
    return this.term !== this.saved.term || this.vote !== this.saved.vote;
  }

  /** Everything a vote or an acknowledgement could rest on is on disk. */
  get isDurable(): boolean {
    return (
      this.log.writes.empty &&
      !this.log.hasUnhanded &&
      !this.isVoteUnsaved &&
      this.snapshotToPersist === undefined
    );
  }

  /**
   * Appends, heartbeats and questions leave at once. Answers that tell of persisted state wait for it, refusals
   * included, since they tell of the term (R1).
   */
  send(message: Message): void {
    assert(message.to !== this.id, "no message to oneself", { kind: message.kind });
    if (
      message.kind === "append-response" ||
      message.kind === "vote-response" ||
      message.kind === "pre-vote-response"
    ) {
      this.held.push(message);
    } else {
      this.messages.push(message);
    }
  }

  becomeFollower(term: Term, leader: MemberId): void {
    this.#reset(term);
    this.role = "follower";
    this.leader = leader;
    if (leader !== NO_MEMBER) this.hasPromised = false;
  }

  /** Neither term nor vote change: that is the point of asking first (thesis section 9.6). */
  becomePreCandidate(): void {
    assert(this.role !== "leader", "a leader does not campaign");
    this.role = "pre-candidate";
    this.tracker.clearVotes();
    this.setLeader(NO_MEMBER);
    this.electionElapsedTicks = 0;
    this.drawElectionTimeout();
  }

  becomeCandidate(): void {
    assert(this.role !== "leader", "a leader does not campaign");
    this.#reset((this.term + 1) as Term);
    this.role = "candidate";
    this.vote = this.id;
  }

  becomeLeader(): void {
    assert(this.role === "candidate", "only a candidate becomes leader", { role: this.role });
    this.#reset(this.term);
    this.role = "leader";
    this.leader = this.id;
    // A change of an earlier leader may lie anywhere in the tail: wait for all of it (R35).
    this.pendingConfigurationIndex = this.log.lastIndex;
    this.termStartIndex = (this.log.lastIndex + 1) as LogIndex;
  }

  /** A follower learns of its leader, or loses sight of it. Reads on their way to another one are given up. */
  setLeader(leader: MemberId): void {
    if (leader === this.leader) return;
    this.leader = leader;
    this.hasPromised = false;
    this.dropForwardedReads();
  }

  dropForwardedReads(): void {
    if (this.forwarded.size > 0) this.readsDropped.push(...this.forwarded.reset());
  }

  drawElectionTimeout(): void {
    const base = this.options.electionTimeoutTicks;
    const extra = Math.floor(this.options.random() * base);
    assert(extra >= 0 && extra < base, "random() lies in [0, 1)", { extra });
    this.electionTimeoutTicks = base + extra;
  }

  /** A live leader was heard of within the shortest election timeout: others' campaigns are ignored (R13). */
  get hearsLeader(): boolean {
    return this.leader !== NO_MEMBER && this.electionElapsedTicks < this.options.electionTimeoutTicks;
  }

  /** Joint, and to be left without anybody asking (R38). */
  get isLeavingDue(): boolean {
    return isJoint(this.configuration) && this.configuration.autoLeave;
  }

  /** A new term, a lost campaign or a won one: nothing of what was known for the role before holds on. */
  #reset(term: Term): void {
    assert(term >= this.term, "terms never fall", { term, current: this.term });
    if (term !== this.term) {
      this.term = term;
      this.vote = NO_MEMBER;
    }
    this.leader = NO_MEMBER;
    this.electionElapsedTicks = 0;
    this.heartbeatElapsedTicks = 0;
    this.drawElectionTimeout();
    this.transferTarget = NO_MEMBER;
    this.pendingConfigurationIndex = 0 as LogIndex;
    this.termStartIndex = 0 as LogIndex;
    this.uncommittedBytes = 0;
    this.retirementIndex = 0 as LogIndex;
    this.appendDue = false;
    this.announceDue = false;
    this.heartbeatDue = false;
    this.snapshotsWanted = [];
    for (const read of this.rounds.reset()) if (read.from === this.id) this.readsDropped.push(read.request);
    this.dropForwardedReads();
    this.tracker.clearVotes();
    this.tracker.resetProgress(this.log.stable, this.log.lastIndex);
  }
}
