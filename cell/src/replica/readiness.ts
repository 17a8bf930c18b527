import type { PendingRead } from "./reads.ts";

/** What decides whether a member is ready, as it stands now. */
export interface ReadinessView {
  /** Its part in the configuration that it has applied. */
  readonly part: () => "none" | "learner" | "voter";
  readonly hasLeader: () => boolean;
  /** The members disagree about the state, and no majority agrees. */
  readonly isDiverged: () => boolean;
  /** Another member's state is being taken in, in place of its own. */
  readonly isInstalling: () => boolean;
  /** Asks for a linearizable read. */
  readonly read: (read: PendingRead) => void;
}

export interface ReadinessOptions {
  readonly view: ReadinessView;
  /** After how long without a leader a member that was ready is not any more, in milliseconds. */
  readonly leaderlessMsMax: number;
}

/** A member that is ready asks again this long after it asked last. */
const PROOF_INTERVAL_MS = 2_000;
/** How far a ready member may be behind its leader: an answered read proves nothing about later than it was asked. */
const PROOF_AGE_MS_MAX = 6_000;

/**
 * Whether this member could serve now, and could take its part in a majority if another one went. Its own commit index
 * does not tell: what the leader has committed meanwhile, a member that was away hears only with the entries, and it
 * gets none while the state is streamed to it. So it asks for linearizable reads of its own, at the start at once and then
 * every two seconds: one that is answered proves that what the leader had committed when it was asked is applied here.
 *
 * Ready: a voter, no installation of a state under way, and the newest proof since then is at most six seconds old. A
 * change of leaders does not end that, and a few entries or seconds behind neither; an installation does at once, and so
 * does a leader that stays away for longer than a change of leaders takes.
 */
export class Readiness {
  readonly #options: ReadinessOptions;
  /** When the newest read that was answered had been asked. */
  #provedMs = Number.NEGATIVE_INFINITY;
  #askedMs = Number.NEGATIVE_INFINITY;
  #asking = false;
  #leaderSeenMs = Number.NEGATIVE_INFINITY;

  constructor(options: ReadinessOptions) {
    this.#options = options;
  }

  /** Call several times a second. */
  look(nowMs: number): void {
    const { view } = this.#options;
    if (view.hasLeader()) this.#leaderSeenMs = nowMs;
    if (view.isInstalling()) this.#provedMs = Number.NEGATIVE_INFINITY;
    if (this.#asking || view.part() !== "voter") return;
    if (nowMs - this.#askedMs < PROOF_INTERVAL_MS && this.#isProved(nowMs)) return;
    this.#askedMs = nowMs;
    this.#asking = true;
    view.read({
      serve: () => {
        this.#asking = false;
        this.#provedMs = nowMs;
      },
      fail: () => {
        this.#asking = false;
      },
      // What is answered later would prove nothing any more.
      deadlineMs: nowMs + PROOF_AGE_MS_MAX,
    });
  }

  /** Why this member is not ready, in a clause; undefined: it is. */
  reason(nowMs: number): string | undefined {
    const { view, leaderlessMsMax } = this.#options;
    const part = view.part();
    if (part === "none") return "not part of the cell's configuration yet";
    if (part === "learner") return "a learner, not a voter yet";
    if (view.isDiverged()) return "the members disagree about the state";
    if (view.isInstalling()) return "taking in the state of another member";
    const isProved = this.#isProved(nowMs);
    if (!view.hasLeader() && (!isProved || nowMs - this.#leaderSeenMs > leaderlessMsMax)) {
      return "no leader known";
    }
    if (!isProved) return "not caught up with the leader";
    return undefined;
  }

  #isProved(nowMs: number): boolean {
    return nowMs - this.#provedMs <= PROOF_AGE_MS_MAX;
  }
}
