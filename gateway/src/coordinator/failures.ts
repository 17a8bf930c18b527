import type { Revision } from "./operations.ts";

/**
 * Whether the operation took effect. Only reads and `not-applied` may be retried without a request id.
 * `unknown`: it was proposed, and the answer was lost (leader change, deadline).
 */
export type OperationOutcome = "not-applied" | "applied" | "unknown";

/**
 * Stable codes of everything that can be refused. The meaning, the HTTP status and the gRPC status of each are
 * in docs/errors.md.
 */
export type FailureCode =
  // the request itself
  | "invalid-argument"
  | "request-too-large"
  | "too-many-operations"
  | "duplicate-key"
  | "permission-denied"
  // state
  | "compacted"
  | "future-revision"
  | "lease-not-found"
  | "lease-exists"
  | "key-not-found"
  | "too-many-keys"
  | "request-expired"
  | "namespace-not-found"
  | "wrong-epoch"
  | "namespace-exists"
  | "too-many-namespaces"
  // capacity
  | "overloaded"
  | "quota-exceeded"
  | "no-space"
  | "too-many-streams"
  | "too-many-watches"
  // the cell
  | "no-leader"
  | "leader-changed"
  | "deadline-exceeded"
  | "not-leader"
  | "diverged"
  | "shutting-down"
  | "unsupported"
  | "internal";

/** A refusal, or a lost answer. Plain data: it is delivered, not thrown, on the hot path. */
export interface Failure {
  readonly code: FailureCode;
  readonly outcome: OperationOutcome;
  /** A sentence for people: what is wrong and what to do. Never to be matched on. */
  readonly message: string;
  /** With `compacted`: the oldest revision that can still be read or watched from. */
  readonly compactRevision?: Revision;
  /** With `overloaded`, `no-leader`: when to come back. */
  readonly retryAfterMs?: number;
}
