import type { OperationOutcome } from "../errors.ts";

/** Stable; meant to be matched on. */
export type GuardErrorCode =
  /** The token is smaller than one that the resource has seen: ownership has passed on. */
  | "stale-token"
  /** Others wrote each time between our look at the resource and our write. Try again later. */
  | "guard-contended"
  /** The resource is there and carries no mark: somebody wrote it past the guard, or before there was one. */
  | "guard-unmarked"
  /** The resource cannot do what the guard needs: it ignores conditions, or the guard is not installed in it. */
  | "guard-unsupported"
  /** The resource refused the request, or did not answer. */
  | "guard-failed";

/** What the guards throw, save a caller's bug, which is a `TypeError`, and the errors of the resource's own client. */
export class GuardError extends Error {
  readonly code: GuardErrorCode;
  /** Whether the write took effect. `unknown`: read the resource before acting on it. */
  readonly outcome: OperationOutcome;

  constructor(
    code: GuardErrorCode,
    outcome: OperationOutcome,
    message: string,
    options: { readonly cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "GuardError";
    this.code = code;
    this.outcome = outcome;
  }
}

/**
 * A write was refused because the resource has seen a larger token. Nothing of it was applied, and no repetition with
 * this token can succeed: whoever gets this is not the owner any more and must stop.
 */
export class StaleTokenError extends GuardError {
  /** The guarded resource's name. */
  readonly resource: string;
  /** The token that was refused. */
  readonly offered: number;
  /** The larger token that the resource has seen; undefined when the resource's answer did not say. */
  readonly seen: number | undefined;

  constructor(
    refusal: { readonly resource: string; readonly offered: number; readonly seen: number | undefined },
    options: { readonly cause?: unknown } = {},
  ) {
    const seen = refusal.seen === undefined ? "a larger one" : String(refusal.seen);
    super(
      "stale-token",
      "not-applied",
      `"${refusal.resource}" refused the fencing token ${String(refusal.offered)}: it has seen ${seen}`,
      options,
    );
    this.name = "StaleTokenError";
    this.resource = refusal.resource;
    this.offered = refusal.offered;
    this.seen = refusal.seen;
  }
}
