/** Every rejected call is looked at: what a hostile world explains, and what is a defect. */
import { LockstepError, type OperationOutcome } from "@lockstep/client";
import type { Reporter } from "../contract.ts";

/** Codes that no fault of the world explains, as long as callers ask for what is well-formed. */
const DEFECTS: readonly string[] = [
  "internal",
  "protocol-error",
  "invalid-argument",
  "request-too-large",
  "too-many-operations",
  "duplicate-key",
  "unsupported",
  "namespace-not-found",
  // All say the same number of permits.
  "limit-mismatch",
  "wrong-epoch",
  "diverged",
  // A registered client is known for an hour: forgotten earlier, its retries have lost their exactly-once.
  "request-expired",
];

/** @returns the error, when it is one that a client has to expect. */
export function judgeRejection(error: unknown, what: string, reporter: Reporter): LockstepError {
  if (!(error instanceof LockstepError)) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    reporter.violation("I-errors", `${what} rejected with something else than a LockstepError: ${text}`);
  }
  if (DEFECTS.includes(error.code)) {
    reporter.violation(
      "I-errors",
      `${what} rejected with ${error.code} (${error.outcome}): ${error.message}`,
    );
  }
  return error;
}

/** A mutation that failed took effect or not; `applied` comes with a result that could not be sent, which ours never are. */
export function failedOutcome(
  error: LockstepError,
  what: string,
  reporter: Reporter,
): Exclude<OperationOutcome, "applied"> {
  if (error.outcome === "applied") {
    reporter.violation("I-errors", `${what} rejected with ${error.code}, and is said to be applied`);
  }
  if (error.outcome === "unknown") reporter.count("unknown outcomes");
  return error.outcome;
}
