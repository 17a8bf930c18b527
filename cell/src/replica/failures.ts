import type { Failure } from "@lockstep/gateway/coordinator";

/** The refusals and lost answers that the replica itself gives, each with the sentence a client sees. */
export const failures = {
  noLeader: (): Failure => ({
    code: "no-leader",
    outcome: "not-applied",
    message:
      "The cell has no leader now: a majority of its members does not answer, or an election is under way.",
    retryAfterMs: 250,
  }),
  leaderChanged: (): Failure => ({
    code: "leader-changed",
    outcome: "not-applied",
    message: "Another leader took over before this command was committed. Send it again.",
    retryAfterMs: 50,
  }),
  lostAnswer: (): Failure => ({
    code: "leader-changed",
    outcome: "unknown",
    message: "The leader went away after the command was handed to it: it may or may not have been applied.",
    retryAfterMs: 50,
  }),
  deadline: (outcome: "unknown" | "not-applied"): Failure => ({
    code: "deadline-exceeded",
    outcome,
    message:
      outcome === "unknown"
        ? "No majority confirmed the command within its deadline: it may still be applied."
        : "The deadline passed before the command could be proposed.",
  }),
  overloaded: (what: string): Failure => ({
    code: "overloaded",
    outcome: "not-applied",
    message: `The member has too much pending work (${what}). Come back after a moment.`,
    retryAfterMs: 100,
  }),
  noSpace: (): Failure => ({
    code: "no-space",
    outcome: "not-applied",
    message:
      "A voter's disk is below its reserve of free space, so nothing may grow. Deletes, revokes and compaction still work: free space on the volume or delete keys.",
  }),
  quotaExceeded: (bytes: number, quota: number): Failure => ({
    code: "quota-exceeded",
    outcome: "not-applied",
    message: `The database holds ${String(bytes)} bytes, over its quota of ${String(quota)}. Delete keys and compact, or raise --quota-bytes.`,
  }),
  diverged: (): Failure => ({
    code: "diverged",
    outcome: "not-applied",
    message:
      "Members of this cell disagree about its state, so writes are refused. Read the members' logs before anything else.",
  }),
  namespaceNotFound: (name: string): Failure => ({
    code: "namespace-not-found",
    outcome: "not-applied",
    message: `This cell has no namespace ${JSON.stringify(name)}.`,
  }),
  wrongEpoch: (epoch: number): Failure => ({
    code: "wrong-epoch",
    outcome: "not-applied",
    message: `The namespace is at routing epoch ${String(epoch)}. Resolve it again.`,
  }),
  tooManyWatches: (max: number): Failure => ({
    code: "too-many-watches",
    outcome: "not-applied",
    message: `This member holds its maximum of ${String(max)} watches. Use another member.`,
    retryAfterMs: 1000,
  }),
  shuttingDown: (outcome: "unknown" | "not-applied"): Failure => ({
    code: "shutting-down",
    outcome,
    message: "The member is shutting down. Use another one.",
  }),
  internal: (message: string): Failure => ({ code: "internal", outcome: "unknown", message }),
} as const;
