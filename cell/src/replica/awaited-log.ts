import type { LogIndex, MemberId, RaftNode } from "../raft/types.ts";
import type { Clock } from "./environment.ts";
import type { Hearing } from "./hearing.ts";
import type { SpaceWatch } from "./space.ts";

/** A voter that was heard of this short ago is expected back: a restart, a moved Pod, a break of the network. */
const EXPECTED_BACK_MS = 60_000;

export interface AwaitedLogSources {
  readonly raft: Pick<RaftNode, "role" | "status">;
  readonly self: MemberId;
  readonly hearing: Pick<Hearing, "silentMs">;
  /** While this member's disk is nearly full, nothing is held back for anybody. */
  readonly space: Pick<SpaceWatch, "low">;
  readonly environment: { readonly clock: Pick<Clock, "monotonicMs"> };
}

/**
 * The log after this index spares a voter that lags, and is expected back, a stream of the whole state. Only a leader
 * knows; it forgets those whose entries are gone already. undefined: nobody needs more than is kept anyway.
 */
export function awaitedIndex(sources: AwaitedLogSources): LogIndex | undefined {
  const { raft, self, hearing, space } = sources;
  if (raft.role !== "leader" || space.low) return undefined;
  const nowMs = sources.environment.clock.monotonicMs();
  const { progress, firstIndex } = raft.status();
  let awaited: LogIndex | undefined;
  for (const { id, match } of progress) {
    if (id === self || match + 1 < firstIndex) continue;
    if (hearing.silentMs(id, nowMs) > EXPECTED_BACK_MS) continue;
    if (awaited === undefined || match < awaited) awaited = match;
  }
  return awaited;
}
