/**
 * What the torture tells a member process, and what it answers, over the IPC channel between them. A stopped process
 * reads its messages when it is continued; one whose torture died sees the channel close and ends itself.
 */
export type Command =
  /** Writes become durable this much later, uniformly between the two; 0 and 0: at once. */
  | { readonly kind: "slow-disk"; readonly minMs: number; readonly maxMs: number }
  /** The next write (of the log, or barrier of the store) fails as a failed fsync does: what is on disk is unknown. */
  | { readonly kind: "fail-sync"; readonly of: "log" | "store" }
  /** The volume says that it is full, where none can really be filled. */
  | { readonly kind: "full-disk"; readonly full: boolean }
  /** The member's monotonic clock stands still for so long, then goes on from where it stood. */
  | { readonly kind: "pause-clock"; readonly forMs: number }
  /** The wall clock jumps. */
  | { readonly kind: "jump-clock"; readonly byMs: number }
  /**
   * Makes a barrier of the store, and from its end on lets no further barrier or swap of the store complete; tells
   * `at-barrier` and stops itself, so that the store's folder can be copied as the power cut will leave it.
   */
  | { readonly kind: "stop-at-barrier" }
  /** The power cut is called off: barriers complete again. */
  | { readonly kind: "release-barriers" };

export type Report =
  | { readonly kind: "serving"; readonly memberId: number }
  | { readonly kind: "at-barrier" }
  | { readonly kind: "sync-failed" };

/** Exit codes of a member, as of the production program. */
export const EXIT: { readonly ok: 0; readonly failed: 1; readonly fatal: 2; readonly removed: 3 } = {
  ok: 0,
  failed: 1,
  fatal: 2,
  removed: 3,
};
