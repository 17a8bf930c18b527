/** What a leader does when its members answer, when time passes, and when it is asked to propose. */
import { assert } from "../invariant.ts";
import { encodeConfigurationChange } from "./configuration-codec.ts";
import { ConfigurationError, evaluate } from "./configuration.ts";
import type { Core } from "./core.ts";
import { confirmReads, readsMayStart } from "./reads.ts";
import type { Progress } from "./progress.ts";
import { beginRetirement, isRetiring, retire, retireIfKnown } from "./retirement.ts";
import type {
  AppendResponse,
  ConfigurationChange,
  Entry,
  EntryKind,
  HeartbeatResponse,
  LogIndex,
  MemberId,
  ProposalResult,
} from "./types.ts";
import { NO_MEMBER } from "./types.ts";

const NO_DATA = new Uint8Array(0);

const LEAVE_JOINT: ConfigurationChange = { transition: "auto", steps: [], context: NO_DATA };

/** The election is won. An empty entry of the new term commits what earlier terms left behind (R19). */
export function startLeading(core: Core): void {
  core.becomeLeader();
  appendEntry(core, "normal", NO_DATA);
}

/** What was committed and has not been told yet leaves now. */
export function announceCommit(core: Core): void {
  if (!core.options.lazyCommit) return;
  core.announceDue = true;
  core.appendDue = true;
}

/** What the passing of time asks of a leader. */
export function tickLeader(core: Core): void {
  core.heartbeatElapsedTicks++;
  core.electionElapsedTicks++;
  announceCommit(core);
  if (core.electionElapsedTicks >= core.options.electionTimeoutTicks) {
    core.electionElapsedTicks = 0;
    if (isRetiring(core)) {
      retire(core);
      return;
    }
    if (!core.tracker.checkActivity()) {
      // Cut off from its quorum: a new leader may already be at work (R13).
      core.becomeFollower(core.term, NO_MEMBER);
      return;
    }
    core.transferTarget = NO_MEMBER;
  }
  if (core.heartbeatElapsedTicks >= core.options.heartbeatTicks) {
    core.heartbeatElapsedTicks = 0;
    core.heartbeatDue = true;
    // A leave that could not be proposed, for a transfer under way, say, is tried again.
    leaveJointIfDue(core);
  }
}

export function propose(core: Core, data: Uint8Array): ProposalResult {
  if (core.role !== "leader") return { ok: false, reason: "not-leader" };
  if (core.transferTarget !== NO_MEMBER || isRetiring(core)) return { ok: false, reason: "transferring" };
  const after = core.uncommittedBytes + data.length;
  // One proposal always fits, or one larger than the bound could never pass (R26).
  if (core.uncommittedBytes > 0 && data.length > 0 && after > core.options.uncommittedBytesMax) {
    return { ok: false, reason: "too-much-uncommitted" };
  }
  return accept(core, "normal", data);
}

/** R35, R37, R40. What is refused here leaves no trace; what is accepted is judged again when it is applied. */
export function proposeConfiguration(core: Core, change: ConfigurationChange): ProposalResult {
  if (core.role !== "leader") return { ok: false, reason: "not-leader" };
  if (core.transferTarget !== NO_MEMBER || isRetiring(core)) return { ok: false, reason: "transferring" };
  if (core.pendingConfigurationIndex > core.log.applied || !core.committedInTerm) {
    return { ok: false, reason: "change-pending" };
  }
  const outcome = evaluate(core.configuration, change);
  if (outcome instanceof ConfigurationError) {
    const reason = outcome.code === "change-pending" ? "change-pending" : "invalid-change";
    return { ok: false, reason };
  }
  return acceptChange(core, change);
}

/** The leader leaves a joint configuration by itself, one of an earlier leader too (R38). */
export function leaveJointIfDue(core: Core): void {
  if (core.role !== "leader" || !core.isLeavingDue || core.transferTarget !== NO_MEMBER) return;
  if (core.pendingConfigurationIndex > core.log.applied || !core.committedInTerm) return;
  acceptChange(core, LEAVE_JOINT);
}

function acceptChange(core: Core, change: ConfigurationChange): ProposalResult {
  const accepted = accept(core, "configuration", encodeConfigurationChange(change));
  core.pendingConfigurationIndex = core.log.lastIndex;
  return accepted;
}

function accept(core: Core, kind: EntryKind, data: Uint8Array): ProposalResult {
  core.uncommittedBytes += data.length;
  const { term, index } = appendEntry(core, kind, data);
  return { ok: true, term, index };
}

function appendEntry(core: Core, kind: EntryKind, data: Uint8Array): Entry {
  const entry: Entry = { term: core.term, index: (core.log.lastIndex + 1) as LogIndex, kind, data };
  core.log.append(entry);
  core.appendDue = true;
  return entry;
}

/** The leader's own entries are on disk up to `stable`; only now do they count (R3). */
export function ownEntriesDurable(core: Core): void {
  const { own } = core.tracker;
  if (own?.acknowledge(core.log.stable) === true) advanceCommit(core);
}

/**
 * A leader commits an entry of its own term that a quorum holds durably, and with it all before it (section 5.4.2 of
 * the paper: an older term's entry on a majority can still be overwritten).
 */
export function advanceCommit(core: Core): void {
  const index = core.tracker.quorumMatch();
  if (index <= core.log.commit || core.log.termAt(index) !== core.term) return;
  const wasCommittedInTerm = core.committedInTerm;
  core.log.commitTo(index);
  core.appendDue = true;
  if (!wasCommittedInTerm) readsMayStart(core);
}

export function handleAppendResponse(core: Core, from: Progress, message: AppendResponse): void {
  from.recentActive = true;
  if (message.rejected) {
    handleRejection(core, from, message);
    return;
  }
  assert(message.index <= core.log.lastIndex, "nobody acknowledges what was never sent", {
    from: from.id,
    index: message.index,
    last: core.log.lastIndex,
  });
  const news = from.acknowledge(message.index);
  // A caught-up follower that is being probed has nothing new to say and is found again all the same (R24).
  if (!news && !(from.state === "probe" && from.match === message.index)) return;
  switch (from.state) {
    case "probe":
      from.becomeReplicate();
      break;
    case "snapshot":
      // Back within reach of the log, by this snapshot or by whatever means (R30).
      if (from.match >= core.log.startIndex) from.becomeReplicate();
      break;
    case "replicate":
      from.inflights.freeUpTo(message.index);
      break;
  }
  if (message.index > core.log.commit) advanceCommit(core);
  if (from.next <= core.log.lastIndex || from.canLearnCommit(core.log.commit)) core.appendDue = true;
  hurryTransfer(core, from);
}

function handleRejection(core: Core, from: Progress, message: AppendResponse): void {
  // Skip every index at which this log's term is newer than the follower's: they cannot agree there (R22).
  const hint =
    message.hintTerm === 0
      ? message.hintIndex
      : core.log.lastIndexOfTermUpTo(message.hintIndex, message.hintTerm);
  if (from.refuse(message.index, hint)) core.appendDue = true;
}

export function handleHeartbeatResponse(core: Core, from: Progress, message: HeartbeatResponse): void {
  from.recentActive = true;
  from.probeSent = false;
  if (message.readRound > from.round && message.readRound <= core.rounds.round) {
    from.round = message.readRound;
    if (!from.learner) confirmReads(core);
    retireIfKnown(core);
    if (core.role !== "leader") return;
  }
  // The answer shows that the peer is there: find out whether appends got lost, even if the window is full (R24).
  if (from.match < core.log.lastIndex || from.state === "probe") {
    from.emptyDue = true;
    core.appendDue = true;
  }
}

export function transferLeadership(core: Core, target: MemberId): void {
  const progress = core.tracker.get(target);
  if (core.role !== "leader" || isRetiring(core)) return;
  if (target === core.id || target === core.transferTarget) return;
  if (progress === undefined || !core.configuration.voters.includes(target)) return;
  core.transferTarget = target;
  // It has one election timeout to succeed (R51).
  core.electionElapsedTicks = 0;
  if (progress.match < core.log.lastIndex) {
    // Should what it lacks have been lost on its way, an empty append finds out at once.
    progress.emptyDue = true;
    core.appendDue = true;
  }
  hurryTransfer(core, progress);
}

/** The target may campaign once it holds everything; before, it would lose (R51). */
function hurryTransfer(core: Core, progress: Progress): void {
  if (progress.id !== core.transferTarget || progress.match !== core.log.lastIndex) return;
  core.send({ kind: "timeout-now", from: core.id, to: progress.id, term: core.term });
}

/** A new configuration is in force (R34). A leader that is no voter of it any more is on its way out (R39). */
export function leadOn(core: Core): void {
  if (!core.tracker.isVoter) beginRetirement(core);
  if (!core.configuration.voters.includes(core.transferTarget)) core.transferTarget = NO_MEMBER;
  // The quorum may have become smaller; newcomers want their first probe.
  advanceCommit(core);
  confirmReads(core);
  core.appendDue = true;
}

export function reportUnreachable(core: Core, id: MemberId): void {
  const progress = core.tracker.get(id);
  if (core.role === "leader" && progress?.state === "replicate" && id !== core.id) progress.becomeProbe();
}

export function snapshotStarted(core: Core, id: MemberId, index: LogIndex): void {
  const progress = core.tracker.get(id);
  if (core.role !== "leader" || progress === undefined || id === core.id) return;
  if (progress.state === "probe") progress.becomeSnapshot(index);
}

/** In both cases the next append waits for a sign of life: the state may still be on its way (R30). */
export function snapshotFinished(core: Core, id: MemberId, ok: boolean): void {
  const progress = core.tracker.get(id);
  if (core.role !== "leader" || progress?.state !== "snapshot") return;
  if (!ok) progress.forgetSnapshot();
  progress.becomeProbe();
  progress.probeSent = true;
}
