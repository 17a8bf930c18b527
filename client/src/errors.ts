/**
 * Whether an operation took effect. `unknown`: it may or may not have; read the state before acting on it.
 * Only `not-applied` may be repeated blindly.
 */
export type OperationOutcome = "not-applied" | "applied" | "unknown";

/** Codes that this library adds to those of the cell (docs/errors.md). */
export type ClientErrorCode =
  /** The caller's AbortSignal fired. */
  | "cancelled"
  /** No member could be reached within the deadline. */
  | "unavailable"
  /** The connection broke while the answer was outstanding, and the call carried no identity to repeat it with. */
  | "connection-lost"
  /** The client was closed. */
  | "closed"
  /** The session's lease ended, or may have: its local deadline passed. */
  | "session-lost"
  /** The lock is not held (any more). */
  | "not-held"
  /** The lock was not free within `waitMs`. */
  | "lock-timeout"
  /** Holders do not agree about the number of permits or participants. */
  | "limit-mismatch"
  /** The id of an endpoint is taken by somebody else. */
  | "already-registered"
  /** A condition of a transaction did not hold; the error says which. */
  | "condition-failed"
  /** The member sent something that this library cannot read. */
  | "protocol-error";

/** The cell's codes, the client's own, and whatever a newer cell may add. */
export type ErrorCode =
  | ClientErrorCode
  | "invalid-argument"
  | "request-too-large"
  | "too-many-operations"
  | "duplicate-key"
  | "permission-denied"
  | "compacted"
  | "future-revision"
  | "lease-not-found"
  | "lease-exists"
  | "too-many-keys"
  | "request-expired"
  | "namespace-not-found"
  | "wrong-epoch"
  | "namespace-exists"
  | "too-many-namespaces"
  | "overloaded"
  | "quota-exceeded"
  | "no-space"
  | "too-many-streams"
  | "too-many-watches"
  | "no-leader"
  | "leader-changed"
  | "deadline-exceeded"
  | "not-leader"
  | "diverged"
  | "shutting-down"
  | "unsupported"
  | "internal"
  | (string & {});

/** What an error may know besides. */
export interface LockstepErrorDetails {
  readonly retryAfterMs?: number;
  readonly compactRevision?: number;
  readonly cause?: unknown;
}

/** Everything that this library throws or rejects with, save a caller's bug, which is a `TypeError`. */
export class LockstepError extends Error {
  /** Stable; meant to be matched on. */
  readonly code: ErrorCode;
  readonly outcome: OperationOutcome;
  /** When to come back, if the cell said so. */
  readonly retryAfterMs?: number;
  /** With `compacted`: the oldest revision that can still be read or watched from. */
  readonly compactRevision?: number;

  constructor(
    code: ErrorCode,
    outcome: OperationOutcome,
    message: string,
    details: LockstepErrorDetails = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "LockstepError";
    this.code = code;
    this.outcome = outcome;
    if (details.retryAfterMs !== undefined) this.retryAfterMs = details.retryAfterMs;
    if (details.compactRevision !== undefined) this.compactRevision = details.compactRevision;
  }
}

/** Refusals that pass by themselves: another member, or the same one a moment later, will serve the request. */
export function isTransient(code: ErrorCode): boolean {
  return (
    code === "no-leader" ||
    code === "leader-changed" ||
    code === "not-leader" ||
    code === "overloaded" ||
    code === "shutting-down"
  );
}
