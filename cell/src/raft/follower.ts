/** What a member does with the words of its leader (thesis sections 3.5 and 5). */
import { assert } from "../invariant.ts";
import { describeFlaw, isMember } from "./configuration.ts";
import type { Core } from "./core.ts";
import type {
  AppendMessage,
  HeartbeatMessage,
  LogIndex,
  MemberId,
  ReadIndexResponse,
  SnapshotMessage,
  Term,
} from "./types.ts";
import { NO_MEMBER } from "./types.ts";

/** A message that only the leader of the present term can have sent. */
export function heardLeader(core: Core, leader: MemberId): void {
  assert(core.role !== "leader", "one term has one leader", { term: core.term, self: core.id, leader });
  assert(core.leader === NO_MEMBER || core.leader === leader, "one term has one leader", {
    term: core.term,
    known: core.leader,
    leader,
  });
  if (core.role === "follower") core.setLeader(leader);
  else core.becomeFollower(core.term, leader);
  core.electionElapsedTicks = 0;
}

export function handleAppend(core: Core, message: AppendMessage): void {
  const { log } = core;
  const { prevIndex, prevTerm, entries, commit } = message;
  if (commit > core.leaderCommit) core.leaderCommit = commit;
  if (prevIndex < log.commit) {
    // Older than what is known to be committed, which every leader's log holds: say so, and look no further.
    acknowledge(core, message.from, log.commit);
    return;
  }
  if (!log.matches(prevIndex, prevTerm)) {
    const hintIndex = log.lastIndexOfTermUpTo(prevIndex, prevTerm);
    core.send({
      kind: "append-response",
      from: core.id,
      to: message.from,
      term: core.term,
      index: prevIndex,
      rejected: true,
      hintIndex,
      hintTerm: log.termAt(hintIndex) ?? (0 as Term),
    });
    return;
  }
  const last = log.merge(prevIndex, entries);
  log.commitTo(commit < last ? commit : last);
  acknowledge(core, message.from, last);
}

export function handleHeartbeat(core: Core, message: HeartbeatMessage): void {
  core.log.commitTo(message.commit);
  if (message.commit > core.leaderCommit) core.leaderCommit = message.commit;
  core.send({
    kind: "heartbeat-response",
    from: core.id,
    to: message.from,
    term: core.term,
    readRound: message.readRound,
  });
}

/** R31. The answer waits for the installation, like that to an append. */
export function handleSnapshot(core: Core, message: SnapshotMessage): void {
  const { log } = core;
  const { snapshot } = message;
  const flaw = describeFlaw(snapshot.configuration);
  assert(flaw === undefined, "a snapshot's configuration is sound", { flaw });
  if (snapshot.index > log.commit && isMember(snapshot.configuration, core.id)) {
    if (log.matches(snapshot.index, snapshot.term)) {
      // All of it is here already; what follows it stays.
      log.commitTo(snapshot.index);
    } else {
      log.restore(snapshot);
      core.supersededConfiguration ??= core.configuration;
      core.pendingSnapshot = snapshot;
      core.snapshotToPersist = snapshot;
      core.tracker.switchTo(snapshot.configuration, log.lastIndex);
    }
  }
  acknowledge(core, message.from, log.commit);
}

/**
 * A leader of an earlier term still leads: answer with the higher term, so that it steps down and a member stuck at
 * that term gets back in (R14).
 */
export function answerDeposedLeader(core: Core, to: MemberId): void {
  acknowledge(core, to, 0 as LogIndex);
}

export function forwardRead(core: Core, request: number): void {
  const wireNumber = core.leader === NO_MEMBER ? undefined : core.forwarded.add(request, core.ticks);
  if (wireNumber === undefined) {
    core.readsDropped.push(request);
    return;
  }
  core.send({ kind: "read-index", from: core.id, to: core.leader, term: core.term, request: wireNumber });
}

export function handleReadIndexResponse(core: Core, message: ReadIndexResponse): void {
  const read = core.forwarded.answer(message.request, message.index);
  if (read !== undefined) core.reads.push(read);
}

function acknowledge(core: Core, to: MemberId, index: LogIndex): void {
  core.send({
    kind: "append-response",
    from: core.id,
    to,
    term: core.term,
    index,
    rejected: false,
    hintIndex: 0 as LogIndex,
    hintTerm: 0 as Term,
  });
}
