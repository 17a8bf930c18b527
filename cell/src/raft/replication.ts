/** What a leader sends: appends as far as each peer's window allows, and rounds of heartbeats. */
import type { Core } from "./core.ts";
import { NOTHING } from "./log.ts";
import type { Progress } from "./progress.ts";
import { confirmReads } from "./reads.ts";
import { noteTold } from "./retirement.ts";
import type { LogIndex } from "./types.ts";

/** Called once per Ready: everything a turn has made due leaves together, in member order (R10). */
export function flush(core: Core): void {
  if (core.heartbeatDue) {
    core.heartbeatDue = false;
    sendHeartbeats(core);
  }
  if (!core.appendDue) return;
  core.appendDue = false;
  for (const peer of core.tracker.peers) {
    while (sendAppend(core, peer)) continue;
  }
  core.announceDue = false;
}

function sendHeartbeats(core: Core): void {
  const { log, rounds, tracker } = core;
  const round = rounds.startRound(core.ticks, core.committedInTerm ? log.commit : undefined);
  if (tracker.own !== undefined) tracker.own.round = round;
  for (const peer of tracker.peers) {
    // Never beyond what the peer is known to hold, or R9 would stop it for no reason.
    const commit = Math.min(log.commit, peer.match) as LogIndex;
    core.send({
      kind: "heartbeat",
      from: core.id,
      to: peer.id,
      term: core.term,
      commit,
      readRound: round,
    });
    noteTold(core, peer, round, commit);
  }
  // Nobody else will answer.
  if (tracker.isSingleVoter) confirmReads(core);
}

/** @returns whether the next append may leave as well */
function sendAppend(core: Core, peer: Progress): boolean {
  if (peer.paused) return false;
  const { log } = core;
  const prevIndex = (peer.next - 1) as LogIndex;
  const prevTerm = log.termAt(prevIndex);
  if (prevTerm === undefined) {
    wantSnapshot(core, peer);
    return false;
  }
  // A full window lets an empty append through now and then: it tells of loss (R24).
  const isFull = peer.state === "replicate" && peer.inflights.full;
  const { entries, bytes } = isFull ? NOTHING : log.slice(peer.next, core.options.appendBytesMax);
  const announces = core.announceDue || !core.options.lazyCommit;
  if (entries.length === 0 && !peer.emptyDue && !(announces && peer.canLearnCommit(log.commit))) return false;
  core.send({
    kind: "append",
    from: core.id,
    to: peer.id,
    term: core.term,
    prevIndex,
    prevTerm,
    entries,
    commit: log.commit,
  });
  peer.sent(entries.length, bytes, log.commit);
  return entries.length > 0;
}

/**
 * The entries it needs are gone. Asked for again at every sign of life until the host starts one, and not at all while
 * the peer is silent (R29).
 */
function wantSnapshot(core: Core, peer: Progress): void {
  if (!peer.recentActive) return;
  if (peer.state === "replicate") peer.becomeProbe();
  peer.probeSent = true;
  peer.emptyDue = false;
  core.snapshotsWanted.push(peer.id);
}
