import { assert, assertNever } from "../invariant.ts";
import { applyChange } from "./configuration.ts";
import { Core } from "./core.ts";
import { answerVote, campaign, countVote, electionTimedOut, learnCommit, refusePreVote } from "./election.ts";
import {
  answerDeposedLeader,
  forwardRead,
  handleAppend,
  handleHeartbeat,
  handleReadIndexResponse,
  handleSnapshot,
  heardLeader,
} from "./follower.ts";
import * as leader from "./leader.ts";
import { handleReadIndex, readOnLeader } from "./reads.ts";
import { flush } from "./replication.ts";
import type {
  Append,
  Configuration,
  ConfigurationChange,
  LogIndex,
  MemberId,
  Message,
  ProposalResult,
  RaftInitialState,
  RaftNode,
  RaftOptions,
  RaftStatus,
  Ready,
  Role,
  Term,
} from "./types.ts";
import { NO_MEMBER } from "./types.ts";

const NO_MESSAGES: readonly Message[] = [];
const NO_INDEX = 0 as LogIndex;

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** The door to the core: settles terms, passes each call on to the role's file, and collects what the host has to do. */
export class Node implements RaftNode {
  readonly #core: Core;

  constructor(options: RaftOptions, initial: RaftInitialState) {
    this.#core = new Core(options, initial);
  }

  get role(): Role {
    return this.#core.role;
  }

  get term(): Term {
    return this.#core.term;
  }

  get leader(): MemberId {
    return this.#core.leader;
  }

  get commit(): LogIndex {
    return this.#core.log.commit;
  }

  get leaderCommit(): LogIndex {
    return this.#core.leaderCommit;
  }

  get lastIndex(): LogIndex {
    return this.#core.log.lastIndex;
  }

  get stableIndex(): LogIndex {
    return this.#core.log.stable;
  }

  get firstIndex(): LogIndex {
    return (this.#core.log.startIndex + 1) as LogIndex;
  }

  get logBytes(): number {
    return this.#core.log.bytes;
  }

  get ticks(): number {
    return this.#core.ticks;
  }

  get hasPromised(): boolean {
    return this.#core.hasPromised;
  }

  get quorumContactTick(): number {
    const { role, tracker, ticks, rounds } = this.#core;
    if (role !== "leader") return -1;
    return tracker.isSingleVoter ? ticks : rounds.contactTick;
  }

  tick(): void {
    const core = this.#core;
    core.ticks++;
    core.commitSaveDue = true;
    if (core.role === "leader") {
      leader.tickLeader(core);
      return;
    }
    const { electionTimeoutTicks } = core.options;
    if (core.forwarded.size > 0) {
      core.readsDropped.push(...core.forwarded.expire(core.ticks - electionTimeoutTicks));
    }
    core.electionElapsedTicks++;
    if (core.electionElapsedTicks >= core.electionTimeoutTicks) electionTimedOut(core);
  }

  step(message: Message): void {
    const core = this.#core;
    assert(message.to === core.id && message.from !== core.id, "the message is from another to this member", {
      from: message.from,
      to: message.to,
      self: core.id,
    });
    if (isFromStranger(core, message)) return;
    if (message.kind === "vote-response" || message.kind === "pre-vote-response") learnCommit(core, message);
    if (!settleTerm(core, message)) return;
    switch (message.kind) {
      case "append":
        heardLeader(core, message.from);
        handleAppend(core, message);
        break;
      case "heartbeat":
        heardLeader(core, message.from);
        handleHeartbeat(core, message);
        break;
      case "snapshot":
        heardLeader(core, message.from);
        handleSnapshot(core, message);
        break;
      case "vote":
      case "pre-vote":
        answerVote(core, message);
        break;
      case "vote-response":
      case "pre-vote-response":
        countVote(core, message);
        break;
      case "append-response":
      case "heartbeat-response":
        stepLeader(core, message);
        break;
      case "timeout-now":
        if (core.role === "follower") campaign(core, "transfer");
        break;
      case "read-index":
        handleReadIndex(core, message);
        break;
      case "read-index-response":
        handleReadIndexResponse(core, message);
        break;
      default:
        assertNever(message);
    }
  }

  propose(data: Uint8Array): ProposalResult {
    return leader.propose(this.#core, data);
  }

  proposeConfiguration(change: ConfigurationChange): ProposalResult {
    return leader.proposeConfiguration(this.#core, change);
  }

  readIndex(request: number): void {
    if (this.#core.role === "leader") readOnLeader(this.#core, request);
    else forwardRead(this.#core, request);
  }

  transferLeadership(target: MemberId): void {
    leader.transferLeadership(this.#core, target);
  }

  campaign(): void {
    campaign(this.#core, "pre-vote");
  }

  announceCommit(): void {
    if (this.#core.role === "leader") leader.announceCommit(this.#core);
  }

  forgetLeader(): void {
    if (this.#core.role === "follower") this.#core.setLeader(NO_MEMBER);
  }

  reportUnreachable(id: MemberId): void {
    leader.reportUnreachable(this.#core, id);
  }

  snapshotStarted(id: MemberId, index: LogIndex): void {
    leader.snapshotStarted(this.#core, id, index);
  }

  snapshotFinished(id: MemberId, ok: boolean): void {
    leader.snapshotFinished(this.#core, id, ok);
  }

  hasReady(): boolean {
    const core = this.#core;
    return (
      core.appendDue ||
      core.heartbeatDue ||
      core.messages.length > 0 ||
      needsAppend(core) ||
      core.held.length > 0 ||
      hasDeliverable(core) ||
      core.reads.length > 0 ||
      core.readsDropped.length > 0 ||
      core.snapshotsWanted.length > 0
    );
  }

  ready(): Ready {
    const core = this.#core;
    // Appends leave before, and with, the leader's own write (R4).
    if (core.role === "leader") flush(core);
    const append = takeAppend(core);
    const { messages, reads, readsDropped, snapshotsWanted } = core;
    if (messages.length > 0) core.messages = [];
    if (reads.length > 0) core.reads = [];
    if (readsDropped.length > 0) core.readsDropped = [];
    if (snapshotsWanted.length > 0) core.snapshotsWanted = [];
    const committed = core.pendingSnapshot === undefined ? core.log.deliver(core.options.applyBytesMax) : [];
    core.log.forgetSlices();
    if (append === undefined) return { messages, committed, reads, readsDropped, snapshotsWanted };
    return { messages, append, committed, reads, readsDropped, snapshotsWanted };
  }

  appended(token: number): void {
    const core = this.#core;
    const write = core.log.writes.finish(token);
    core.log.writeFinished(write);
    if (write.snapshotIndex !== 0 && write.snapshotIndex === core.pendingSnapshot?.index) {
      core.pendingSnapshot = undefined;
      core.supersededConfiguration = undefined;
      core.log.restored();
    }
    if (core.role === "leader") leader.ownEntriesDurable(core);
    for (const vote of write.ownVotes) countOwnVote(core, vote);
    if (core.ownVotes.length > 0 && core.isDurable) {
      const votes = core.ownVotes;
      core.ownVotes = [];
      for (const vote of votes) countOwnVote(core, vote);
    }
  }

  applyConfiguration(index: LogIndex, change: ConfigurationChange): Configuration {
    const core = this.#core;
    if (isSuperseded(core, index)) {
      core.supersededConfiguration = applyChange(core.supersededConfiguration ?? core.configuration, change);
      return core.supersededConfiguration;
    }
    const configuration = applyChange(core.configuration, change);
    settleConfiguration(core, index);
    core.tracker.switchTo(configuration, core.log.lastIndex);
    if (core.role === "leader") leader.leadOn(core);
    return configuration;
  }

  refuseConfiguration(index: LogIndex): void {
    const core = this.#core;
    if (isSuperseded(core, index)) return;
    settleConfiguration(core, index);
  }

  applied(index: LogIndex): void {
    const core = this.#core;
    if (index <= core.log.applied || core.pendingSnapshot !== undefined) return;
    const bytes = core.log.appliedTo(index);
    core.uncommittedBytes = Math.max(0, core.uncommittedBytes - bytes);
    leader.leaveJointIfDue(core);
  }

  compact(index: LogIndex): void {
    this.#core.log.compact(index);
  }

  termAt(index: LogIndex): Term | undefined {
    return this.#core.log.termAt(index);
  }

  status(): RaftStatus {
    const core = this.#core;
    const { log, tracker } = core;
    const isLeader = core.role === "leader";
    const everybody = tracker.own === undefined ? tracker.peers : [...tracker.peers, tracker.own];
    return {
      id: core.id,
      role: core.role,
      term: core.term,
      vote: core.vote,
      leader: core.leader,
      firstIndex: this.firstIndex,
      lastIndex: log.lastIndex,
      stableIndex: log.stable,
      commit: log.commit,
      applied: log.applied,
      configuration: tracker.configuration,
      transferTarget: core.transferTarget,
      committedInTerm: core.committedInTerm,
      progress: isLeader ? everybody.map((one) => one.view()).sort((a, b) => a.id - b.id) : [],
      logBytes: log.bytes,
    };
  }
}

/** An answer from somebody who was not asked: removed, perhaps. The leader's answer to a read is told by its number. */
function isFromStranger(core: Core, message: Message): boolean {
  switch (message.kind) {
    case "append-response":
    case "heartbeat-response":
    case "vote-response":
    case "pre-vote-response":
      return core.tracker.get(message.from) === undefined;
    default:
      return false;
  }
}

/**
 * Brings this member's term up to the message's, or answers for it if the message is of the past.
 *
 * @returns whether the message is still to be handled
 */
function settleTerm(core: Core, message: Message): boolean {
  if (message.term === core.term) return true;
  if (message.term < core.term) {
    answerThePast(core, message);
    return false;
  }
  switch (message.kind) {
    case "vote":
    case "pre-vote":
      // While a leader is alive nobody else's campaign is heard, unless the leader ordered it (R13).
      if (core.hearsLeader && !message.transfer) return false;
      if (message.kind === "vote") core.becomeFollower(message.term, NO_MEMBER);
      return true;
    case "pre-vote-response":
      // Granted, it carries the term that was asked for; refused, the refuser's own (R12).
      if (!message.granted) core.becomeFollower(message.term, NO_MEMBER);
      return true;
    case "append":
    case "heartbeat":
    case "snapshot":
      core.becomeFollower(message.term, message.from);
      return true;
    default:
      core.becomeFollower(message.term, NO_MEMBER);
      return true;
  }
}

function answerThePast(core: Core, message: Message): void {
  switch (message.kind) {
    case "append":
    case "heartbeat":
    case "snapshot":
      answerDeposedLeader(core, message.from);
      break;
    case "pre-vote":
      refusePreVote(core, message);
      break;
    default:
      break;
  }
}

function stepLeader(core: Core, message: Message): void {
  const from = core.tracker.get(message.from);
  if (core.role !== "leader" || from === undefined) return;
  if (message.kind === "append-response") leader.handleAppendResponse(core, from, message);
  else if (message.kind === "heartbeat-response") leader.handleHeartbeatResponse(core, from, message);
}

function countOwnVote(core: Core, vote: Parameters<typeof countVote>[1]): void {
  // A pre-vote for oneself asks for the next term; anything else of another term is late.
  const askedFor = vote.kind === "pre-vote-response" ? core.term + 1 : core.term;
  if (vote.term === askedFor) countVote(core, vote);
}

function hasDeliverable(core: Core): boolean {
  return core.pendingSnapshot === undefined && core.log.hasDeliverable(core.options.applyBytesMax);
}

function needsAppend(core: Core): boolean {
  return (
    core.log.hasUnhanded ||
    core.isVoteUnsaved ||
    core.snapshotToPersist !== undefined ||
    core.commitSyncDue ||
    (core.commitSaveDue && core.log.commit !== core.saved.commit)
  );
}

/**
 * What must become durable, with the answers that wait for it. Entries never become durable before the commit index
 * that was known when they arrived: else a member that restarts could hold the change after a committed change and
 * campaign, not knowing the first to be committed, by a configuration two changes old (R18).
 */
function takeAppend(core: Core): Append | undefined {
  const { log, saved } = core;
  if (!needsAppend(core)) {
    if (core.held.length === 0) return undefined;
    if (log.writes.empty) {
      // All that the answers rest on is on disk.
      for (const message of core.held) core.messages.push(message);
      core.held = [];
      return undefined;
    }
  }
  const snapshot = core.snapshotToPersist;
  const append: Writable<Append> = {
    token: log.writes.nextToken(),
    mustSync: log.hasUnhanded || core.isVoteUnsaved || core.commitSyncDue || snapshot !== undefined,
    entries: log.handOut(),
    held: core.held.length > 0 ? core.held : NO_MESSAGES,
  };
  if (core.isVoteUnsaved || core.commitSyncDue || log.commit !== saved.commit) {
    append.hardState = { term: core.term, vote: core.vote, commit: log.commit };
  }
  if (snapshot !== undefined) append.snapshot = snapshot;
  log.writes.begin({
    token: append.token,
    stableIndex: log.handed,
    snapshotIndex: snapshot?.index ?? NO_INDEX,
    ownVotes: core.ownVotes,
  });
  saved.term = core.term;
  saved.vote = core.vote;
  saved.commit = log.commit;
  core.commitSaveDue = false;
  core.commitSyncDue = false;
  core.snapshotToPersist = undefined;
  if (core.held.length > 0) core.held = [];
  // Always another array, an empty one too: votes cast from now on do not belong to this write.
  core.ownVotes = [];
  return append;
}

/** Handed out before a snapshot was accepted that is not installed yet. */
function isSuperseded(core: Core, index: LogIndex): boolean {
  return core.pendingSnapshot !== undefined && index <= core.pendingSnapshot.index;
}

/** The host decided on a change that was handed out to be applied. */
function settleConfiguration(core: Core, index: LogIndex): void {
  assert(index > core.log.applied && index <= core.log.delivered, "the change was handed out to be applied", {
    index,
    applied: core.log.applied,
    delivered: core.log.delivered,
  });
  core.log.settleConfiguration(index);
  core.commitSyncDue = true;
}
