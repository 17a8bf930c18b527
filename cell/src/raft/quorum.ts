import type { MemberId } from "./types.ts";

/** What a set of votes decides. */
export type VoteResult = "won" | "lost" | "pending";

/**
 * The largest index that a majority of `voters` has acknowledged: the (n/2 + 1)-th largest acknowledgement.
 * An empty set agrees to everything, so that a joint decision with an empty half is the other half's.
 *
 * @param indexOf what a voter acknowledged; 0 when nothing is known of it
 * @param scratch reused between calls to spare the allocation; its content is overwritten
 */
export function majorityIndex(
  voters: readonly MemberId[],
  indexOf: (id: MemberId) => number,
  scratch: number[] = [],
): number {
  const size = voters.length;
  if (size === 0) return Infinity;
  // Insertion sort, descending: a cell has at most a handful of voters.
  for (let i = 0; i < size; i++) {
    const index = indexOf(voters[i] as MemberId);
    let at = i;
    while (at > 0 && (scratch[at - 1] as number) < index) {
      scratch[at] = scratch[at - 1] as number;
      at--;
    }
    scratch[at] = index;
  }
  return scratch[size >> 1] as number;
}

/** The largest index that both halves of a joint configuration have acknowledged (thesis section 4.3). */
export function jointIndex(
  halves: { readonly voters: readonly MemberId[]; readonly outgoing: readonly MemberId[] },
  indexOf: (id: MemberId) => number,
  scratch: number[] = [],
): number {
  const incoming = majorityIndex(halves.voters, indexOf, scratch);
  if (halves.outgoing.length === 0) return incoming;
  return Math.min(incoming, majorityIndex(halves.outgoing, indexOf, scratch));
}

/**
 * Whether a majority of `voters` said yes (won), can no longer do so (lost), or is still open.
 *
 * @param voteOf undefined while the voter has not answered
 */
export function majorityVote(
  voters: readonly MemberId[],
  voteOf: (id: MemberId) => boolean | undefined,
): VoteResult {
  if (voters.length === 0) return "won";
  let yes = 0;
  let missing = 0;
  for (const id of voters) {
    const vote = voteOf(id);
    if (vote === undefined) missing++;
    else if (vote) yes++;
  }
  const needed = (voters.length >> 1) + 1;
  if (yes >= needed) return "won";
  return yes + missing >= needed ? "pending" : "lost";
}

/** Both halves must win; it is lost as soon as either half is. */
export function jointVote(
  halves: { readonly voters: readonly MemberId[]; readonly outgoing: readonly MemberId[] },
  voteOf: (id: MemberId) => boolean | undefined,
): VoteResult {
  const incoming = majorityVote(halves.voters, voteOf);
  const outgoing = majorityVote(halves.outgoing, voteOf);
  if (incoming === "lost" || outgoing === "lost") return "lost";
  return incoming === "won" && outgoing === "won" ? "won" : "pending";
}
