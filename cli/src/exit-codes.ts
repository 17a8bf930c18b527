import { LockstepError } from "@lockstep/client";

/** The exit codes of every command; docs/cli.md explains them to users. */
export const EXIT = {
  ok: 0,
  /** Refused by the cell, or any error without a code of its own. */
  failed: 1,
  /** The command line or its input is wrong; nothing was sent. */
  usage: 2,
  /** There is no such key, lease or member. */
  notFound: 3,
  /** No member could be reached, or no answer came in time; nothing was applied. */
  unavailable: 4,
  /** The answer was lost: the change may or may not have been applied. */
  unknown: 5,
  /** `txn`: a compare did not hold; the failure branch ran. */
  compareFailed: 6,
  /** `watch`: the start was compacted. */
  compacted: 7,
  /** `lock`: the lock was lost while COMMAND ran, and COMMAND was stopped. */
  lockLost: 123,
  /** `lock`: the lock was not free within --wait. */
  lockTimeout: 124,
  /** `lock`: the lock could not be asked for. */
  lockFailed: 125,
  /** `lock`: COMMAND could not be executed. */
  cannotExecute: 126,
  /** `lock`: COMMAND was not found. */
  commandNotFound: 127,
  /** `lock`: COMMAND was ended by signal N: 128 + N. */
  signalled: 128,
} as const;

/** What the user did wrong or should know, with the exit code that says so to programs. */
export class CliError extends Error {
  readonly exitCode: number;
  /** What to do about it. */
  readonly hint: string | undefined;

  constructor(exitCode: number, message: string, hint?: string) {
    super(message);
    this.name = "CliError";
    this.exitCode = exitCode;
    this.hint = hint;
  }
}

export function usageError(message: string, hint?: string): CliError {
  return new CliError(EXIT.usage, message, hint);
}

/** An error as a person should read it. */
export function describe(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof LockstepError) return describeLockstep(error);
  if (error instanceof TypeError || error instanceof RangeError) return usageError(error.message);
  return new CliError(EXIT.failed, error instanceof Error ? error.message : String(error));
}

function describeLockstep(error: LockstepError): CliError {
  const text = `${error.message} (${error.code})`;
  if (error.code === "unavailable") {
    return new CliError(
      error.outcome === "unknown" ? EXIT.unknown : EXIT.unavailable,
      text,
      "Are the members running? Name their client addresses with --endpoints or LOCKSTEP_ENDPOINTS.",
    );
  }
  if (error.outcome === "unknown") {
    return new CliError(
      EXIT.unknown,
      text,
      "The change may or may not have been applied: read the key before you repeat it.",
    );
  }
  switch (error.code) {
    case "deadline-exceeded":
    case "no-leader":
    case "leader-changed":
    case "overloaded":
    case "shutting-down":
      return new CliError(
        EXIT.unavailable,
        text,
        "Nothing was applied. `lockstep status` shows how the members are.",
      );
    case "lease-not-found":
      return new CliError(EXIT.notFound, text, "`lockstep lease list` shows the leases there are.");
    case "invalid-argument":
      return usageError(text);
    case "compacted":
      return new CliError(
        EXIT.compacted,
        text,
        error.compactRevision === undefined
          ? undefined
          : `The oldest revision that can still be read is ${String(error.compactRevision)}.`,
      );
    default:
      return new CliError(EXIT.failed, text);
  }
}
