import type { LogIndex, RaftNode } from "../raft/types.ts";

/**
 * When a member that was removed may go. Its own log can tell it after a restart, before any other member knows that the
 * change is committed: those still count it as a voter of the outgoing configuration then, and without its vote they
 * could never elect anybody. So it stays until a leader has told it that the change is committed, or it is the leader
 * that tells the others (raft/retirement.ts). One that all the others know to be removed is refused by them instead.
 */
export class Removal {
  readonly #raft: RaftNode;
  readonly #announce: () => void;
  #index: LogIndex | undefined;

  /** @param announce called once */
  constructor(raft: RaftNode, announce: () => void) {
    this.#raft = raft;
    this.#announce = announce;
  }

  /** The change at `index`, without this member, is applied here. */
  applied(index: LogIndex): void {
    this.#index = index;
    this.look();
  }

  /** Call now and then. */
  look(): void {
    if (this.#index === undefined) return;
    if (this.#raft.role !== "leader" && this.#raft.leaderCommit < this.#index) return;
    this.#index = undefined;
    this.#announce();
  }
}
