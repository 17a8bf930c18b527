import { assert } from "../invariant.ts";
import { Inflights } from "./inflights.ts";
import type { LogIndex, MemberId, ProgressView } from "./types.ts";

const NONE = 0 as LogIndex;

/**
 * What the leader knows of one member, and how it sends to it (R24):
 * - `probe`: it looks for the place where the logs agree, one append per heartbeat interval.
 * - `replicate`: it sends ahead of the answers, within a window.
 * - `snapshot`: it sends nothing; the host streams the state.
 */
export class Progress {
  readonly id: MemberId;
  state: ProgressView["state"] = "probe";
  /** Known to be equal to the leader's log, durably, up to here. */
  match: LogIndex;
  /** The next index to send. */
  next: LogIndex;
  /** Answered since the last check of the quorum (R13). */
  recentActive = false;
  learner = false;
  /** `probe`: the one append of this interval left. */
  probeSent = false;
  /** An append is owed even if it carries nothing: it finds out about lost messages. */
  emptyDue = false;
  /** `snapshot`: the index of the state under way, else 0. */
  pendingSnapshot: LogIndex = NONE;
  /** The newest heartbeat round it answered. */
  round = 0;
  /** The first heartbeat round that told it of the change which removes the leader; 0 for none. */
  toldRound = 0;
  readonly inflights: Inflights;
  /** The highest commit index sent, as far as it was of use to the follower (R27). */
  #sentCommit = 0;

  constructor(
    id: MemberId,
    window: { readonly messagesMax: number; readonly bytesMax: number },
    next: LogIndex,
  ) {
    this.id = id;
    this.match = NONE;
    this.next = next;
    this.inflights = new Inflights(window.messagesMax, window.bytesMax);
  }

  /** A new term of leadership: nothing is known. */
  reset(match: LogIndex, next: LogIndex): void {
    this.match = match;
    this.next = next;
    this.recentActive = false;
    this.pendingSnapshot = NONE;
    this.round = 0;
    this.toldRound = 0;
    this.#sentCommit = 0;
    this.#enter("probe");
  }

  becomeProbe(): void {
    // After a snapshot that arrived, probe right behind it: the follower may have nothing below.
    const after = this.state === "snapshot" ? Math.max(this.match, this.pendingSnapshot) : this.match;
    this.pendingSnapshot = NONE;
    this.next = (after + 1) as LogIndex;
    this.#sentCommit = Math.min(this.#sentCommit, after);
    this.#enter("probe");
  }

  becomeReplicate(): void {
    this.pendingSnapshot = NONE;
    this.next = (this.match + 1) as LogIndex;
    this.#enter("replicate");
  }

  becomeSnapshot(index: LogIndex): void {
    this.#enter("snapshot");
    this.pendingSnapshot = index;
    this.next = (Math.max(this.match, index) + 1) as LogIndex;
    this.#sentCommit = index;
  }

  /** The snapshot failed: forget its index *before* probing, else `next` jumps past what the peer has (R30). */
  forgetSnapshot(): void {
    this.pendingSnapshot = NONE;
  }

  /** @returns whether the acknowledgement was news */
  acknowledge(index: LogIndex): boolean {
    if (index <= this.match) return false;
    this.match = index;
    if (this.next <= index) this.next = (index + 1) as LogIndex;
    return true;
  }

  /**
   * The follower refused an append behind `refused`; its log can agree at most up to `hint`.
   *
   * @returns false when the refusal is stale: it answers a message older than what is known now (R22)
   */
  refuse(refused: LogIndex, hint: LogIndex): boolean {
    if (this.state === "replicate") {
      if (refused <= this.match) return false;
      this.becomeProbe();
      return true;
    }
    if (this.state === "snapshot" || this.next - 1 !== refused) return false;
    this.next = Math.max(Math.min(refused, hint + 1), this.match + 1) as LogIndex;
    this.#sentCommit = Math.min(this.#sentCommit, this.next - 1);
    this.probeSent = false;
    return true;
  }

  /** An append left, with `count` entries of `bytes` and the commit index `commit`. */
  sent(count: number, bytes: number, commit: LogIndex): void {
    assert(this.state !== "snapshot", "no append leaves during a snapshot", { id: this.id });
    if (this.state === "probe") {
      this.probeSent = true;
    } else if (count > 0) {
      this.next = (this.next + count) as LogIndex;
      this.inflights.add(this.next - 1, bytes);
    }
    this.emptyDue = false;
    if (commit > this.#sentCommit) this.#sentCommit = commit;
  }

  /** Whether `commit` would tell the follower something it has not been sent. */
  canLearnCommit(commit: LogIndex): boolean {
    return commit > this.#sentCommit && this.#sentCommit < this.next - 1;
  }

  /** Nothing may be sent now. */
  get paused(): boolean {
    if (this.state === "snapshot") return true;
    if (this.state === "probe") return this.probeSent;
    return this.inflights.full && !this.emptyDue;
  }

  view(): ProgressView {
    const { id, state, match, next, recentActive, learner, pendingSnapshot } = this;
    return { id, state, match, next, recentActive, learner, pendingSnapshot };
  }

  #enter(state: ProgressView["state"]): void {
    this.state = state;
    this.probeSent = false;
    this.emptyDue = false;
    this.inflights.reset();
  }
}
