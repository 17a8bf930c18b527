import { LockstepError, type ErrorCode } from "../errors.ts";
import type { PendingRequest } from "./pending.ts";

/** Its answer may be asked for again. */
export function isIdentified(request: PendingRequest): boolean {
  return request.lane !== undefined;
}

/** What is known when nobody waits for the answer any more. */
export function outcomeIfGivenUp(request: PendingRequest): "not-applied" | "unknown" {
  return request.mutation && (request.uncertain || request.state === "in-flight") ? "unknown" : "not-applied";
}

/**
 * A refusal before the log says nothing about an earlier attempt whose answer was lost. (A refusal by the state
 * machine does: with an identity it is the outcome of the one execution.)
 */
export function asUncertain(error: LockstepError): LockstepError {
  return SAYS_ALL.has(error.code) ? error : new LockstepError(error.code, "unknown", error.message, error);
}

/** What the state machine refuses with once it knows the identity, and what would have been refused the first time too. */
const SAYS_ALL: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "invalid-argument",
  "request-too-large",
  "too-many-operations",
  "duplicate-key",
  "compacted",
  "future-revision",
  "key-not-found",
  "lease-not-found",
  "lease-exists",
  "too-many-keys",
  "unsupported",
]);

/** @param unreachable why there is no member to talk to, when that is so */
export function tooLate(request: PendingRequest, unreachable: LockstepError | undefined): LockstepError {
  const outcome = outcomeIfGivenUp(request);
  return unreachable === undefined
    ? new LockstepError("deadline-exceeded", outcome, "no answer within the deadline")
    : new LockstepError("unavailable", outcome, unreachable.message);
}

export function unreadable(cause: unknown): LockstepError {
  return new LockstepError("protocol-error", "unknown", "the member's answer cannot be read", { cause });
}

export function withoutResult(): LockstepError {
  return new LockstepError("protocol-error", "unknown", "an answer without a result");
}

export function closedError(): LockstepError {
  return new LockstepError("closed", "not-applied", "the client was closed");
}

/** What a request's identity means in another cell is nobody's to say. */
export function otherCell(request: PendingRequest): LockstepError {
  const message = "another cell answers at these addresses now: what became of the request cannot be known";
  return new LockstepError("connection-lost", outcomeIfGivenUp(request), message);
}

/** A watcher must do what it does after a compaction: begin with what is there. */
export function otherHistory(compactRevision: number): LockstepError {
  return new LockstepError(
    "compacted",
    "not-applied",
    "another cell answers at these addresses now, and its history is another: read the range, then watch from the revision of that answer + 1",
    { compactRevision },
  );
}

export function overloaded(what: "requests" | "bytes"): LockstepError {
  return new LockstepError(
    "overloaded",
    "not-applied",
    `too many ${what} wait for their answers in this client: wait for some of them first`,
  );
}
