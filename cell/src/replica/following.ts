import type { LogIndex } from "../raft/types.ts";

/** The answer to a mutation that the leader has applied, and this member has not. */
interface FollowingAnswer {
  readonly index: LogIndex;
  /** When the caller is told all the same. */
  readonly deadlineMs: number;
  readonly deliver: () => void;
}

/** How long an answer waits for its write to be applied here, in milliseconds. */
export const FOLLOWING_MS_MAX = 1_000;

/**
 * Answers that wait until what they are about is applied here. Whoever wrote through this member sees the write in what
 * it asks of it next, even in a serializable read or a new watch; that is a matter of milliseconds. A member that lags
 * far behind does not make its clients wait for it.
 */
export class FollowingAnswers {
  #waiting: FollowingAnswer[] = [];
  readonly #appliedIndex: () => LogIndex;

  constructor(appliedIndex: () => LogIndex) {
    this.#appliedIndex = appliedIndex;
  }

  /** Delivers once `index` is applied here, or at the deadline. */
  add(answer: FollowingAnswer): void {
    if (this.#appliedIndex() >= answer.index) answer.deliver();
    else this.#waiting.push(answer);
  }

  /** More is applied, or time has passed. @param nowMs default: only what is applied counts */
  check(nowMs: number = Number.NEGATIVE_INFINITY): void {
    if (this.#waiting.length === 0) return;
    const applied = this.#appliedIndex();
    const isDue = ({ index, deadlineMs }: FollowingAnswer): boolean =>
      index <= applied || deadlineMs <= nowMs;
    const due = this.#waiting.filter(isDue);
    if (due.length === 0) return;
    this.#waiting = this.#waiting.filter((answer) => !isDue(answer));
    for (const { deliver } of due) deliver();
  }
}
