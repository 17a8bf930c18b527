import type { Configuration, Entry, RaftNode } from "../../../cell/src/raft/types.ts";
import type { CellState } from "../../../cell/src/replica/state.ts";
import type { DiskLog } from "./log-model.ts";

/** One run of one member: from the opening of its folder to its end. */
export interface Life {
  readonly host: string;
  readonly memberId: number;
  /** 1 for the first on its host. */
  readonly number: number;
  readonly disk: DiskLog;
  readonly state: CellState;
  alive: boolean;
  /** What the log held at its opening, until the replica runs: the first entries are handed out before anybody looks. */
  recovered: readonly Entry[];
  /** Present once its replica runs. */
  raft: RaftNode | undefined;
  /** Commit index up to which everything was looked at. */
  seenCommit: number;
  /** Term in which it was last seen leading. */
  ledTerm: number;
  /** In force when it was last looked at, while it leads. */
  configuration: Configuration | undefined;
}

/** For messages: whose life. */
export function nameOf(life: Life): string {
  return `${life.host} (member ${String(life.memberId)}, life ${String(life.number)})`;
}
