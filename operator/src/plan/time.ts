/** Time as values: spans that the planner goes by, and RFC 3339 stamps. Nothing here reads a clock. */

/** How long incoming members must stay caught up before they are promoted. */
export const SETTLE_MS: number = 5_000;
/** An operation that may still be cancelled is, when nothing moved for so long. */
export const PROGRESS_DEADLINE_MS: number = 10 * 60_000;
/** At most one automatic replacement per cell in this time. */
export const AUTOMATIC_REPLACEMENT_EVERY_MS: number = 60 * 60_000;
/** A member that the leader has not heard of for longer is counted as silent. */
export const SILENT_MS: number = 3_000;
/** Quorum that is not seen for longer does not come back by itself: a person is asked. */
export const QUORUM_LOST_MS: number = 5 * 60_000;
/** A recovery waits so long for the quorum to come back: a moment's silence must not end a cell. */
export const RECOVERY_PATIENCE_MS: number = 60_000;
/** Certificates that end sooner are a warning. */
export const CERTIFICATE_WARNING_MS: number = 24 * 60 * 60_000;
/** Looking again while something is under way. */
export const BUSY_LOOK_MS: number = 1_000;
/** Looking again while certificates are exchanged. */
export const ROTATION_LOOK_MS: number = 10_000;
/** Looking again while something is wrong. */
export const SICK_LOOK_MS: number = 5_000;

const BACKOFF_MS_MIN = 30_000;
const BACKOFF_MS_MAX = 30 * 60_000;

/** Wait before the next try after `attempt` (from 1) was aborted. */
export function backoffMs(attempt: number): number {
  return Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** (Math.min(attempt, 16) - 1));
}

export function toStamp(ms: number): string {
  return new Date(ms).toISOString();
}

/** @returns undefined for what is absent or no date. */
export function fromStamp(stamp: string | undefined): number | undefined {
  if (stamp === undefined) return undefined;
  const ms = Date.parse(stamp);
  return Number.isNaN(ms) ? undefined : ms;
}
