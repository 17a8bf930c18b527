import type { MemberId, ProgressView, RaftNode } from "../raft/types.ts";
import type { Log } from "./environment.ts";

/** Election timeouts that an append of the leader may take before it looks for a better one. */
const STALL_TIMEOUTS = 3;

export interface StallWatchOptions {
  readonly self: MemberId;
  readonly raft: RaftNode;
  /** Token of the oldest append that is not durable yet; -1: all are. */
  readonly oldestAppend: () => number;
  readonly electionTimeoutTicks: number;
  readonly log: Log;
}

/**
 * A leader answers when an entry is on its own disk too, so a disk that stalls for seconds stops the cell although the
 * others are well, and since its heartbeats go on nobody deposes it. It hands over to the voter that has most. Counted
 * in ticks: a process that was stopped has not waited for its disk.
 */
export class StallWatch {
  readonly #options: StallWatchOptions;
  #append = -1;
  #ticks = 0;

  constructor(options: StallWatchOptions) {
    this.#options = options;
  }

  tick(ticks: number): void {
    const { raft, self, oldestAppend, electionTimeoutTicks, log } = this.#options;
    const oldest = oldestAppend();
    if (oldest !== this.#append || raft.role !== "leader") {
      this.#append = oldest;
      this.#ticks = 0;
      return;
    }
    if (oldest < 0) return;
    this.#ticks += ticks;
    if (this.#ticks < STALL_TIMEOUTS * electionTimeoutTicks) return;
    // Should it come to nothing, it is tried again after as long.
    this.#ticks = 0;
    const target = mostCaughtUp(raft.status().progress, self);
    if (target === undefined) return;
    log.warn("the disk stalls: handing leadership over", { to: target });
    raft.transferLeadership(target);
  }
}

/** The other voter that answers and has the longest log. */
export function mostCaughtUp(progress: readonly ProgressView[], self: MemberId): MemberId | undefined {
  return [...progress]
    .filter((view) => view.id !== self && !view.learner && view.recentActive)
    .sort((a, b) => b.match - a.match)[0]?.id;
}
