/**
 * How a leader leaves that its own configuration no longer counts (R39, thesis section 4.2.2).
 *
 * It must not go before a quorum of the remaining voters knows that the change is committed. They apply a change when
 * they know that; until then they count votes by the old configuration, and a voter whose log is shorter than those of
 * the members that were removed with the leader could never be elected: the cell would be stuck for good. What they
 * know is told by answers to heartbeats that carried the commit index.
 */
import type { Core } from "./core.ts";
import { jointVote } from "./quorum.ts";
import type { Progress } from "./progress.ts";
import type { LogIndex, MemberId } from "./types.ts";
import { NO_MEMBER } from "./types.ts";

/** The change that removes this leader is applied. From now on it takes no proposals. */
export function beginRetirement(core: Core): void {
  core.retirementIndex = core.log.commit;
  core.transferTarget = NO_MEMBER;
  // It has one election timeout; after that the others are better off with an election.
  core.electionElapsedTicks = 0;
  for (const peer of core.tracker.peers) peer.toldRound = 0;
  core.heartbeatDue = true;
  core.appendDue = true;
  core.announceDue = true;
}

export function isRetiring(core: Core): boolean {
  return core.retirementIndex > 0;
}

/** A heartbeat of `round` leaves for `peer` with this commit index. */
export function noteTold(core: Core, peer: Progress, round: number, commit: LogIndex): void {
  if (isRetiring(core) && peer.toldRound === 0 && commit >= core.retirementIndex) peer.toldRound = round;
}

/** Steps down once enough of the others know. */
export function retireIfKnown(core: Core): void {
  if (isRetiring(core) && jointVote(core.configuration, (id) => knows(core, id)) === "won") retire(core);
}

/** Steps down, and asks one that knows and holds everything to campaign at once instead of waiting for its timer. */
export function retire(core: Core): void {
  const heir = core.configuration.voters.find(
    (id) => knows(core, id) && core.tracker.get(id)?.match === core.log.lastIndex,
  );
  const { term } = core;
  core.becomeFollower(term, NO_MEMBER);
  if (heir !== undefined) core.send({ kind: "timeout-now", from: core.id, to: heir, term });
}

function knows(core: Core, id: MemberId): boolean {
  const progress = core.tracker.get(id);
  return progress !== undefined && progress.toldRound > 0 && progress.round >= progress.toldRound;
}
