/** Linearizable reads on the leader (thesis section 6.4). */
import type { Core } from "./core.ts";
import type { WaitingRead } from "./read-index.ts";
import type { LogIndex, ReadIndexMessage } from "./types.ts";

/** The leader's own host asks. */
export function readOnLeader(core: Core, request: number): void {
  enqueue(core, { from: core.id, request });
}

/** A follower asks; what the leader cannot take the follower gives up by itself, in time. */
export function handleReadIndex(core: Core, message: ReadIndexMessage): void {
  if (core.role !== "leader" || core.tracker.get(message.from) === undefined) return;
  enqueue(core, { from: message.from, request: message.request });
}

function enqueue(core: Core, read: WaitingRead): void {
  if (!core.rounds.enqueue(read)) {
    if (read.from === core.id) core.readsDropped.push(read.request);
    return;
  }
  readsMayStart(core);
}

/** Reads wait until an entry of this term is committed: before, the leader may not know the newest commit (R46). */
export function readsMayStart(core: Core): void {
  if (!core.committedInTerm || !core.rounds.waiting) return;
  if (core.tracker.isSingleVoter) answer(core, core.rounds.takeWaiting(), core.log.commit);
  else core.heartbeatDue = true;
}

/** A quorum may have answered a newer round, or the quorum may have changed. */
export function confirmReads(core: Core): void {
  for (const batch of core.rounds.confirm(core.tracker.quorumRound())) answer(core, batch.reads, batch.index);
  readsMayStart(core);
}

function answer(core: Core, reads: readonly WaitingRead[], index: LogIndex): void {
  for (const { from, request } of reads) {
    if (from === core.id) core.reads.push({ request, index });
    else core.send({ kind: "read-index-response", from: core.id, to: from, term: core.term, request, index });
  }
}
