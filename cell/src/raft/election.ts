/** Campaigns and votes (thesis sections 3.4, 3.6 and 9.6). */
import { votersOf } from "./configuration.ts";
import type { Core } from "./core.ts";
import { startLeading } from "./leader.ts";
import type { Term, VoteMessage, VoteResponse } from "./types.ts";
import { NO_MEMBER } from "./types.ts";

/** `transfer`: the leader ordered it, so it skips the pre-vote and is not ignored for the leader's sake (R51). */
export type CampaignKind = "pre-vote" | "vote" | "transfer";

/**
 * Whether this member may stand for election: it votes, no snapshot is being installed (R17), and no committed change
 * of the configuration awaits its application, since it would count votes by a configuration that others may have left
 * two changes behind (R18).
 */
export function mayCampaign(core: Core): boolean {
  return core.role !== "leader" && core.isPromotable && !core.log.hasUnappliedConfiguration;
}

/** Asks every voter. Nothing happens unless {@link mayCampaign}. */
export function campaign(core: Core, kind: CampaignKind): void {
  if (!mayCampaign(core)) return;
  if (kind === "pre-vote") core.becomePreCandidate();
  else core.becomeCandidate();
  const term = (kind === "pre-vote" ? core.term + 1 : core.term) as Term;
  for (const to of votersOf(core.configuration)) {
    if (to === core.id) continue;
    core.send({
      kind: kind === "pre-vote" ? "pre-vote" : "vote",
      from: core.id,
      to,
      term,
      lastIndex: core.log.lastIndex,
      lastTerm: core.log.lastTerm,
      transfer: kind === "transfer",
    });
  }
  voteForOneself(core, kind === "pre-vote" ? "pre-vote-response" : "vote-response", term);
}

/** A vote for oneself is an answer like any other: it counts when what it rests on is durable (R3). */
function voteForOneself(core: Core, kind: VoteResponse["kind"], term: Term): void {
  const vote: VoteResponse = { kind, from: core.id, to: core.id, term, granted: true };
  if (core.isDurable) countVote(core, vote);
  else core.ownVotes.push(vote);
}

/**
 * Somebody campaigns. Every member answers, learners and members of unknown standing too: whether the vote counts is
 * for the candidate's configuration to say (R16). The caller has settled the terms.
 */
export function answerVote(core: Core, message: VoteMessage): void {
  const { log } = core;
  const isPreVote = message.kind === "pre-vote";
  const free =
    core.vote === message.from ||
    (core.vote === NO_MEMBER && core.leader === NO_MEMBER) ||
    (isPreVote && message.term > core.term);
  const granted = free && log.isUpToDate(message.lastIndex, message.lastTerm);
  if (granted) core.hasPromised = true;
  if (granted && !isPreVote) {
    core.electionElapsedTicks = 0;
    core.vote = message.from;
  }
  if (granted && isPreVote && yieldsTo(core, message)) core.becomeFollower(core.term, NO_MEMBER);
  // A granted pre-vote carries the term asked for; a refusal this member's own (R12).
  respond(core, message, { granted, term: granted ? message.term : core.term });
}

/**
 * Two members that ask for the same term at once would grant each other the pre-vote, then vote for themselves, and the
 * term would have no leader: half of them has to give way. All agree on who, by the better log and then by the lower id,
 * so the first among them never does. It refuses nobody: should its own questions be lost, the other one still wins.
 * What gives way is only a question; a vote, once cast, stays (R11).
 */
function yieldsTo(core: Core, message: VoteMessage): boolean {
  if (core.role !== "pre-candidate" || message.term !== core.term + 1) return false;
  // Others may not know yet that they are no voters any more: a campaign of theirs is no reason to end one's own.
  if (!votersOf(core.configuration).includes(message.from)) return false;
  const isEqual = message.lastIndex === core.log.lastIndex && message.lastTerm === core.log.lastTerm;
  return !isEqual || message.from < core.id;
}

/** A campaign of an earlier term gets an answer all the same, or two pre-voting members could block each other (R12). */
export function refusePreVote(core: Core, message: VoteMessage): void {
  respond(core, message, { granted: false, term: core.term });
}

function respond(
  core: Core,
  message: VoteMessage,
  answer: { readonly granted: boolean; readonly term: Term },
): void {
  const kind = message.kind === "pre-vote" ? "pre-vote-response" : "vote-response";
  const { id: from, log } = core;
  const response: VoteResponse = { kind, from, to: message.from, ...answer };
  if (answer.granted) core.send(response);
  else core.send({ ...response, committed: { index: log.commit, term: log.termAt(log.commit) as Term } });
}

/**
 * Whoever refuses a vote tells what it knows to be committed. That is true for ever, in whatever term it was said; if
 * this member holds that very entry, all before it is committed too. A change among it must be applied before votes
 * are counted on (R18).
 */
export function learnCommit(core: Core, response: VoteResponse): void {
  const { log } = core;
  const { committed } = response;
  if (committed === undefined || core.role === "leader") return;
  if (!log.matches(committed.index, committed.term) || !log.commitTo(committed.index)) return;
  if (core.role !== "follower" && log.hasUnappliedConfiguration) core.becomeFollower(core.term, NO_MEMBER);
}

/** An answer to this member's own campaign; of another phase or term, it is ignored (R20). */
export function countVote(core: Core, response: VoteResponse): void {
  const awaited =
    core.role === "pre-candidate"
      ? response.kind === "pre-vote-response"
      : core.role === "candidate" && response.kind === "vote-response";
  if (!awaited || (response.granted && response.term !== campaignTerm(core))) return;
  switch (core.tracker.recordVote(response.from, response.granted)) {
    case "won":
      if (core.role === "pre-candidate") campaign(core, "vote");
      // Others' votes do not make up for its own: a leader whose own term and vote are not on disk could crash, campaign
      // for the same term again and lead it a second time, with other entries under the same indexes (R3).
      else if (core.tracker.hasVoteOf(core.id)) startLeading(core);
      break;
    case "lost":
      core.becomeFollower(core.term, NO_MEMBER);
      break;
    case "pending":
      break;
  }
}

function campaignTerm(core: Core): number {
  return core.role === "pre-candidate" ? core.term + 1 : core.term;
}

/** The timer ran out. Who may not campaign still stops believing in a silent leader, and so grants others' pre-votes. */
export function electionTimedOut(core: Core): void {
  core.electionElapsedTicks = 0;
  if (mayCampaign(core)) campaign(core, "pre-vote");
  else core.setLeader(NO_MEMBER);
}
