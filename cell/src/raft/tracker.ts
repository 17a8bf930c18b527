import { assert } from "../invariant.ts";
import { describeFlaw, isVoter, membersOf } from "./configuration.ts";
import { Progress } from "./progress.ts";
import { jointIndex, jointVote, type VoteResult } from "./quorum.ts";
import type { Configuration, LogIndex, MemberId, RaftOptions } from "./types.ts";

/** The members of the configuration in force: their progress, their votes, and what quorums of them say. */
export class Tracker {
  configuration: Configuration;
  /** Every other member, ascending: messages leave in this order (R10). */
  peers: readonly Progress[] = [];
  /** This member's own progress; undefined when it does not belong to the configuration. */
  own: Progress | undefined;

  readonly #options: RaftOptions;
  readonly #progress = new Map<MemberId, Progress>();
  readonly #votes = new Map<MemberId, boolean>();
  readonly #scratch: number[] = [];
  readonly #matchOf = (id: MemberId): number => this.#of(id).match;
  readonly #roundOf = (id: MemberId): number => this.#of(id).round;
  readonly #activityOf = (id: MemberId): boolean => this.#of(id).recentActive;
  readonly #voteOf = (id: MemberId): boolean | undefined => this.#votes.get(id);

  constructor(options: RaftOptions, configuration: Configuration, lastIndex: LogIndex) {
    this.#options = options;
    this.configuration = configuration;
    this.switchTo(configuration, lastIndex);
  }

  /** Members that stay keep their progress, also over promotion and demotion. */
  switchTo(configuration: Configuration, lastIndex: LogIndex): void {
    const flaw = describeFlaw(configuration);
    assert(flaw === undefined, "the configuration is sound", { flaw });
    this.configuration = configuration;
    const members = membersOf(configuration);
    for (const id of this.#progress.keys()) if (!members.includes(id)) this.#progress.delete(id);
    for (const id of members) {
      const progress = this.#progress.get(id) ?? this.#newcomer(id, lastIndex);
      progress.learner = configuration.learners.includes(id);
    }
    this.own = this.#progress.get(this.#options.id);
    this.peers = members.filter((id) => id !== this.#options.id).map((id) => this.#of(id));
  }

  get(id: MemberId): Progress | undefined {
    return this.#progress.get(id);
  }

  /** This member's vote counts. */
  get isVoter(): boolean {
    return isVoter(this.configuration, this.#options.id);
  }

  /** Decisions need nobody else (R47). */
  get isSingleVoter(): boolean {
    const { voters, outgoing } = this.configuration;
    return voters.length === 1 && outgoing.length === 0 && voters[0] === this.#options.id;
  }

  /** What a quorum holds durably. */
  quorumMatch(): LogIndex {
    return jointIndex(this.configuration, this.#matchOf, this.#scratch) as LogIndex;
  }

  /** The newest heartbeat round that a quorum has answered. */
  quorumRound(): number {
    return jointIndex(this.configuration, this.#roundOf, this.#scratch);
  }

  /** A quorum answered since the last check; the flags start anew (R13). */
  checkActivity(): boolean {
    if (this.own !== undefined) this.own.recentActive = true;
    const active = jointVote(this.configuration, this.#activityOf) === "won";
    for (const peer of this.peers) peer.recentActive = false;
    return active;
  }

  clearVotes(): void {
    this.#votes.clear();
  }

  /** A voter's first answer counts. Only the candidate's configuration decides who is a voter (R16). */
  recordVote(id: MemberId, granted: boolean): VoteResult {
    if (!this.#votes.has(id)) this.#votes.set(id, granted);
    return jointVote(this.configuration, this.#voteOf);
  }

  /** Whether its answer has come, be it yes or no. */
  hasVoteOf(id: MemberId): boolean {
    return this.#votes.has(id);
  }

  /** A new term: nothing is known of anybody, and of oneself what is durable (R3). */
  resetProgress(stable: LogIndex, lastIndex: LogIndex): void {
    for (const peer of this.peers) peer.reset(0 as LogIndex, (lastIndex + 1) as LogIndex);
    if (this.own === undefined) return;
    this.own.reset(stable, (lastIndex + 1) as LogIndex);
    this.own.state = "replicate";
    this.own.recentActive = true;
  }

  #newcomer(id: MemberId, lastIndex: LogIndex): Progress {
    const { inflightMessagesMax, inflightBytesMax } = this.#options;
    const window = { messagesMax: inflightMessagesMax, bytesMax: inflightBytesMax };
    const progress = new Progress(id, window, Math.max(lastIndex, 1) as LogIndex);
    // Else adding it could cost the leader its quorum at the next check (R13).
    progress.recentActive = true;
    this.#progress.set(id, progress);
    return progress;
  }

  #of(id: MemberId): Progress {
    const progress = this.#progress.get(id);
    assert(progress !== undefined, "every member has progress", { id });
    return progress;
  }
}
